"""A whole instance in one process, for a scheduler that starts and replaces processes: one engine, no supervisor.

It knows no scheduler: whoever runs it passes requests to `app`, asks `complaint`, and closes it.
"""

import asyncio
import itertools
import logging

from portcullis.api.front import Front
from portcullis.environment import put_variable
from portcullis.errors import DirectoryTaken
from portcullis.http.server import Server
from portcullis.processes.assignment import METRICS_DIRECTORY
from portcullis.processes.bundles import CACHE_DIRECTORY
from portcullis.processes.instance import Instance
from portcullis.processes.listening import server_of
from portcullis.processes.placement import place
from portcullis.processes.serving import Serving
from portcullis.processes.sockets import bind
from portcullis.settings import Settings
from portcullis.telemetry import logs
from portcullis.telemetry.instruments import DIRECTORY_VARIABLE

logger = logging.getLogger(__name__)

CLOSE_SECONDS = 20.0


class Replica:
    """Several on one machine share a runtime directory: each takes the first place in it that nobody has."""

    app: Front

    def __init__(self, settings: Settings, own_port: int | None = None) -> None:
        """`own_port`: where it also listens by itself, so many ports on as its place is; none: nowhere."""
        logs.configure(settings.log_level, settings.log_format)
        self._instance, number = _take_place(settings)
        self._own_port = None if own_port is None else own_port + number
        self._why_broken: str | None = None
        self._server: Server | None = None
        self._listening: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Load and warm up; from then on it follows the desired state, and answers."""
        await asyncio.to_thread(self._instance.prepare)
        settings = self._instance.settings
        put_variable(DIRECTORY_VARIABLE, str(settings.runtime_directory.resolve() / METRICS_DIRECTORY))
        placement = await asyncio.to_thread(lambda: place(settings, self._instance.bundles()))
        self._serving = Serving(settings, 0, placement, self._break)
        self._instance.start()
        await self._serving.start(is_first=True)
        self._server = server_of(self._serving, settings)
        self.app = self._server.config.app  # type: ignore[assignment]  # the one that it was made with
        if self._own_port is not None:
            self._listening = asyncio.create_task(self._server.serve([bind(settings.host, self._own_port)]))
        self._serving.follow(lambda: self._server.num_connections if self._server is not None else 0)
        logger.info("replica %s serves on %s", settings.instance, placement.provider)

    def complaint(self) -> str | None:
        """Why it should be replaced; none while it can answer."""
        if self._why_broken is not None:
            return self._why_broken
        return None if self._serving.can_answer() else "not ready: starting or draining"

    async def close(self) -> None:
        """Answer what is left, and let go of the place."""
        if self._listening is not None and self._server is not None:
            self._server.drain()
            await self._listening
        await self._serving.close(CLOSE_SECONDS)
        await asyncio.to_thread(self._instance.stop)
        self._instance.close()

    def _break(self, cause: str) -> None:
        self._why_broken = cause


def _take_place(settings: Settings) -> tuple[Instance, int]:
    """A place is kept when its process dies: the next one there finds the state, and has the same name."""
    root = settings.runtime_directory
    cache = settings.models_cache or root / CACHE_DIRECTORY  # one for all of this machine
    for number in itertools.count():
        own = {"runtime_directory": root / f"replica-{number}", "models_cache": cache}
        try:
            return Instance(settings.model_copy(update=own)), number
        except DirectoryTaken:
            continue
    raise AssertionError("unreachable")
