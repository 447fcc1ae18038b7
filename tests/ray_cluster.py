"""A Ray cluster of several nodes on this machine, in processes of its own, for tests that put something on it."""

import contextlib
import importlib.util
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

NODES = """
import json, sys, tempfile
import ray
from ray.cluster_utils import Cluster

num_nodes, num_cpus, directory = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
store = 100 * 1024 * 1024
head = {"num_cpus": num_cpus, "include_dashboard": False, "temp_dir": directory, "object_store_memory": store}
cluster = Cluster(initialize_head=True, head_node_args=head)
for _ in range(num_nodes - 1):
    cluster.add_node(num_cpus=num_cpus, object_store_memory=store)
cluster.wait_for_nodes(timeout=300)  # of a busy machine
print(cluster.address, flush=True)
ray.init(cluster.address, logging_level="ERROR", log_to_driver=False)
for _ in sys.stdin:  # any line: who runs where?
    actors = [actor for actor in ray._private.state.actors().values() if actor["State"] == "ALIVE"]
    print(json.dumps([[a["ActorClassName"], a["Address"]["NodeID"], a["Pid"]] for a in actors]), flush=True)
ray.shutdown()
cluster.shutdown()
"""


def lack() -> str | None:
    """What is missing here for a cluster."""
    return None if importlib.util.find_spec("ray") else "Ray is not installed (the extra `ray`)"


class RayCluster:
    """`address` is for those who join or use it."""

    def __init__(self, process: "subprocess.Popen[str]", log: Path) -> None:
        self._process = process
        assert process.stdout is not None
        self.address = process.stdout.readline().strip()
        if not self.address:
            raise RuntimeError(f"no cluster came to be:\n{log.read_text()}")

    def actors(self, name: str) -> dict[int, str]:
        """Living actors whose class has this in its name: process id to the node."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        found = json.loads(self._process.stdout.readline())
        return {pid: node for kind, node, pid in found if name in kind}


@contextlib.contextmanager
def cluster(num_nodes: int, num_cpus: int, **variables: str) -> Iterator[RayCluster]:
    """So many nodes of so many cores each, by Ray's count; all that runs there has the `variables`."""
    quiet = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled", "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"}
    quiet["RAY_worker_niceness"] = "0"  # by itself Ray gives way to all other tests
    quiet["RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S"] = "300"  # and kills a front that takes five seconds to come up
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as directory:  # a short path
        log = Path(directory) / "log"
        (Path(directory) / "ray").mkdir()  # it keeps its address there, and makes no directory for that
        with log.open("w") as stream:
            process = subprocess.Popen(
                [sys.executable, "-c", NODES, str(num_nodes), str(num_cpus), directory],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stream,
                text=True,
                env={**os.environ, **quiet, "RAY_TMPDIR": directory, **variables},
            )
        try:
            yield RayCluster(process, log)
        finally:
            process.communicate()  # its standard input ends, and with it the cluster


def free_ports(count: int) -> int:
    """The first of so many ports in a row that nobody has; below those that the kernel, and so Ray, gives away."""
    while True:
        first = random.randrange(20_000, 30_000)
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for port in range(first, first + count):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first
