import itertools
import os
import signal
import subprocess
import sys
from collections import deque
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portcullis.drift import rings
from portcullis.drift.rings import (
    RECORD,
    RingReader,
    RingWriter,
    find_rings,
    model_key,
    read_recent,
    ring_path,
)

KEY = model_key("tiny", 1)
OTHER = model_key("tiny", 2)

# A worker that writes for ever, every field a function of the sequence number, so that a mixture shows.
ENDLESS = """
import sys
from pathlib import Path
from portcullis.drift.rings import RingReader, RingWriter
path, capacity = Path(sys.argv[1]), int(sys.argv[2])
writer, i = RingWriter(path, capacity), RingReader(path).since(1)[1]
while True:
    writer.append(i * 7919, i + 0.5, i % 1000, (i % 512) / 512, i % 65536, i % 2 == 1)
    i += 1
"""


def fill(writer: RingWriter, first: int, last: int, key: int = KEY) -> None:
    for i in range(first, last + 1):
        writer.append(key, float(i), i / 2, 1 / (i + 1), i % 10, i % 3 == 0)


@contextmanager
def endless_writer(path: Path, capacity: int):
    root = Path(__file__).parents[3]
    process = subprocess.Popen([sys.executable, "-c", ENDLESS, str(path), str(capacity)], cwd=root)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def assert_whole(records: np.ndarray) -> None:
    sequence = records["sequence"].astype(np.int64)
    assert np.all(np.diff(sequence) > 0)
    assert np.array_equal(records["model_key"], records["sequence"] * np.uint64(7919))
    assert np.array_equal(records["time"], sequence + 0.5)
    assert np.array_equal(records["score"], sequence % 1000)
    assert np.array_equal(records["p_value"], (sequence % 512) / 512)
    assert np.array_equal(records["class_index"], sequence % 65536)
    assert np.array_equal(records["outcome"], sequence % 2)


def test_what_was_appended_is_read(tmp_path):
    writer = RingWriter(tmp_path / "a.ring", capacity=8)
    writer.append(KEY, 1234.5, -0.75, 0.125, 7, True)
    records, following, num_lost = RingReader(tmp_path / "a.ring").since(1)
    assert records[list(RECORD.names[:-1])].tolist() == [(1, KEY, 1234.5, -0.75, 0.125, 7, 1)]
    assert (following, num_lost) == (2, 0)


@given(st.integers(1, 9), st.lists(st.integers(0, 25), max_size=6))
@settings(max_examples=60, deadline=None)
def test_a_reader_that_comes_back_gets_each_record_once_and_knows_what_it_lost(tmp_path_factory, capacity, bursts):
    path = tmp_path_factory.mktemp("ring") / "a.ring"
    writer, reader, kept = RingWriter(path, capacity), RingReader(path), deque(maxlen=capacity)
    following, last = 1, 0
    for burst in bursts:
        fill(writer, last + 1, last + burst)
        kept.extend(range(last + 1, last + burst + 1))
        last += burst
        records, after, num_lost = reader.since(following)
        assert records["sequence"].tolist() == [i for i in kept if i >= following]
        assert num_lost == last + 1 - following - len(records)
        following = after
        assert following == last + 1
    assert reader.latest(3)["sequence"].tolist() == list(kept)[-3:]
    assert reader.latest(0)["sequence"].tolist() == []


def test_a_worker_in_the_place_of_another_goes_on_with_its_sequence(tmp_path):
    path = tmp_path / "a.ring"
    fill(RingWriter(path, 16), 1, 20)
    fill(RingWriter(path, 16), 21, 25)
    records, following, num_lost = RingReader(path).since(18)
    assert records["sequence"].tolist() == list(range(18, 26))
    assert records["time"].tolist() == list(range(18, 26))
    assert (following, num_lost) == (26, 0)


def test_another_capacity_begins_a_new_ring_with_the_sequence_going_on(tmp_path):
    path = tmp_path / "a.ring"
    fill(RingWriter(path, 16), 1, 20)
    fill(RingWriter(path, 4), 21, 22)
    assert RingReader(path).since(21)[0]["sequence"].tolist() == [21, 22]


