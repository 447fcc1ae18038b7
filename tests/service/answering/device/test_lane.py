"""Lanes: memory that two processes map, and streams of records."""

import os
import socket

import numpy as np
import pytest

from portcullis.answering.admission import Line
from portcullis.answering.device import board, lane
from portcullis.answering.device.board import Board
from portcullis.answering.device.lane import ANSWER, REQUEST, Facts, Hello, Slots, Stream
from portcullis.bundle.shift import Shifts
from tests import tiny


def test_pixels_and_answers_are_seen_through_both_mappings_and_keep_to_their_slots():
    memory = os.memfd_create("test")
    front, engine = (Slots(memory, tiny.fitted_manifest(), 5) for _ in range(2))
    os.close(memory)  # the mappings stay
    front.pixels[3] = 7
    assert (engine.pixels[3] == 7).all()
    assert (engine.pixels[[2, 4]] == 0).all()
    probabilities, scores, parts = np.eye(3, dtype=np.float32)[:2], np.array([1, 2], "f4"), np.ones((2, 2), "f4")
    engine.write_answers(np.array([4, 0]), (probabilities, scores, parts))
    found = front.read_answers(np.array([0, 4]))
    np.testing.assert_array_equal(found[0], probabilities[::-1])
    np.testing.assert_array_equal(found[1], [2, 1])
    np.testing.assert_array_equal(found[2], parts)
    assert (front.pixels[4] == 0).all()


def test_records_that_come_in_pieces_are_put_together_and_the_end_is_told():
    ours, theirs = socket.socketpair()
    stream, record = Stream(ours, ANSWER), np.array([(3, 0, 64, 0.5)], ANSWER).tobytes()
    assert len(stream.receive()) == 0  # nothing yet, and no wait
    theirs.send(record + record[:5])
    assert stream.receive().tolist() == [(3, 0, 64, 0.5)]
    theirs.send(record[5:])
    assert stream.receive().tolist() == [(3, 0, 64, 0.5)]
    theirs.close()
    assert stream.receive() is None
    with pytest.raises(OSError):
        stream.send(np.array([1], REQUEST).tobytes())
    ours.close()


def test_a_lane_is_opened_with_a_line_and_a_descriptor_by_the_same_user():
    ours, theirs = socket.socketpair()
    memory = os.memfd_create("test")
    os.write(memory, b"shared")
    lane.say(ours, Hello("/bundle", 4), memory)
    words, [received] = lane.hear(theirs)
    assert words == Hello("/bundle", 4)
    assert os.pread(received, 6, 0) == b"shared"
    facts = Facts(("auto",), ("cuda", "cpu"), (), Shifts(0.25, (0.5, 0.125), 0.0625))
    lane.say(theirs, facts)
    assert lane.hear(ours) == (facts, [])
    assert lane.is_ours(theirs)
    ours.close()
    with pytest.raises(ConnectionResetError):
        lane.hear(theirs)
    theirs.close()


def test_the_board_adds_up_what_all_fronts_have_under_way():
    descriptor = board.make(3)
    first, second, engine = (Board(descriptor) for _ in range(3))
    first.say_pending(0, 5)
    second.say_pending(2, 4)
    assert engine.line() == Line(9, 0, 0.0)
    engine.say_running(6, 12.5)
    assert first.line() == Line(3, 6, 12.5)
    second.say_pending(2, 0)  # as the supervisor does for a front that died
    assert first.line() == Line(0, 6, 12.5)
    assert first.num_fronts == 3
