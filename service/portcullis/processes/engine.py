"""One engine process: the sessions of one device and the batches of all its fronts. Started by the supervisor, like a
worker: its assignment comes on standard input, whose end is the supervisor's end; its word goes to a pipe of its own.

It leaves when it is told to, or when the supervisor is gone, once its fronts have closed their lanes; and at once, with
a status of its own, when the device is lost.
"""

import asyncio
import contextlib
import logging
import os
import signal
import socket
from pathlib import Path

from portcullis.answering.device.board import Board
from portcullis.answering.device.graphs import EngineLane, Graph, Graphs
from portcullis.answering.device.lane import REQUEST, Facts, Hello, Refused, Slots, Stream, hear, is_ours, say
from portcullis.answering.device.serving import Serving
from portcullis.bundle.signatures import Trust
from portcullis.errors import EngineError, ServiceError
from portcullis.processes import control
from portcullis.processes.assignment import Assignment
from portcullis.processes.control import ENGINE_BROKEN, Message
from portcullis.processes.lifeline import LIFELINE, first_line
from portcullis.processes.placement import placed_options
from portcullis.processes.sizing import patience_seconds
from portcullis.telemetry import logs
from portcullis.telemetry.files import use_slot
from portcullis.telemetry.instruments import Metrics

logger = logging.getLogger(__name__)

GREETING_SECONDS = 10.0
CLOSE_SECONDS = 5.0


class EngineProcess:
    """Takes lanes in, opens what they are for, and runs."""

    def __init__(self, assignment: Assignment) -> None:
        assert assignment.link is not None
        self._assignment, settings = assignment, assignment.settings
        use_slot(assignment.slot)
        self._metrics = Metrics()
        options = placed_options(settings, assignment.placement)
        self._graphs = Graphs(options, self._metrics, patience_seconds(settings), Trust(settings.trusted_keys))
        self._graphs.on_broken = self._give_up
        self._serving = Serving(Board(assignment.link.board_descriptor), self._on_gone, self._give_up)
        self._metrics.max_batch.set(options.max_batch)
        self._num_lanes = 0
        self._is_leaving = False
        self._is_over = asyncio.Event()
        self._welcoming: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Serve until told to stop."""
        self._loop = asyncio.get_running_loop()
        self._loop.add_signal_handler(signal.SIGTERM, self._leave)
        self._loop.add_signal_handler(signal.SIGINT, lambda: None)
        self._loop.add_reader(LIFELINE, self._on_lifeline)
        listener = socket.socket(fileno=self._assignment.socket_descriptor)
        listener.setblocking(False)
        self._serving.start()
        self._metrics.engines.set(1)
        control.say(self._assignment.control_descriptor, Message(event="ready"))
        accepting = asyncio.create_task(self._accept(listener))
        await self._is_over.wait()
        accepting.cancel()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.to_thread(self._serving.close), CLOSE_SECONDS)

    # -- lanes -------------------------------------------------------------------------------------------------------

    async def _accept(self, listener: socket.socket) -> None:
        while True:
            connection, _ = await self._loop.sock_accept(listener)
            task = asyncio.create_task(self._welcome(connection))
            self._welcoming.add(task)
            task.add_done_callback(self._welcoming.discard)

    async def _welcome(self, connection: socket.socket) -> None:
        """Open what a lane is for, and let it in; or say why not."""
        self._num_lanes += 1
        graph = None
        try:
            hello, memory = await asyncio.to_thread(_greeting, connection)
            with contextlib.closing(memory):
                graph = await self._graphs.open(Path(hello.bundle))
                lane = self._lane(connection, hello, memory, graph)
            self._serving.inbox.add(lane)
        except (OSError, ValueError) as error:  # the front has gone, or is none
            logger.error("a lane was not opened: %s", error)
            self._dismiss(connection, graph)
        except Exception as error:
            if not isinstance(error, ServiceError):
                logger.exception("a bundle cannot be opened")
                error = EngineError(f"the bundle cannot be opened: {type(error).__name__}")
            with contextlib.suppress(OSError):
                say(connection, Refused(error.code, str(error)))
            self._dismiss(connection, graph)
            if isinstance(error, EngineError) and self._graphs.is_empty:
                self._give_up(str(error))  # with nothing open yet: the device itself is of no use

    def _lane(self, connection: socket.socket, hello: Hello, memory: "_Memory", graph: Graph) -> EngineLane:
        slots, engine = Slots(memory.descriptor, graph.bundle.manifest, hello.num_slots), graph.engine
        say(connection, Facts(engine.asked, engine.providers, engine.refusals, engine.shifts))
        return EngineLane(Stream(connection, REQUEST), slots, graph)

    def _dismiss(self, connection: socket.socket, graph: Graph | None) -> None:
        connection.close()
        if graph is not None:
            self._graphs.release(graph)
        self._forget_lane()

    def _on_gone(self, lane: EngineLane) -> None:
        """A front has closed its lane, or died; on one of the engine's threads."""

        def forget() -> None:
            self._graphs.release(lane.graph)
            self._forget_lane()

        self._loop.call_soon_threadsafe(forget)

    def _forget_lane(self) -> None:
        self._num_lanes -= 1
        if self._is_leaving and self._num_lanes == 0:
            self._is_over.set()

    # -- the end -----------------------------------------------------------------------------------------------------

    def _on_lifeline(self) -> None:
        if not os.read(LIFELINE, 4096):
            self._loop.remove_reader(LIFELINE)
            self._leave()

    def _leave(self) -> None:
        """Once the last front has closed its lanes; they answer what they have first."""
        self._is_leaving = True
        settings = self._assignment.settings
        self._loop.call_later(settings.drain_seconds + settings.grace_seconds, self._is_over.set)
        if self._num_lanes == 0:
            self._is_over.set()

    def _give_up(self, cause: str) -> None:
        """The device is of no use to this process any more: leave at once, whatever its threads do."""
        logger.error("%s; leaving", cause)
        event = "failed" if self._assignment.is_first and self._graphs.is_empty else "broken"
        control.say(self._assignment.control_descriptor, Message(event=event, reason=cause))
        logging.shutdown()
        os._exit(ENGINE_BROKEN)


class _Memory:
    """The descriptor of a lane's memory, until it is mapped."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def close(self) -> None:
        os.close(self.descriptor)


def _greeting(connection: socket.socket) -> tuple[Hello, _Memory]:
    if not is_ours(connection):
        raise PermissionError("a lane is for processes of the same user")
    connection.settimeout(GREETING_SECONDS)
    words, descriptors = hear(connection)
    if not isinstance(words, Hello) or len(descriptors) != 1:
        raise ValueError("expected a bundle and the memory of a lane")
    return words, _Memory(descriptors[0])


def main() -> None:
    """Entry of the process."""
    assignment = Assignment.from_json(first_line())
    os.set_inheritable(assignment.control_descriptor, False)
    logs.configure(assignment.settings.log_level, assignment.settings.log_format)
    asyncio.run(_run(assignment))
    logging.shutdown()
    os._exit(0)  # a thread may still be with the device


async def _run(assignment: Assignment) -> None:
    await EngineProcess(assignment).run()


if __name__ == "__main__":
    main()