def test_a_ring_made_anew_is_all_new_to_a_reader_that_was_further(tmp_path):
    path = tmp_path / "a.ring"
    fill(RingWriter(path, 16), 1, 100)
    reader = RingReader(path)
    _, following, _ = reader.since(1)
    path.unlink()
    fill(RingWriter(path, 16), 1, 3)
    records, following, num_lost = reader.since(following)
    assert records["sequence"].tolist() == [1, 2, 3]
    assert (following, num_lost) == (4, 0)


@pytest.mark.parametrize("new_bytes_first", [True, False])
def test_a_record_written_by_half_is_not_seen_wherever_it_was_cut(tmp_path, new_bytes_first):
    """Slot 1 of 4 goes from record 1 to record 5; every mixture of their bytes must be invisible."""
    path = tmp_path / "a.ring"
    writer = RingWriter(path, 4)
    fill(writer, 1, 4)
    before = path.read_bytes()
    fill(writer, 5, 5)
    after = path.read_bytes()
    start = 64 + RECORD.itemsize
    old, new = before[start : start + RECORD.itemsize], after[start : start + RECORD.itemsize]
    for cut in range(1, RECORD.itemsize):
        mixed = new[:cut] + old[cut:] if new_bytes_first else old[:cut] + new[cut:]
        path.write_bytes(before[:start] + mixed + before[start + RECORD.itemsize :])
        expected = {old: [1, 2, 3, 4], new: [2, 3, 4, 5]}.get(mixed, [2, 3, 4])
        assert RingReader(path).latest(4)["sequence"].tolist() == expected
        RingWriter(path, 4).append(KEY, 5.0, 0.0, 0.5, 0, False)  # the next worker mends it
        assert RingReader(path).latest(4)["sequence"].tolist()[-1] in (5, 6)


def test_a_reader_beside_a_writer_at_full_speed_sees_whole_records_only(tmp_path):
    path = tmp_path / "a.ring"
    with endless_writer(path, 512):
        reader, following, num_seen, num_lost = RingReader(path), 1, 0, 0
        while num_seen < 50_000:
            records, following, lost = reader.since(following)
            assert_whole(records)
            num_seen, num_lost = num_seen + len(records), num_lost + lost
        assert num_seen + num_lost == following - 1


def test_a_writer_killed_at_any_moment_leaves_a_ring_that_the_next_goes_on_with(tmp_path):
    path, newest = tmp_path / "a.ring", 0
    for _ in range(4):
        with endless_writer(path, 512):
            while RingReader(path).since(newest + 1)[1] < newest + 700:
                pass
        records, following, _ = RingReader(path).since(1)
        assert_whole(records)
        assert len(records) >= 511  # at most the one being written
        assert following > newest
        newest = following - 1


@pytest.mark.parametrize("content", [b"", b"x", b"\0" * 4096, os.urandom(4096), rings.MAGIC + b"\xff" * 4088])
def test_a_file_that_is_no_ring_reads_as_empty_and_is_made_anew(tmp_path, content):
    path = tmp_path / "a.ring"
    path.write_bytes(content)
    records, following, num_lost = RingReader(path).since(7)
    assert (len(records), following, num_lost) == (0, 1, 0)
    fill(RingWriter(path, 8), 1, 3)
    assert RingReader(path).latest(9)["sequence"].tolist() == [1, 2, 3]


def test_a_ring_cut_short_under_reader_and_window_reads_as_empty(tmp_path):
    path = ring_path(tmp_path, 0)
    fill(RingWriter(path, 64), 1, 64)
    content, readers = path.read_bytes(), find_rings(tmp_path)
    for size in range(0, len(content), 101):
        path.write_bytes(content[:size])
        assert readers[0].since(1)[1:] == (1, 0)
        assert len(read_recent(readers, KEY, 10)) == 0
    path.unlink()
    assert readers[0].latest(5).tolist() == []
    assert RingReader(tmp_path).latest(5).tolist() == []  # a directory


def test_flipped_bytes_lose_their_record_and_no_other(tmp_path):
    path = tmp_path / "a.ring"
    fill(RingWriter(path, 8), 1, 8)
    content = bytearray(path.read_bytes())
    for position in (64 + 3 * 48, 64 + 5 * 48 + 25, 64 + 7 * 48 + 47):
        content[position] ^= 0x10
    path.write_bytes(content)
    assert RingReader(path).latest(8)["sequence"].tolist() == [1, 2, 4, 6, 8]
    assert RingReader(path).since(1)[1:] == (9, 3)


