"""One worker's registry: real bundles and engines in this process."""

import asyncio
import gc
import os
import threading
import types
from pathlib import Path

import numpy as np
import pytest
from prometheus_client import CollectorRegistry

from portcullis.answering.admission import Limits
from portcullis.answering.engine_here import opener
from portcullis.answering.pipeline import Pipeline
from portcullis.answering.preparing import PreparingPool
from portcullis.answering.served_engine import Load
from portcullis.bundle.engine import start
from portcullis.bundle.providers import EngineOptions
from portcullis.bundle.sources.source import DirectorySource
from portcullis.drift.rings import RingWriter
from portcullis.errors import BundleError, UnknownModel, UnknownVersion
from portcullis.lifecycle.registry import Registry
from portcullis.lifecycle.shadowing import Shadowing
from portcullis.store.followers import Followed
from portcullis.store.state import DesiredState, ServedModel, Shadow
from portcullis.telemetry.instruments import Metrics
from tests import tiny
from tests.service.pictures import RED

SHARPNESS = {1: 1.0, 2: 1.5, 3: 0.7}
MEGABYTE = 1024 * 1024

CPU = EngineOptions(("cpu",))


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    directory = tmp_path_factory.mktemp("registry")
    for version, sharpness in SHARPNESS.items():
        tiny.write(directory, version=version, sharpness=sharpness)
    return directory


class Desk:
    """A registry with everything that it needs."""

    def __init__(self, models, runtime):
        metrics = Metrics(CollectorRegistry())
        load = Load(Limits(max_batch=4, queue_capacity=64, overload_wait_seconds=1), 1_000_000, 65536)
        pool, ring = PreparingPool(1), RingWriter(runtime / "scores-0.ring", capacity=100)
        self.shadowing = Shadowing(runtime, 0, metrics, 1_000_000)
        self.confirmed: list[Followed] = []
        self.registry = Registry(
            DirectorySource(models),
            CPU,
            opener(CPU),
            lambda bundle, engine: Pipeline(bundle, engine, load, pool, metrics, ring),
            self.shadowing,
            metrics,
            confirm=self.confirmed.append,
        )
        self._revision = 0

    async def serve(self, **models):
        await self.registry.reconcile(self.wish(**models))

    def wish(self, gate="accept95", **models):
        """The next state."""
        self._revision += 1
        wanted = {name: ServedModel(gate=gate, **fields) for name, fields in models.items()}
        return DesiredState(revision=self._revision, configured_gate="accept95", models=wanted)

    def threshold(self, name="tiny"):
        return self.registry.resolve(name)[1].threshold

    async def ask(self, version=None):
        pipeline, gate = self.registry.resolve("tiny", version)
        with pipeline.in_use():
            prediction = await pipeline.predict(RED, gate)
        return pipeline.manifest.version, prediction.score


@pytest.fixture
async def desk(directory, tmp_path):
    desk = Desk(directory, tmp_path)
    yield desk
    await desk.registry.close()


def expected_score(version):
    red = np.full((1, tiny.SIZE, tiny.SIZE, 3), (230, 20, 20), np.uint8)
    return pytest.approx(float(tiny.answers(red, SHARPNESS[version])[1][0]), abs=1e-5)


async def test_a_swap_serves_the_new_version_and_frees_the_old_engine(desk):
    await desk.serve(tiny={"default": 1})
    old = desk.registry.resolve("tiny")[0]
    assert await desk.ask() == (1, expected_score(1))
    await desk.serve(tiny={"default": 2})
    assert await desk.ask() == (2, expected_score(2))
    with pytest.raises(UnknownVersion, match="there are: 2"):
        desk.registry.resolve("tiny", 1)
    await asyncio.gather(*desk.registry._retiring)
    assert old.engine._engine._batches is None
    assert desk.confirmed[-1] == Followed(revision=2)


async def test_who_chose_a_version_before_it_left_gets_its_answer_from_it(desk):
    await desk.serve(tiny={"default": 1})
    pipeline, gate = desk.registry.resolve("tiny")
    with pipeline.in_use():
        await desk.serve(tiny={"default": 2})
        await asyncio.sleep(0)
        assert (await pipeline.predict(RED, gate)).score == expected_score(1)
        assert pipeline.engine._engine._batches is not None
    await asyncio.gather(*desk.registry._retiring)
    assert pipeline.engine._engine._batches is None


async def test_a_state_that_cannot_be_keeps_what_is_served_and_is_tried_again(desk, directory, tmp_path):
    await desk.serve(tiny={"default": 1}, other={"default": 1})
    assert desk.registry.problems == {"other": "no bundle other/1 lies in the models directory"}
    assert desk.confirmed[-1] == Followed(revision=1, behind=desk.registry.problems)
    assert await desk.ask() == (1, expected_score(1))
    with pytest.raises(UnknownModel, match="there are: tiny"):
        desk.registry.find("other")
    tiny.write(directory, name="other")
    await desk.serve(tiny={"default": 1}, other={"default": 1})
    assert (desk.registry.problems, desk.confirmed[-1]) == ({}, Followed(revision=2))


async def test_an_older_state_never_undoes_a_newer_one(desk):
    await desk.serve(tiny={"default": 1})
    await desk.serve(tiny={"default": 2})
    old = DesiredState(revision=1, configured_gate="accept95", models={"tiny": ServedModel(default=1, gate="accept95")})
    await desk.registry.reconcile(old)
    assert desk.registry.find("tiny").default == 2


async def test_the_engine_that_was_checked_is_the_one_that_is_swapped_in(desk, monkeypatch):
    await desk.serve(tiny={"default": 1})
    async with desk.registry.checked("tiny", 2):
        monkeypatch.setattr("portcullis.lifecycle.opening.validate", None)  # it could not be opened again
        await desk.serve(tiny={"default": 2})
    assert await desk.ask() == (2, expected_score(2))


