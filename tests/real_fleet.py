"""A whole fleet on this machine: instances in namespaces of their own, HAProxy before them, PostgreSQL behind them."""

import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests import namespaces, postgres, sabotage
from tests.hammer import eventually
from tests.namespaces import HUB, Network
from tests.postgres import Cluster
from tests.running import RunningService
from tests.sabotage import kill_whole, metric

PORT = 8000
HAPROXY = """
global
    maxconn 2000
defaults
    mode http
    timeout connect 1s
    timeout client 60s
    timeout server 60s
    option http-buffer-request
    option redispatch
    retries 3
    retry-on conn-failure empty-response
frontend images
    bind {address}:{port}
    default_backend instances
backend instances
    balance roundrobin
    option httpchk GET /readyz
    default-server check inter 250ms fall 2 rise 1 on-marked-down shutdown-sessions
{servers}
"""


def lack() -> str | None:
    """What is missing here for such a fleet."""
    if postgres.binaries() is None:
        return "PostgreSQL is not installed (Debian's postgresql)"
    if shutil.which("haproxy") is None:
        return "HAProxy is not installed (Debian's haproxy)"
    return namespaces.lack()


class RealFleet:
    """Use as a context manager; `url` is the balancer's, `instances` are by name."""

    def __init__(self, directory: Path, names: tuple[str, ...] = ("a", "b", "c"), *flags: str) -> None:
        self._directory, self._names, self._flags = directory, names, flags
        self._stack = contextlib.ExitStack()
        self.instances: dict[str, RunningService] = {}

    def __enter__(self) -> "RealFleet":
        with contextlib.ExitStack() as stack:
            self.models = sabotage.write_versions(self._directory / "models")
            self.network = stack.enter_context(Network(self._names))
            inside, address = self.network.inside("hub"), self.network.address("back", HUB)
            self.cluster: Cluster = stack.enter_context(postgres.cluster(host=address, within=inside))
            self.database_url = self.cluster.new_database()
            stack.callback(self._stop_all)
            for name in self._names:
                self.start(name)
            stack.enter_context(self._balancer())
            self.url = f"http://{self.network.address('front', HUB)}:{PORT}"
            eventually(lambda: all(metric(one, "database_connected") == 1 for one in self.instances.values()))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def start(self, name: str) -> None:
        """On its own runtime directory, the same each time."""
        host = self.network.address("front", self.network.number(name))
        self.instances[name] = sabotage.serve(
            self.models,
            self._directory / name,
            *("--workers", "1", "--host", host, "--port", str(PORT), "--instance", name, *self._flags),
            environment={"PORTCULLIS_DATABASE": self.database_url},
            program=(*self.network.inside(name), sys.executable, "-m", "portcullis"),
        )

    def kill(self, name: str) -> None:
        kill_whole(self.instances[name])

    def _stop_all(self) -> None:
        for service in self.instances.values():
            service.__exit__()

    @contextlib.contextmanager
    def _balancer(self):
        numbers = {name: self.network.address("front", self.network.number(name)) for name in self._names}
        servers = "\n".join(f"    server {name} {address}:{PORT}" for name, address in numbers.items())
        file = self._directory / "haproxy.cfg"
        address = self.network.address("front", HUB)
        file.write_text(HAPROXY.format(address=address, port=PORT, servers=servers))
        with (self._directory / "haproxy.log").open("wb") as log:
            command = [*self.network.inside("hub"), "haproxy", "-db", "-f", str(file)]
            process = subprocess.Popen(command, stdout=log, stderr=log, env=dict(os.environ))
        try:
            yield
        finally:
            process.terminate()
            process.wait(30)
