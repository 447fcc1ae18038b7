"""Faults of disks and databases, for `python -m bench.faults`."""

import contextlib
import dataclasses
import itertools
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psycopg

from bench.fault_figures import Figures, Ground, tally
from portcullis.processes.stores import DATABASE_FILE
from tests import postgres, sabotage
from tests.hammer import Hammer, eventually
from tests.running import RunningService
from tests.sabotage import (
    DAMAGES,
    SHARPNESS,
    damage_database,
    default_of,
    fill,
    is_whole,
    kill_whole,
    put_default,
    store_of,
)

DISK_MEGABYTES = 160


def full_disk(ground: Ground) -> Figures:
    """The runtime directory is a disk without a free byte; meanwhile a worker is killed every two seconds."""
    num_kills = ground.some(10, 2)
    with (
        sabotage.small_disk(ground.directory / "small") as runtime,
        ground.serve(runtime) as service,
        Hammer(service.url, SHARPNESS, 4) as hammer,
    ):
        hammer.wait_for(50)
        fill(runtime / "filler")
        statuses = []
        for _ in range(num_kills):
            statuses.append(put_default(service, 2).status_code)
            os.kill(random.choice(service.workers()), signal.SIGKILL)
            time.sleep(2)
            eventually(lambda: is_whole(service), 60)
        (runtime / "filler").unlink()
        eventually(lambda: put_default(service, 2).status_code == 200)
    return {
        "kills": num_kills,
        **tally(hammer),
        "not answered": hammer.lost,
        "status of a swap meanwhile": sorted(set(statuses)),
        "and once there was space": 200,
    }


def damaged_database(ground: Ground) -> Figures:
    """The SQLite file is overwritten, cut short or removed while it runs, and found damaged at some starts."""
    rounds, starts, right, as_expected = ground.some(20, 3), ground.some(6, 2), 0, 0
    with ground.serve() as service, Hammer(service.url, SHARPNESS, 2) as hammer:
        for number in range(rounds):
            put_until_done(service, 2)
            time.sleep(random.uniform(0.1, 1))  # the supervisor takes note of a change within a twentieth of a second
            right += state_after(service.runtime, DAMAGES[number % len(DAMAGES)]) == default_of(service) == 2
            put_until_done(service, 1)
    expected, words = (1, "the settings say") if ground.url is None else (2, "the fleet has agreed on")
    for _ in range(starts):
        with ground.serve() as service:
            put_until_done(service, 2)
            kill_whole(service)
        damage_database(ground.runtime, "overwritten")
        with ground.serve() as service:
            as_expected += default_of(service) == expected
    return {
        "damaged while it ran": rounds,
        **tally(hammer),
        "lost": hammer.lost,
        "that kept the state and could be changed again": right,
        "starts on a damaged file": starts,
        f"that served what {words}": as_expected,
    }


def state_after(runtime: Path, damage: str) -> int:
    """Damage the file; the default version in the one that takes its place."""
    file, store = runtime / DATABASE_FILE, store_of(runtime)
    before = file.stat().st_ino
    damage_database(runtime, damage)

    def found() -> int | None:
        with contextlib.suppress(FileNotFoundError):
            state = store.at_hand() if file.stat().st_ino != before else None
            return state.models["tiny"].default if state is not None else None
        return None

    return eventually(found) or 0


def killed_changes(ground: Ground) -> Figures:
    """The whole service is killed (SIGKILL) while an admin swaps to and fro, then started again."""
    rounds, kept = ground.some(20, 2), 0
    for _ in range(rounds):
        with ground.serve() as service:
            before = default_of(service)
            killer = threading.Timer(random.uniform(0.05, 1), kill_whole, (service,))
            killer.start()
            known = swapped_until(service, before, lambda status: status is None)
            killer.join()
        with ground.serve() as service:
            kept += default_of(service) in known
    return {"kills": rounds, "starts with what was answered last": kept}


def killed_database(ground: Ground) -> Figures:
    """PostgreSQL is killed, as in a crash, while an admin swaps to and fro, and started again."""
    assert ground.cluster is not None
    rounds, kept, refusals = ground.some(20, 2), 0, Counter[int]()
    with ground.serve() as service, Hammer(service.url, SHARPNESS, 2) as hammer:
        for _ in range(rounds):
            before = default_of(service)
            killer = threading.Timer(random.uniform(0.05, 1), ground.cluster.stop, (signal.SIGQUIT,))
            killer.start()
            known = swapped_until(service, before, lambda status: status not in (200, 202))
            killer.join()
            refusals[put_default(service, 1).status_code] += 1
            ground.cluster.start()
            eventually(lambda: sabotage.metric(service, "database_connected") == 1)
            kept += default_of(service) in known
            put_until_done(service, 1)
    return {
        "kills": rounds,
        **tally(hammer),
        "lost": hammer.lost,
        "status of a swap without it": sorted(refusals),
        "times that what was answered last was served and agreed on afterwards": kept,
    }


def full_database_disk(ground: Ground) -> Figures:
    """The disk of PostgreSQL is full, in the middle of changes."""
    statuses, num_changes = Counter[int](), ground.some(300, 30)
    with small_cluster(ground.directory / "small") as cluster:
        full = dataclasses.replace(ground, cluster=cluster, url=cluster.new_database())
        with full.serve() as service, Hammer(service.url, SHARPNESS, 2) as hammer:
            put_until_done(service, 2)
            fill(ground.directory / "small" / "filler")
            write_until_refused(cluster)  # what the database had taken in advance is used up too
            for number in range(num_changes):
                statuses[put_default(service, 1 + number % 2).status_code] += 1
            has_ended = cluster.has_ended()
            (ground.directory / "small" / "filler").unlink()
            if has_ended:
                cluster.start()
            put_until_done(service, 2)
    return {
        "changes meanwhile": num_changes,
        "their status": {str(status): count for status, count in sorted(statuses.items())},
        **tally(hammer),
        "lost": hammer.lost,
        "whether PostgreSQL itself gave up": has_ended,
        "and once there was space": 200,
    }


def write_until_refused(cluster: postgres.Cluster) -> None:
    with contextlib.suppress(psycopg.Error):
        cluster.execute("CREATE TABLE filler (row TEXT)")
        while True:
            cluster.execute("INSERT INTO filler SELECT repeat(md5(random()::text), 30) FROM generate_series(1, 1000)")


@contextlib.contextmanager
def small_cluster(directory: Path) -> Iterator[postgres.Cluster]:
    directory.parent.chmod(0o711)  # PostgreSQL is another user
    with sabotage.small_disk(directory, DISK_MEGABYTES) as disk, postgres.cluster(disk) as cluster:
        yield cluster


def swapped_until(service: RunningService, before: int, is_over: Callable[[int | None], bool]) -> set[int]:
    """Swap to and fro; the versions that may be there then: what was answered last, and what nobody was told."""
    known = {before}
    for version in itertools.cycle((2, 1)):
        status = None
        with contextlib.suppress(httpx.HTTPError):
            status = put_default(service, version).status_code
        known = {version} if status in (200, 202) else known | {version}
        if is_over(status):
            return known
    raise AssertionError


def put_until_done(service: RunningService, version: int) -> None:
    eventually(lambda: put_default(service, version).status_code == 200)
