"""`python -m bench.many`: a thousand instances that only follow the state and tell their counts, on one PostgreSQL.

The links are the product's own, a thread each in a few processes: what is measured is the database and what it must
bear. With --pooler PgBouncer pools transactions in between. Kept in bench/results/many.json.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import re
import statistics
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg

from bench.fault_figures import Figures
from bench.followers import IMAGES_A_SECOND, MODEL, STATE, Share, follow, noted, write_template
from bench.usage import private_megabytes, processor_seconds
from portcullis.store.postgresql import Postgres
from portcullis.store.schema import migrate
from portcullis.store.state import DesiredState, StateStore
from tests import postgres
from tests.hammer import eventually
from tests.postgres import AS_UNPRIVILEGED, Cluster

RESULTS = Path(__file__).parent / "results" / "many.json"
PATIENCE_SECONDS = 300.0
IN_MEMORY = "/dev/shm"
"""An instance has a disk of its own; a thousand that sync to one here would measure that disk."""
POOL_SIZE = 20
POOLER = """
[databases]
* = host=127.0.0.1 port={port} user=portcullis
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {pooler_port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
max_client_conn = 5000
default_pool_size = {size}
ignore_startup_parameters = options,extra_float_digits
"""


class Many:
    """The instances, and what is asked of the database beside them."""

    def __init__(self, directory: Path, cluster: Cluster, url: str, num_instances: int, pooled_url: str | None) -> None:
        self._cluster, self._directory, self._url, self._num = cluster, directory, url, num_instances
        names = [f"i{number:04}" for number in range(num_instances)]
        cores = 2 * (os.cpu_count() or 1)
        self._shares = [Share(directory, pooled_url or url, tuple(names[part::cores])) for part in range(cores)]
        self._store = StateStore(Postgres(url))
        self._asking: psycopg.Connection | None = None

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        context = multiprocessing.get_context("spawn")
        stopping = context.Event()
        processes = [context.Process(target=follow, args=(share, stopping)) for share in self._shares]
        for process in processes:
            process.start()
        self.pids = [process.pid for process in processes]
        try:
            eventually(lambda: self.num_heard(0) == self._num, PATIENCE_SECONDS)
            yield
        finally:
            stopping.set()
            for process in processes:
                process.join()

    def num_heard(self, since: float) -> int:
        """Instances whose word is younger than a moment of the database's clock."""
        [[count]] = self.ask("SELECT count(*) FROM instances WHERE beat > %s", since)
        return count

    def num_behind(self, revision: int) -> int:
        [[count]] = self.ask("SELECT count(*) FROM instances WHERE revision < %s", revision)
        return count

    def ask(self, statement: str, *values: object) -> list[tuple]:
        """Over one connection for as long as it lasts: to make one costs the server as much as many questions."""
        if self._asking is None or self._asking.closed:
            self._asking = psycopg.connect(self._url, autocommit=True)
        return self._asking.execute(statement, values or None).fetchall()

    def steady(self, seconds: float) -> Figures:
        """What the database does while nothing changes."""
        before, started, (server, own) = self._counters(), time.monotonic(), self._spent()
        time.sleep(seconds)
        passed, after, (server_then, own_then) = time.monotonic() - started, self._counters(), self._spent()
        change = [(then - now) / passed for now, then in zip(before, after, strict=True)]
        [[connections]] = self.ask("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'portcullis'")
        backends, used = self._backends(), server_then - server
        return {
            "connections": connections,
            "transactions a second": round(change[0]),
            "rows written a second": round(change[1]),
            "images a second that are counted": self._num * IMAGES_A_SECOND,
            "images a second that the fleet's evidence takes in": round(change[2]),
            "cores that PostgreSQL uses": round(used / passed, 2),
            "ms of PostgreSQL's processor an instance a second": round(1000 * used / passed / self._num, 2),
            "cores that the instances use here": round((own_then - own) / passed, 2),
            "MB that a connection costs PostgreSQL": round(private_megabytes(backends) / max(1, len(backends)), 1),
        }

    def changes(self, number: int) -> Figures:
        """A gate is changed; when every instance has it, by the clock of one machine."""
        delays: list[float] = []
        answered, spent = [], []
        for turn in range(number):
            started, before = time.time(), self._spent()
            _, after = self._store.change(_gate(f"accept{90 + turn % 9}"), "bench", "gate", model=MODEL)
            eventually(lambda r=after.revision: self.num_behind(r) == 0, PATIENCE_SECONDS)
            answered.append(time.time() - started)
            spent.append([after - before for before, after in zip(before, self._spent(), strict=True)])
            found = [noted(share.file(name), after.revision) for share in self._shares for name in share.names]
            delays += [at - started for at in found if at is not None]
            time.sleep(1)
        return {
            "changes": number,
            "delays": len(delays),
            "seconds until an instance has it, median": round(statistics.median(delays), 3),
            "99 %": round(sorted(delays)[int(0.99 * len(delays))], 3),
            "at most": round(max(delays), 3),
            "seconds until the database knows that all have, median": round(statistics.median(answered), 2),
            "seconds of PostgreSQL's processor meanwhile": round(statistics.median(server for server, _ in spent), 2),
            "seconds of the instances' processor meanwhile": round(statistics.median(own for _, own in spent), 2),
        }

    def restart(self, seconds: float) -> Figures:
        """The database is stopped for a while; who comes back when."""
        self._cluster.stop()
        self._asking = None
        time.sleep(seconds)
        seen = self._cluster.log().count("\n")
        self._cluster.start()
        started, moment = time.monotonic(), self.ask("SELECT extract(epoch FROM clock_timestamp())::float8")[0][0]
        halves = []
        for share in (0.5, 0.99, 1.0):
            eventually(lambda s=share: self.num_heard(moment) >= s * self._num, PATIENCE_SECONDS)
            halves.append(round(time.monotonic() - started, 1))
        tries = Counter(re.findall(r"^(\S+ \S+?)\.\d+ .*connection received", _after(self._cluster.log(), seen), re.M))
        return {
            "seconds away": seconds,
            "seconds until half have it again": halves[0],
            "99 %": halves[1],
            "all": halves[2],
            "connections in the busiest second": max(tries.values(), default=0),
        }

    def _counters(self) -> tuple[int, int, int]:
        """Transactions, rows written, images in the evidence, all since they began."""
        [row] = self.ask(
            "SELECT xact_commit, tup_inserted + tup_updated,"
            " (SELECT coalesce(sum((body::json ->> 'num_images')::bigint), 0) FROM drift_evidence)::bigint"
            " FROM pg_stat_database WHERE datname = current_database()"
        )
        return row

    def _spent(self) -> tuple[float, float]:
        """Seconds of processor so far: the server's, and the instances'."""
        return processor_seconds(self._backends()), processor_seconds(self.pids)

    def _backends(self) -> list[int]:
        """The server's processes, itself among them."""
        pid = self._cluster.pid
        return [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]


def _gate(chosen: str):
    def edit(state: DesiredState) -> DesiredState:
        return state.with_model(MODEL, state.models[MODEL].model_copy(update={"gate": chosen}))

    return edit


def _after(text: str, num_lines: int) -> str:
    return "\n".join(text.splitlines()[num_lines:])


@contextlib.contextmanager
def pooler(directory: Path, url: str) -> Iterator[str]:
    """PgBouncer, pooling transactions; the address to give to instances."""
    parts = urlsplit(url)
    port = (parts.port or 0) + 1
    file = directory / "pgbouncer.ini"
    file.write_text(POOLER.format(port=parts.port, pooler_port=port, size=POOL_SIZE))
    file.chmod(0o644)
    command = ([*AS_UNPRIVILEGED] if os.getuid() == 0 else []) + ["/usr/sbin/pgbouncer", "-q", str(file)]
    with (directory / "pgbouncer.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield f"postgresql://portcullis@127.0.0.1:{port}{parts.path}"
    finally:
        process.terminate()
        process.wait(30)


def run(num_instances: int, is_pooled: bool, seconds: float, num_changes: int) -> Figures:
    options = {"max_connections": str(num_instances + 100), "log_connections": "on", "log_line_prefix": "%m "}
    with (
        contextlib.ExitStack() as stack,
        tempfile.TemporaryDirectory(dir=IN_MEMORY) as scratch,
        postgres.cluster(**options) as cluster,
    ):
        directory = Path(scratch)
        directory.chmod(0o755)
        url = cluster.new_database()
        migrate(Postgres(url))
        StateStore(Postgres(url)).write(STATE)
        write_template(directory)
        pooled = stack.enter_context(pooler(directory, url)) if is_pooled else None
        many = Many(directory, cluster, url, num_instances, pooled)
        with many.running():
            figures = {"nothing changes": many.steady(seconds)}
            print(json.dumps(figures, indent=1), flush=True)
            figures["a gate is changed"] = many.changes(num_changes)
            print(json.dumps(figures, indent=1), flush=True)
            figures["the database is restarted"] = many.restart(10)
            print(json.dumps(figures, indent=1), flush=True)
        return figures


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.many", description=__doc__)
    parser.add_argument("--instances", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=20.0, help="how long nothing changes")
    parser.add_argument("--changes", type=int, default=10)
    parser.add_argument("--pooler", action="store_true", help="PgBouncer in between, pooling transactions")
    arguments = parser.parse_args()
    figures = run(arguments.instances, arguments.pooler, arguments.seconds, arguments.changes)
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    results[f"{arguments.instances} {'through a pooler' if arguments.pooler else 'directly'}"] = figures
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
