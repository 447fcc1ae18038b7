"""Both ends of lanes in one process, and an engine that does as it is told."""

import os
import socket
import threading

import numpy as np
from prometheus_client import CollectorRegistry

from portcullis.answering.device import board
from portcullis.answering.device.board import Board
from portcullis.answering.device.graphs import EngineLane, Graph
from portcullis.answering.device.lane import ANSWER, REQUEST, Slots, Stream
from portcullis.answering.device.serving import Serving
from portcullis.bundle.files import Bundle
from portcullis.bundle.outputs import Outputs
from portcullis.errors import OutOfDeviceMemory
from portcullis.telemetry.instruments import Metrics
from tests import tiny

NUM_SLOTS = 128
PATIENCE_SECONDS = 60


class ObedientEngine:
    """Answers with the red of each image; can be held, has so much memory, and fails as told."""

    def __init__(self, batch_sizes=(), memory=10_000):
        self.batch_sizes, self.memory, self.error = batch_sizes, memory, None
        self.sizes = []
        self.may_run = threading.Event()
        self.may_run.set()
        self.is_running = threading.Semaphore(0)
        self.niceness = set()

    def run_filled(self, num_images, fill):
        self.niceness.add(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
        rows = np.empty((num_images, tiny.SIZE, tiny.SIZE, 3), np.uint8)
        fill(rows)
        self.is_running.release()
        assert self.may_run.wait(PATIENCE_SECONDS)
        if self.error is not None:
            raise self.error
        size = min((size for size in self.batch_sizes if size >= num_images), default=num_images)
        if size > self.memory:
            raise OutOfDeviceMemory(f"no room for {size}")
        self.sizes.append(num_images)
        red = rows[:, 0, 0, 0].astype(np.float32)
        return Outputs(np.stack([red, red, red], axis=1), red, red[:, None])


class Front:
    """The front's end of a lane, without a pipeline."""

    def __init__(self, stream, slots):
        self.stream, self.slots = stream, slots

    def send(self, *slots):
        """Images whose red is their slot."""
        for slot in slots:
            self.slots.pixels[slot] = slot
        self.stream.send(np.asarray(slots, REQUEST).tobytes())

    def answers(self, count):
        """So many records, as they come."""
        found = []
        while len(found) < count:
            records = self.stream.receive()
            assert records is not None
            found += records.tolist()
        return found


class Machine:
    """One device with one graph; fronts as many as are asked for."""

    def __init__(self, engine, max_batch=64):
        self.metrics = Metrics(CollectorRegistry())
        bundle = Bundle(None, tiny.manifest())
        self.graph = Graph(bundle, engine, max_batch, self.metrics)
        self.gone, self.lost = [], threading.Event()
        self.causes, self.fronts = [], []
        self.board = Board(board.make(2))
        self.serving = Serving(self.board, self.gone.append, self._lose)

    def _lose(self, cause):
        self.causes.append(cause)
        self.lost.set()

    def front(self):
        ours, theirs = socket.socketpair()
        memory = os.memfd_create("lane")
        front = Front(Stream(ours, ANSWER), Slots(memory, tiny.manifest(), NUM_SLOTS))
        lane = EngineLane(Stream(theirs, REQUEST), Slots(memory, tiny.manifest(), NUM_SLOTS), self.graph)
        os.close(memory)
        self.serving.inbox.add(lane)
        self.fronts.append(front)
        return front

    def __enter__(self):
        self.serving.start()
        return self

    def __exit__(self, *exception):
        self.graph.engine.may_run.set()
        self.serving.close()
        for front in self.fronts:
            front.stream.close()

    def counted(self, name):
        labels = {"model": "tiny", "version": "1"}
        return self.metrics.registry.get_sample_value(f"portcullis_{name}", labels)
