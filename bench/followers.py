"""Instances that only follow: the product's own links and counts, a thread each, with nothing behind them.

Part of `python -m bench.many`. A worker that follows at once is a trigger in the instance's file, which notes when.
"""

import json
import logging
import shutil
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from pathlib import Path

import numpy as np
import psycopg

from bench import drift_streams as streams
from portcullis.drift.evidence import Events
from portcullis.drift.fleet import FleetEvidence, Said
from portcullis.drift.instances import InstanceReport
from portcullis.drift.tally import Tally, watched
from portcullis.processes.stores import open_local
from portcullis.store import fleet_link
from portcullis.store.drift_counts import Told
from portcullis.store.fleet_link import FleetLink
from portcullis.store.followers import Followed, Followers
from portcullis.store.postgresql import Postgres
from portcullis.store.sqlite import Sqlite
from portcullis.store.state import DesiredState, ServedModel, StateStore

MODEL = "tiny"
STATE = DesiredState(revision=1, configured_gate="accept95", models={MODEL: ServedModel(default=1, gate="accept95")})
STACK_BYTES = 512 * 1024
LOOK_SECONDS = 1.0
"""A link looks twenty times a second whether its workers have moved; here they move with the state alone."""
IMAGES_A_SECOND = 100
BODY = InstanceReport(
    version=1,
    score="fitted",
    gate="accept95",
    num_images=2000,
    num_images_since_reset=123456,
    evidence_log10=0.123456789,
    alarm=False,
    num_alarms_since_reset=0,
    psi=0.00123456789,
    reject_ratio=0.0495,
    unsure_ratio=0.0,
    p_value_shares=(0.0512,) * 20,
).model_dump_json()
"""What an instance says of itself, of the usual length."""
FOLLOWING = """
CREATE TABLE noted (revision INTEGER, at REAL);
CREATE TRIGGER follow AFTER UPDATE ON state BEGIN
    UPDATE workers SET followed = json_object('revision', NEW.revision);
    INSERT INTO noted VALUES (NEW.revision, (julianday('now') - 2440587.5) * 86400.0);
END;
"""


@dataclass(frozen=True)
class Share:
    """The instances of one process."""

    directory: Path
    url: str
    names: tuple[str, ...]

    def file(self, name: str) -> Path:
        return self.directory / f"{name}.db"


def write_template(directory: Path) -> Path:
    """The file of an instance that has followed the first state."""
    database = Sqlite(directory / "template.db")
    open_local(database)
    StateStore(database).write(STATE)
    Followers(database, "").confirm(0, Followed(revision=STATE.revision))
    with database.line() as line:
        line._connection.executescript(FOLLOWING + "PRAGMA wal_checkpoint(TRUNCATE);")
    database.close()
    return database.file


def follow(share: Share, stopping: Event) -> None:
    """Run the links of one process until told to stop."""
    logging.disable()  # a thousand of them have the same to say
    psycopg.connection._WAIT_INTERVAL = LOOK_SECONDS  # it looks for signals ten times a second
    psycopg.Connection.wait.__defaults__ = (LOOK_SECONDS, None)
    fleet_link.LOOK_SECONDS = LOOK_SECONDS
    threading.stack_size(STACK_BYTES)
    over, fleet = threading.Event(), Postgres(share.url)
    counting = _Counting(share.names, fleet.clock)
    threads = [threading.Thread(target=counting.run, args=(over,))]
    for name in share.names:
        shutil.copy(share.directory / "template.db", share.file(name))
        link = FleetLink(Sqlite(share.file(name)), fleet, name, errand=counting.evidence[name].visit)
        threads.append(threading.Thread(target=link.run, args=(over,)))
    for thread in threads:
        thread.start()
    stopping.wait()
    over.set()
    for thread in threads:
        thread.join()


class _Counting:
    """What the drift threads of all these instances would say each second; counted once for all of one process, since
    a thousand instances have a thousand machines to count on."""

    def __init__(self, names: Sequence[str], clock: str) -> None:
        events: Events = streams.new_detector(np.arange(1000.0), 1e6).events
        self.evidence = {name: FleetEvidence(name, clock, 1e6) for name in names}
        self._tallies = {name: Tally(events) for name in names}
        self._random, self._events = np.random.default_rng(0), events
        self._watched, self._bounds = watched(MODEL, 1, None, events), json.dumps(events.bounds.tolist())

    def run(self, over: threading.Event) -> None:
        while not over.wait(1.0):
            new = self._events.counts(self._random.random(IMAGES_A_SECOND, np.float32))
            for name, tally in self._tallies.items():
                if tally.series in self.evidence[name].forgotten():
                    tally.begin_anew()
                tally.counts = tally.counts + new
                self.evidence[name].say([Said(self._told(tally), tally.is_new)])

    def _told(self, tally: Tally) -> Told:
        counts = json.dumps(tally.counts.tolist())
        return Told(tally.series, MODEL, self._watched, self._bounds, tally.num_images, counts, BODY)


def noted(file: Path, revision: int) -> float | None:
    """When an instance had taken up a revision, or a later one, in seconds since 1970."""
    rows = Sqlite(file).read("SELECT MIN(at) AS at FROM noted WHERE revision >= :revision", revision=revision)
    at: float | None = rows[0]["at"]
    return at
