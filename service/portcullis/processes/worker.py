"""One worker process of a supervisor: what it serves with, its event loop, its share of the socket.

It reads its assignment from standard input, which the supervisor keeps open: when that ends, the supervisor is gone
and the worker drains. It says that it is ready, or why not, on a pipe of its own (control.py); its standard output
belongs to whoever prints.
"""

import asyncio
import gc
import logging
import os
import socket
import sys

import uvloop

from portcullis.errors import PortcullisError
from portcullis.http.server import Server
from portcullis.processes import control
from portcullis.processes.assignment import Assignment
from portcullis.processes.control import ENGINE_BROKEN, Message
from portcullis.processes.lifeline import LIFELINE, first_line
from portcullis.processes.listening import server_of
from portcullis.processes.serving import Serving
from portcullis.telemetry import logs

logger = logging.getLogger(__name__)

CLOSE_BROKEN_SECONDS = 5.0
SWITCH_SECONDS = 0.0005  # how long the engine's thread and the event loop keep the interpreter from each other


class Worker:
    """Serves on the supervisor's socket until told to stop."""

    def __init__(self, assignment: Assignment) -> None:
        self._assignment = assignment
        self._serving = Serving(
            assignment.settings, assignment.slot, assignment.placement, self._leave, assignment.link
        )
        self._running: Server | None = None
        self._is_broken = False

    async def run(self) -> int:
        """Serve until told to stop, or until an engine is broken; the status to end with."""
        sys.setswitchinterval(SWITCH_SECONDS)
        await self._serving.start(self._assignment.is_first)
        self._running = server = server_of(self._serving, self._assignment.settings)
        server.config.load()  # whatever uvicorn imports, before anybody is told that we are ready
        gc.collect()
        gc.freeze()  # what is loaded now stays: no need to look through it again and again
        self._watch_lifeline(server)
        self._serving.follow(lambda: server.num_connections)
        listener = socket.socket(fileno=self._assignment.socket_descriptor)
        control.say(self._assignment.control_descriptor, Message(event="ready"))
        await server.serve(sockets=[listener])
        await self._serving.close(CLOSE_BROKEN_SECONDS if self._is_broken else None)
        return ENGINE_BROKEN if self._is_broken else 0

    def _leave(self, cause: str) -> None:
        control.say(self._assignment.control_descriptor, Message(event="broken", reason=cause))
        self._is_broken = True
        if self._running is not None:
            self._running.drain()

    def _watch_lifeline(self, server: Server) -> None:
        """Standard input ends when the supervisor does, however it died."""

        def on_input() -> None:
            if not os.read(LIFELINE, 4096):
                asyncio.get_running_loop().remove_reader(LIFELINE)
                logger.warning("the supervisor has gone; draining")
                server.drain()

        asyncio.get_running_loop().add_reader(LIFELINE, on_input)


def main() -> None:
    """Entry of the worker process."""
    assignment = Assignment.from_json(first_line())
    os.set_inheritable(assignment.control_descriptor, False)
    logs.configure(assignment.settings.log_level, assignment.settings.log_format)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_run(assignment))
    except PortcullisError as error:
        control.say(assignment.control_descriptor, Message(event="failed", reason=str(error)))
        sys.exit(1)


async def _run(assignment: Assignment) -> None:
    status = await Worker(assignment).run()
    if status:  # at once: Python would wait for threads, and one of them hangs
        logging.shutdown()
        os._exit(status)


if __name__ == "__main__":
    main()
