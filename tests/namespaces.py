"""Machines in network namespaces of their own, on one host: each hangs on two networks, the front and the back.

Clients and the balancer are on the front, the database is on the back. A cable can be pulled and put back.
"""

import os
import random
import shutil
import subprocess
from collections.abc import Sequence

HUB = 1
HOST = 254
NETWORKS = ("front", "back")


def lack() -> str | None:
    """What is missing here for namespaces of one's own."""
    if os.getuid() != 0:
        return "network namespaces need root"
    missing = [program for program in ("ip", "setpriv") if shutil.which(program) is None]
    if missing:
        return f"not installed: {', '.join(missing)} (Debian's iproute2, util-linux)"
    name = f"pc{os.getpid()}-try"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode:
        return "this machine allows no network namespaces"
    subprocess.run(["ip", "netns", "del", name], check=True)
    return None


class Network:
    """A hub with two bridges, machines on both, and a way for this process to each; use as a context manager."""

    def __init__(self, machines: Sequence[str]) -> None:
        self._id = f"pc{os.getpid()}"
        self._machines = tuple(machines)
        self._second, self._third = random.randint(100, 250), 2 * random.randint(0, 120)

    def __enter__(self) -> "Network":
        try:
            self._build()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        """With a namespace its ends of all cables go, and the other ends with them."""
        for name in ("hub", *self._machines):
            _ip("netns", "del", f"{self._id}-{name}", is_strict=False)

    def address(self, network: str, number: int) -> str:
        return f"10.{self._second}.{self._third + NETWORKS.index(network)}.{number}"

    def number(self, machine: str) -> int:
        return 10 + self._machines.index(machine)

    def inside(self, machine: str) -> tuple[str, ...]:
        """What stands before a command that runs on a machine, or on the hub."""
        return ("ip", "netns", "exec", f"{self._id}-{machine}")

    def pull(self, machine: str, network: str) -> None:
        """Nothing gets through, and nobody is told."""
        self._in("hub", "link", "set", f"{network}{self.number(machine)}", "down")

    def put_back(self, machine: str, network: str) -> None:
        self._in("hub", "link", "set", f"{network}{self.number(machine)}", "up")

    def _build(self) -> None:
        for name in ("hub", *self._machines):
            _ip("netns", "add", f"{self._id}-{name}")
            self._in(name, "link", "set", "lo", "up")
        for network in NETWORKS:
            self._in("hub", "link", "add", network, "type", "bridge")
            self._in("hub", "addr", "add", f"{self.address(network, HUB)}/24", "dev", network)
            self._in("hub", "link", "set", network, "up")
            for machine in self._machines:
                self._plug(network, f"{network}{self.number(machine)}", machine)
            self._plug(network, f"{network}{HOST}", None)

    def _plug(self, network: str, end: str, machine: str | None) -> None:
        """A cable from the bridge to a machine, or to the host that we run on."""
        number = HOST if machine is None else self.number(machine)
        other = network if machine is not None else f"{self._id}{network[0]}"
        place = ["netns", f"{self._id}-{machine}"] if machine is not None else ["netns", str(os.getpid())]
        self._in("hub", "link", "add", end, "type", "veth", "peer", "name", other, *place)
        self._in("hub", "link", "set", end, "master", network, "up")
        where = [] if machine is None else ["-n", f"{self._id}-{machine}"]
        _ip(*where, "addr", "add", f"{self.address(network, number)}/24", "dev", other)
        _ip(*where, "link", "set", other, "up")

    def _in(self, name: str, *words: str) -> None:
        _ip("-n", f"{self._id}-{name}", *words)


def _ip(*words: str, is_strict: bool = True) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if is_strict and done.returncode:
        raise RuntimeError(f"ip {' '.join(words)}: {done.stderr.strip()}")