def test_where_no_file_can_be_had_the_writer_goes_on_without(tmp_path):
    writer = RingWriter(tmp_path / "missing" / "a.ring", 8)
    fill(writer, 1, 20)
    assert not writer.is_shared
    assert RingWriter(tmp_path / "a.ring", 8).is_shared


def test_a_full_disk_does_not_stop_the_writer(tmp_path):
    """A limit on file sizes refuses the blocks, as a full disk does."""
    script = """
import resource, sys
from pathlib import Path
from portcullis.drift.rings import RingWriter
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
writer = RingWriter(Path(sys.argv[1]), 65536)
writer.append(1, 1.0, 0.5, 0.5, 1, False)
assert not writer.is_shared
"""
    root = Path(__file__).parents[3]
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "a.ring")], cwd=root, check=True)
    assert list(tmp_path.iterdir()) == []  # nor does it keep what space there was


def test_what_does_not_fit_is_dropped_and_counted(tmp_path):
    writer = RingWriter(tmp_path / "a.ring", 8)
    writer.append(KEY, 1.0, 0.5, 0.5, 65_536, False)
    writer.append(KEY, 1.0, 1e300, 0.5, 1, False)
    writer.append(KEY, 1.0, float("nan"), 0.5, 1, True)
    assert writer.num_dropped == 2
    assert RingReader(tmp_path / "a.ring").since(1)[0]["sequence"].tolist() == [1]


@pytest.mark.parametrize("capacity", [0, -1, rings.MAX_CAPACITY + 1])
def test_a_capacity_that_means_nothing_is_refused(tmp_path, capacity):
    with pytest.raises(ValueError, match="capacity"):
        RingWriter(tmp_path / "a.ring", capacity)


def test_the_window_is_the_newest_of_one_model_over_all_rings(tmp_path):
    writers = [RingWriter(ring_path(tmp_path, slot), 100) for slot in range(3)]
    for i, writer in zip(range(120), itertools.cycle(writers), strict=False):
        writer.append(OTHER if i % 4 == 0 else KEY, 1000.0 + i, float(i), i / 120, i % 10, i % 2 == 0)
    recent = read_recent(find_rings(tmp_path), KEY, 50)
    expected = [i for i in range(120) if i % 4][-50:]
    assert recent["score"].tolist() == expected
    assert recent["class_index"].tolist() == [i % 10 for i in expected]
    assert recent["outcome"].tolist() == [i % 2 == 0 for i in expected]
    np.testing.assert_allclose(recent["p_value"], np.array(expected) / 120, rtol=1e-6)
    assert len(read_recent(find_rings(tmp_path), OTHER, 1000)) == 30
    assert len(read_recent([], KEY, 50)) == 0


def test_what_lies_behind_a_cursor_is_not_recent(tmp_path):
    writers = [RingWriter(ring_path(tmp_path, slot), 100) for slot in range(2)]
    for i in range(40):
        writers[i % 2].append(KEY, 1000.0 + i, float(i), 0.5, 0, False)
    cursors = {"scores-0.ring": 6, "scores-1.ring": 3}  # five of the one were read, two of the other
    assert read_recent(find_rings(tmp_path), KEY, 4, cursors)["score"].tolist() == [3, 4, 6, 8]
    assert len(read_recent(find_rings(tmp_path), KEY, 100, cursors)) == 7
    assert len(read_recent(find_rings(tmp_path), KEY, 100, {})) == 0


def test_a_clock_set_back_does_not_make_old_answers_new(tmp_path):
    writers = [RingWriter(ring_path(tmp_path, slot), 100) for slot in range(2)]
    for i in range(40):
        clock = 9000.0 + i if i < 20 else 1000.0 + i
        writers[i % 2].append(KEY, clock, float(i), 0.5, 0, False)
    recent = read_recent(find_rings(tmp_path), KEY, 20)
    # at the jump itself the order is anybody's guess
    assert len(set(recent["score"].tolist()) & set(range(20, 40))) >= 19


def test_a_model_has_one_key_everywhere():
    script = "from portcullis.drift.rings import model_key; print(model_key('tiny', 1))"
    root = Path(__file__).parents[3]
    assert int(subprocess.check_output([sys.executable, "-c", script], cwd=root)) == KEY
    assert len({model_key(name, version) for name in ("a", "b", "a/1") for version in (1, 2, 11)}) == 9
