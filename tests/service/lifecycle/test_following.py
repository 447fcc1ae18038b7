"""Gates first: engines are opened beside them. One worker's registry and changes in this process, real bundles."""

import asyncio
import threading

import pytest
from prometheus_client import CollectorRegistry

from portcullis.answering.admission import Limits
from portcullis.answering.engine_here import opener
from portcullis.answering.pipeline import Pipeline
from portcullis.answering.preparing import PreparingPool
from portcullis.answering.served_engine import Load
from portcullis.bundle import gate
from portcullis.bundle.providers import EngineOptions
from portcullis.bundle.sources.source import DirectorySource
from portcullis.drift.rings import RingWriter
from portcullis.errors import BundleError, Conflict, DatabaseAway
from portcullis.lifecycle import following, opening
from portcullis.lifecycle.changes import Changes
from portcullis.lifecycle.first_state import plan
from portcullis.lifecycle.registry import Registry
from portcullis.lifecycle.shadowing import Shadowing
from portcullis.store.followers import Followed, Followers, Look
from portcullis.store.state import StateStore
from portcullis.telemetry.instruments import Metrics
from tests import tiny
from tests.hammer import PATIENCE_SECONDS

HERE = "here"
CALIBRATION = tiny.manifest().calibration

CPU = EngineOptions(("cpu",))


class SlowDisk:
    """Opens bundles; some only when they may."""

    def __init__(self, validate):
        self._validate = validate
        self._held = {}
        self.begun = []

    def hold(self, version):
        self._held[version] = threading.Event()

    def release(self):
        for event in self._held.values():
            event.set()

    def __call__(self, source, key, open_engine):
        name, version = key
        self.begun.append(f"{name}/{version}")
        if version in self._held:
            assert self._held[version].wait(PATIENCE_SECONDS)
        return self._validate(source, key, open_engine)


@pytest.fixture
def disk(monkeypatch):
    disk = SlowDisk(opening.validate)
    monkeypatch.setattr(opening, "validate", disk)
    yield disk
    disk.release()


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    directory = tmp_path_factory.mktemp("following")
    for version in (1, 2, 3):
        tiny.write(directory, version=version)
    tiny.write(directory, name="other")
    return directory


class Office:
    """A worker without its processes: the registry, the changes and the files that they share."""

    def __init__(self, models, runtime, database):
        self.store, self.followers = StateStore(database), Followers(database, HERE)
        metrics = Metrics(CollectorRegistry())
        load = Load(Limits(max_batch=4, queue_capacity=64, overload_wait_seconds=1), 1_000_000, 65536)
        pool, ring = PreparingPool(1), RingWriter(runtime / "scores-0.ring", capacity=100)
        self.registry = Registry(
            DirectorySource(models),
            CPU,
            opener(CPU),
            lambda bundle, engine: Pipeline(bundle, engine, load, pool, metrics, ring),
            Shadowing(runtime, 0, metrics, 1_000_000),
            metrics,
            confirm=lambda followed: self.followers.confirm(0, followed),
        )
        self.store.write(plan(DirectorySource(models), ("tiny@1", "other"), "accept95", None))
        self.changes = Changes(DirectorySource(models), "accept95", self.registry, self.store, self.followers, metrics)

    def threshold(self, name="tiny"):
        return self.registry.resolve(name)[1].threshold

    def default(self):
        return self.registry.find("tiny").default


@pytest.fixture
async def office(directory, tmp_path, local, disk):
    office = Office(directory, tmp_path, local)
    await office.registry.reconcile(office.store.read())
    yield office
    disk.release()
    await office.registry.close()


def threshold_of(point):
    return gate.operating_point(point, CALIBRATION).threshold


async def begun(disk, bundle):
    """Until a bundle is being opened."""
    while bundle not in disk.begun:
        await asyncio.sleep(0)


async def test_a_stricter_gate_is_in_force_while_an_engine_is_being_opened(office, disk):
    """In the worker that opens it for an admin, whose call waits, and for the same name and another."""
    disk.hold(2)
    swap = asyncio.create_task(office.changes.set_default("admin", "tiny", 2, None))
    await begun(disk, "tiny/2")
    assert await office.changes.change_gate("admin", "tiny", "accept80") == {}
    assert await office.changes.change_gate("admin", "other", "accept90") == {}
    assert (office.threshold(), office.threshold("other")) == (threshold_of("accept80"), threshold_of("accept90"))
    assert (office.default(), swap.done()) == (1, False)
    disk.release()
    assert await swap == {}
    assert (office.default(), office.threshold()) == (2, threshold_of("accept80"))


async def test_a_worker_that_follows_changes_its_gate_before_its_engines(office, disk):
    """As in a worker that sees what another was told: it must open an engine of its own."""
    disk.hold(2)
    office.store.change(lambda state: _with(state, default=2), "admin", "default")
    office.registry.follow(office.store.read())
    office.store.change(lambda state: _with(state, gate="accept80"), "admin", "gate")
    office.registry.follow(office.store.read())
    assert (office.default(), office.threshold()) == (1, threshold_of("accept80"))
    await office.registry._report.wait()
    revision = office.store.read().revision
    assert office.followers.behind(revision, "tiny", only_gate=True) == {}
    assert office.followers.behind(revision, "tiny") == {(HERE, 0): "opening version 2"}
    assert office.followers.behind(revision, "other") == {}
    disk.release()
    await office.registry.reconcile(office.store.read())
    assert office.followers.behind(revision) == {}
    assert office.default() == 2