async def test_a_checked_engine_that_is_not_wanted_is_freed(desk, monkeypatch):
    engines = []
    monkeypatch.setattr("portcullis.answering.engine_here.start", lambda *a: engines.append(start(*a)) or engines[-1])
    await desk.serve(tiny={"default": 1})
    async with desk.registry.checked("tiny", 3):
        assert engines[-1]._batches is not None
    await asyncio.gather(*desk.registry._opening._freeing)
    assert [engine._batches is None for engine in engines] == [False, True]


async def test_a_bundle_of_another_name_is_not_served_under_this_one(desk, directory):
    (directory / "alias").mkdir()
    (directory / "alias" / "1").symlink_to(directory / "tiny" / "1")
    with pytest.raises(BundleError, match="tiny/1 lies where alias/1 is expected"):
        async with desk.registry.checked("alias", 1):
            pass


async def test_a_shadow_that_fails_or_lags_harms_no_answer(desk, monkeypatch):
    await desk.serve(tiny={"default": 1, "shadow": Shadow(version=2, share=1.0, session=1)})
    candidate = desk.registry.find("tiny").pipelines[2]
    release, ended = threading.Event(), threading.Event()

    def hang(images):
        release.wait(120)
        ended.set()
        raise RuntimeError("the candidate is broken")

    monkeypatch.setattr(candidate.engine._engine, "run", hang)
    answers = [await desk.ask() for _ in range(20)]
    assert not ended.is_set()  # all were answered while it hung
    assert answers == [(1, expected_score(1))] * 20
    release.set()
    comparison = desk.shadowing._comparisons["tiny"]
    await asyncio.gather(*comparison._pending)
    tally = desk.registry.shadow_tally("tiny")
    assert (tally.num_failed, tally.num_dropped, tally.num_images) == (1, 19, 0)


async def test_a_candidate_of_another_size_sees_files_but_no_pixels(desk, directory, caplog):
    """Pixels of `/v2` have the size of the version that answers; scaled up, they would be another image."""
    tiny.write(directory, version=8, size=2 * tiny.SIZE)
    await desk.serve(tiny={"default": 1, "shadow": Shadow(version=8, share=1.0, session=1)})
    pipeline, gate = desk.registry.resolve("tiny")
    red = np.full((tiny.SIZE, tiny.SIZE, 3), (230, 20, 20), np.uint8)
    await pipeline.run_batch([red], gate)
    await asyncio.gather(*desk.shadowing._comparisons["tiny"]._pending)
    tally = desk.registry.shadow_tally("tiny")
    assert (tally.num_unfit, tally.num_failed, tally.num_images, caplog.text) == (1, 0, 0, "")
    await desk.ask()  # the same as a file, which each version decodes to its own size
    await asyncio.gather(*desk.shadowing._comparisons["tiny"]._pending)
    tally = desk.registry.shadow_tally("tiny")
    assert (tally.num_unfit, tally.num_images, tally.num_same_label) == (1, 1, 1)


async def test_a_new_session_of_the_shadow_counts_from_nothing_and_a_restart_goes_on(desk, directory, tmp_path):
    async def compare(target, session):
        await target.serve(tiny={"default": 1, "shadow": Shadow(version=2, share=1.0, session=session)})
        target.shadowing._comparisons["tiny"]._rest_until = 0.0  # it may be the one of the call before
        await target.ask()
        await asyncio.gather(*target.shadowing._comparisons["tiny"]._pending)
        await target.shadowing.publish()
        return target.registry.shadow_tally("tiny").num_images

    assert await compare(desk, 1) == 1
    assert await compare(desk, 1) == 2
    assert await compare(desk, 2) == 1
    again = Desk(directory, tmp_path)
    assert await compare(again, 2) == 2
    await again.registry.close()


async def test_a_shadow_takes_a_tenth_of_the_time_at_the_most(desk, monkeypatch):
    """On a clock of its own: a live image comes every second, the candidate takes ten for each."""
    clock = types.SimpleNamespace(now=0.0, monotonic=lambda: clock.now)
    monkeypatch.setattr("portcullis.lifecycle.shadowing.time", clock)
    await desk.serve(tiny={"default": 1, "shadow": Shadow(version=2, share=1.0, session=1)})
    candidate = desk.registry.find("tiny").pipelines[2].engine._engine
    run = candidate.run

    def slowly(images):
        clock.now += 10
        return run(images)

    monkeypatch.setattr(candidate, "run", slowly)
    for _ in range(600):
        await desk.ask()
        await asyncio.gather(*desk.shadowing._comparisons["tiny"]._pending)
        clock.now += 1
    num_images = desk.registry.shadow_tally("tiny").num_images
    assert num_images >= 6
    assert 10 * num_images <= 0.1 * clock.now + 10  # the first comes at once


def resident_bytes():
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.slow
async def test_a_thousand_swaps_leak_neither_memory_nor_threads_nor_files(desk):
    async def swap(times):
        for number in range(times):
            version = 1 + number % 2
            await desk.serve(tiny={"default": version})
            assert await desk.ask() == (version, expected_score(version))
        await asyncio.gather(*desk.registry._retiring)

    await swap(100)  # until the allocator has seen everything
    memory, threads, files = resident_bytes(), threading.active_count(), len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    await swap(900)
    assert threading.active_count() <= threads + 8  # the event loop has a pool of its own, which grows as it likes
    assert len(os.listdir("/proc/self/fd")) <= files  # noqa: PTH208
    assert resident_bytes() - memory < 10 * MEGABYTE  # 900 engines that stayed would be more than 100