def _with(state, **fields):
    return state.with_model("tiny", state.models["tiny"].model_copy(update=fields))


async def test_one_engine_does_not_wait_for_another(office, disk):
    disk.hold(2)
    slow = asyncio.create_task(office.changes.load("admin", "tiny", 2))
    await begun(disk, "tiny/2")
    assert await office.changes.load("admin", "tiny", 3) == {}
    assert sorted(office.registry.find("tiny").pipelines) == [1, 3]
    disk.release()
    assert await slow == {}
    assert sorted(office.registry.find("tiny").pipelines) == [1, 2, 3]


async def test_who_has_not_followed_is_named_with_the_reason(office, monkeypatch):
    monkeypatch.setattr(following, "FOLLOW_SECONDS", 0.0)
    office.followers.confirm(1, Followed(revision=0))
    assert (await office.changes.change_gate("admin", "tiny", "accept80"))[
        HERE, 1
    ] == "it has not taken up the change yet"
    problem = Followed(revision=99, behind={"tiny": "bundle tiny/2: model.onnx has digest …"})
    office.followers.confirm(1, problem)
    assert (await office.changes.load("admin", "tiny", 2))[HERE, 1] == problem.behind["tiny"]
    assert (HERE, 1) not in await office.changes.change_gate("admin", "tiny", "accept90")


async def test_an_engine_that_is_no_longer_wanted_when_it_is_open_is_let_go(office, disk):
    disk.hold(2)
    office.store.change(lambda state: _with(state, default=2), "admin", "default")
    office.registry.follow(office.store.read())
    office.store.change(lambda state: _with(state, default=1), "admin", "default")
    disk.release()
    await office.registry.reconcile(office.store.read())
    assert (office.default(), office.registry._opening._tasks) == (1, {})


async def test_a_problem_is_told_once_and_stands_while_it_is_tried_again(office, disk, caplog):
    office.store.change(lambda state: _with(state, loaded=(9,)), "admin", "load")
    await office.registry.reconcile(office.store.read())
    assert "no bundle tiny/9" in office.registry.problems["tiny"]
    for _ in range(3):
        office.registry.retry()
        assert "no bundle tiny/9" in office.registry.problems["tiny"]
        await office.registry._opening.wait()
    assert disk.begun.count("tiny/9") == 4
    assert caplog.text.count("cannot serve tiny as wanted") == 1


async def test_whatever_goes_wrong_in_opening_is_that_versions_problem(office, monkeypatch):
    def out_of_memory(source, key, open_engine):
        raise MemoryError

    monkeypatch.setattr(opening, "validate", out_of_memory)
    with pytest.raises(BundleError, match="tiny/2 cannot be opened: MemoryError"):
        await office.changes.set_default("admin", "tiny", 2, None)
    office.store.change(lambda state: _with(state, default=2), "admin", "default")
    await office.registry.reconcile(office.store.read())
    assert (office.default(), list(office.registry.problems)) == (1, ["tiny"])


async def test_a_change_that_no_longer_fits_is_refused_after_the_check_too(office, disk):
    """The engine is being checked while another admin unloads what it would have been compared with."""
    disk.hold(2)
    shadow = asyncio.create_task(office.changes.start_shadow("admin", "tiny", 2, 0.5))
    await begun(disk, "tiny/2")
    office.store.change(lambda state: _with(state, default=2), "another", "default")
    disk.release()
    with pytest.raises(Conflict, match="answers already"):
        await shadow


async def test_of_two_admins_who_swap_at_once_one_wins_and_the_other_is_told(office, disk):
    """An engine is being opened for one of them, while the other is done."""
    disk.hold(2)
    slow = asyncio.create_task(office.changes.set_default("alice", "tiny", 2, None))
    await begun(disk, "tiny/2")
    assert await office.changes.set_default("bob", "tiny", 3, None) == {}
    disk.release()
    with pytest.raises(Conflict, match="default of tiny was changed meanwhile from 1 to 3 by bob"):
        await slow
    assert office.default() == 3


async def test_a_database_that_goes_while_followers_are_waited_for_leaves_the_change_made(office, monkeypatch):
    def gone(*_):
        raise DatabaseAway("gone")

    monkeypatch.setattr(Look, "behind", gone)
    behind = await office.changes.change_gate("admin", "tiny", "accept80")
    assert [(place.worker, reason) for place, reason in behind.items()] == [
        (None, "the database has gone since the change was made")
    ]
    assert office.threshold() == threshold_of("accept80")


async def test_what_others_manage_is_changed_by_nobody_here(office):
    office.changes._managed_in = "file:served.toml"
    for call in (office.changes.change_gate("a", "tiny", "accept80"), office.changes.load("a", "tiny", 2)):
        with pytest.raises(Conflict, match=r"managed in file:served\.toml"):
            await call
    assert office.store.read().revision == 0
