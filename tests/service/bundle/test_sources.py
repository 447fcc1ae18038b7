"""Bundles from elsewhere: what is listed, fetched, kept and refused. The place is fsspec's memory, in this process."""

import json
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fsspec
import pytest

from portcullis.bundle.files import MANIFEST_FILE, MODEL_FILE
from portcullis.bundle.signatures import Trust
from portcullis.bundle.sources import cached, fetching
from portcullis.bundle.sources.cache import Cache
from portcullis.bundle.sources.cached import CachedSource, Events
from portcullis.bundle.sources.listing import Entry, gather
from portcullis.bundle.sources.moving import push
from portcullis.bundle.sources.opening import Keeping, is_url, source_of
from portcullis.bundle.sources.source import DirectorySource
from portcullis.bundle.sources.tree import Tree
from portcullis.errors import BundleError, SettingsError, SourceAway
from tests import tiny

URL = "memory://models"
FILES = (MODEL_FILE, "report.md", MANIFEST_FILE)


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    """Two versions on this machine, to be taken elsewhere."""
    directory = tmp_path_factory.mktemp("shelf")
    tiny.write(directory, version=1)
    tiny.write(directory, version=2, sharpness=1.1)
    return directory


@pytest.fixture
def memory(shelf):
    """The place elsewhere, with the first version."""
    files = fsspec.filesystem("memory")
    files.store.clear()
    put(shelf, 1)
    yield files
    files.store.clear()


def put(shelf, version):
    path = shelf / "tiny" / str(version)
    Tree(URL).upload(path, "tiny", version, FILES)


class Counted(Tree):
    """A place that counts what it was asked for, and may be away or slow."""

    def __init__(self):
        super().__init__(URL)
        self.downloads, self.is_away, self.waits_for = [], False, None

    def look(self):
        if self.waits_for is not None:
            self.waits_for.wait(60)
        if self.is_away:
            raise ConnectionRefusedError("nobody listens")
        return super().look()

    def download(self, place, file, target, max_bytes):
        if self.is_away:
            raise ConnectionResetError("cut")
        size = super().download(place, file, target, max_bytes)
        self.downloads.append(file)
        return size


class Bench:
    """A source with a cache in a directory of its own."""

    def __init__(self, directory, max_bytes=10**9, max_bundle_bytes=10**9, timeout_seconds=60.0, trust=None):
        self.remote, self.said, self.used = Counted(), [], set()
        self.cache = Cache(directory, URL, max_bytes)
        self.source = CachedSource(
            lambda: self.remote,
            URL,
            self.cache,
            trust or Trust(),
            max_bundle_bytes=max_bundle_bytes,
            timeout_seconds=timeout_seconds,
            in_use=lambda: self.used,
            events=Events(self.said.append, lambda: self.said.append("reached")),
        )


@pytest.fixture
def bench(memory, tmp_path):
    return Bench(tmp_path)


def test_a_bundle_is_fetched_once_and_then_loaded_from_the_cache(bench, shelf):
    assert bench.source.look().versions("tiny") == [1]
    bundle = bench.source.load("tiny", 1)
    assert bundle.read(MODEL_FILE) == (shelf / "tiny" / "1" / MODEL_FILE).read_bytes()
    assert bench.remote.downloads == [MANIFEST_FILE, MODEL_FILE, "report.md"]
    assert bench.source.load("tiny", 1).path == bundle.path
    assert len(bench.remote.downloads) == 3


def test_without_its_source_what_was_fetched_counts_and_is_loaded(bench, shelf, caplog):
    bench.source.load("tiny", 1)
    put(shelf, 2)
    bench.source.look()
    bench.remote.is_away = True
    with pytest.raises(SourceAway, match="memory://models cannot be reached: ConnectionRefusedError"):
        bench.source.look()
    assert bench.source.listing().versions("tiny") == [1]
    assert bench.source.at_hand().versions("tiny") == [1, 2]
    assert bench.source.load("tiny", 1).label == "tiny/1"
    assert "without memory://models what was fetched before counts: tiny/1" in caplog.text
    bench.remote.is_away = False
    assert bench.source.listing().versions("tiny") == [1]  # not asked again at once
    assert bench.source.look() == bench.source.listing()
    assert [word == "reached" for word in bench.said[-3:]] == [False, True, True]


def test_a_source_that_does_not_answer_keeps_nobody(memory, tmp_path):
    bench = Bench(tmp_path, timeout_seconds=0.05)
    bench.remote.waits_for = threading.Event()
    with pytest.raises(SourceAway, match="TimeoutError"):
        bench.source.look()
    with pytest.raises(SourceAway):  # at once: one question at a time
        bench.source.look()
    bench.remote.waits_for.set()


def test_two_who_ask_at_once_are_both_answered(bench):
    bench.remote.waits_for = threading.Event()
    with ThreadPoolExecutor(2) as pool:
        looks = [pool.submit(bench.source.look) for _ in range(2)]
        bench.remote.waits_for.set()
        assert [look.result(60).versions("tiny") for look in looks] == [[1], [1]]
    assert bench.said == ["reached", "reached"]


def test_a_fetch_that_is_cut_short_never_counts(bench, monkeypatch):
    class Killed(BaseException):
        pass

    def die(*args):
        raise Killed

    monkeypatch.setattr(fetching, "_fetch_file", die)
    with pytest.raises(Killed):
        bench.source.load("tiny", 1)
    assert bench.cache.listing().names() == []
    monkeypatch.undo()
    assert bench.source.load("tiny", 1).label == "tiny/1"


def test_what_a_killed_process_left_of_a_fetch_is_removed_by_the_next(bench, tmp_path):
    [root] = tmp_path.iterdir()
    left = root / "drafts" / "tiny@1" / "1"
    left.mkdir(parents=True)
    (left / "half").write_text("…")
    bench.source.load("tiny", 1)
    assert not left.parent.exists()
    assert not (bench.cache.path("tiny", 1) / "half").exists()


@pytest.mark.parametrize("file", [MANIFEST_FILE, MODEL_FILE])
def test_a_file_that_does_not_have_its_digest_is_refused_and_not_kept(bench, memory, file):
    with memory.open(f"/models/tiny/1/{file}", "ab") as stream:
        stream.write(b"x")
    with pytest.raises(BundleError, match="tiny/1 at memory://models is refused"):
        bench.source.load("tiny", 1)
    assert bench.cache.listing().names() == []


def test_rot_in_the_cache_is_mended_from_the_source_and_only_said_without_it(bench):
    path = bench.source.load("tiny", 1).path
    (path / MODEL_FILE).write_bytes(b"rotten")
    bench.remote.is_away = True
    with pytest.raises(BundleError, match="changed or cut short"):
        bench.source.load("tiny", 1)
    bench.remote.is_away = False
    bench.source.look()
    assert bench.source.load("tiny", 1).read(MODEL_FILE) != b"rotten"


def test_a_failed_fetch_is_not_repeated_at_once(bench, memory, monkeypatch):
    clock = [1000.0]
    monkeypatch.setattr(cached.time, "monotonic", lambda: clock[0])
    with memory.open(f"/models/tiny/1/{MODEL_FILE}", "wb") as stream:
        stream.write(b"nonsense")
    for _ in range(5):
        with pytest.raises(BundleError):
            bench.source.load("tiny", 1)
    assert bench.remote.downloads.count(MODEL_FILE) == 1
    clock[0] += cached.FIRST_PAUSE_SECONDS
    for _ in range(5):
        with pytest.raises(BundleError):
            bench.source.load("tiny", 1)
    assert bench.remote.downloads.count(MODEL_FILE) == 2


def test_a_refused_version_is_fetched_anew_once_it_has_changed_at_the_source(bench, shelf, memory):
    bench.source.load("tiny", 1)
    bench.source.look()
    bench.source.renew("tiny", 1)
    assert len(bench.remote.downloads) == 3  # it has not changed
    path = shelf / "tiny" / "1"
    manifest = json.loads((path / MANIFEST_FILE).read_text())
    with memory.open(f"/models/tiny/1/{MANIFEST_FILE}", "wt") as stream:
        stream.write(json.dumps(manifest | {"created": "2030-01-01T00:00:00Z"}))
    bench.source.look()
    bench.source.renew("tiny", 1)
    assert bench.source.load("tiny", 1).manifest.created.year == 2030


# -- limits and hostile places ---------------------------------------------------------------------------------------


def test_names_and_versions_that_are_none_are_passed_over():
    entry = Entry("place", "stamp")
    names, versions = ("tiny", "..", ".hidden", "a/b", "", "a\n"), ("1", "01", "0", "-1", "x", "²", "9" * 30)
    found = [(name, version, entry) for name in names for version in versions]
    assert gather(found, default_name="../etc").entries == {"tiny": {1: entry}}
    assert gather(found, default_name="../etc").default_name is None


@pytest.mark.parametrize(
    "file", ["../../../outside", "/etc/cron.d/x", "a/../../x", ".hidden", MANIFEST_FILE, "a\\..\\b"]
)
def test_a_manifest_cannot_have_anything_written_outside_its_directory(bench, memory, shelf, tmp_path, file):
    manifest = json.loads((shelf / "tiny" / "1" / MANIFEST_FILE).read_text())
    manifest["files"][file] = "0" * 64
    with memory.open(f"/models/tiny/1/{MANIFEST_FILE}", "wt") as stream:
        stream.write(json.dumps(manifest))
    before = {path for path in tmp_path.rglob("*") if "locks" not in path.parts}
    with pytest.raises(BundleError):
        bench.source.load("tiny", 1)
    new = {path for path in tmp_path.rglob("*") if "locks" not in path.parts} - before
    assert {path.name for path in new} <= {"listing.json"}


def test_a_bundle_that_says_it_is_another_is_refused(bench, shelf, memory):
    for file in FILES:
        memory.put_file(str(shelf / "tiny" / "2" / file), f"/models/tiny/7/{file}")
    with pytest.raises(BundleError, match="tiny/2 where tiny/7 is expected"):
        bench.source.load("tiny", 7)


def test_a_bundle_beyond_the_limit_is_refused_while_it_is_fetched(memory, tmp_path):
    with pytest.raises(BundleError, match=r"more than the \d+ bytes that are left of max_bundle_bytes"):
        Bench(tmp_path, max_bundle_bytes=26_000).source.load("tiny", 1)
    assert not list(tmp_path.rglob(MODEL_FILE))


def test_the_cache_keeps_to_its_bytes_and_keeps_what_is_served(memory, shelf, tmp_path):
    put(shelf, 2)
    bench = Bench(tmp_path, max_bytes=1)
    bench.source.load("tiny", 1)
    bench.used = {("tiny", 1)}
    bench.source.load("tiny", 2)
    assert bench.cache.listing().versions("tiny") == [1, 2]
    bench.used = set()
    bench.cache.prune({("tiny", 2)})
    assert bench.cache.listing().versions("tiny") == [2]


def test_what_was_longest_unused_goes_first_that_of_other_urls_too(memory, shelf, tmp_path):
    put(shelf, 2)
    bench = Bench(tmp_path)
    other = Cache(tmp_path, "memory://other", 10**9)
    with other.draft("old", 1) as draft:
        (draft / MANIFEST_FILE).write_text("{}")
        other.put(draft, "old", 1, "")
    bench.source.load("tiny", 1)
    bench.source.load("tiny", 2)
    for age, path in enumerate((bench.cache.path("tiny", 1), bench.cache.path("tiny", 2), other.path("old", 1))):
        os.utime(path, (1000.0 - age, 1000.0 - age))
    one = sum(file.stat().st_size for file in bench.cache.path("tiny", 1).iterdir())
    Cache(tmp_path, URL, one).prune(())
    assert (bench.cache.listing().versions("tiny"), other.listing().names()) == ([1], [])


def fetch_in_a_process(models, directory, barrier, outcome):
    """`models` stands for the place: a directory, which processes share."""
    remote = Tree(f"file://{models}")
    downloads = []
    download = remote.download

    def slow(place, file, target, max_bytes):
        downloads.append(file)
        time.sleep(0.05)
        return download(place, file, target, max_bytes)

    remote.download = slow
    keeping = Cache(Path(directory), URL, 10**9)
    source = CachedSource(lambda: remote, URL, keeping, Trust(), max_bundle_bytes=10**9, timeout_seconds=60)
    barrier.wait(60)
    label = source.load("tiny", 1).label
    outcome.put((label, len(downloads)))


def test_processes_that_want_the_same_version_fetch_it_once(shelf, tmp_path):
    context = multiprocessing.get_context("fork")
    barrier, outcome = context.Barrier(3), context.Queue()
    arguments = (str(shelf), str(tmp_path), barrier, outcome)
    processes = [context.Process(target=fetch_in_a_process, args=arguments) for _ in range(3)]
    for process in processes:
        process.start()
    found = [outcome.get(timeout=120) for _ in processes]
    for process in processes:
        process.join(60)
    assert sorted(found) == [("tiny/1", 0), ("tiny/1", 0), ("tiny/1", 4)]


# -- URLs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("models", "expected"),
    [
        ("models", False),
        ("/srv/models", False),
        ("s3://b/m", True),
        ("models:/pets", True),
        ("C:\\x", False),
        ("./models:/x", False),
    ],
)
def test_a_path_is_told_from_a_url(models, expected):
    assert is_url(models) is expected


@pytest.mark.parametrize(
    "url",
    ["s3://key:secret@bucket/models", "https://user@host/models", "https://host/models?sig=abc", "ftp://host/models"],
)
def test_a_url_with_credentials_or_of_an_unknown_kind_is_refused_without_showing_it(url, tmp_path):
    with pytest.raises(SettingsError) as refused:
        source_of(url, Keeping(tmp_path), Trust())
    assert "secret" not in str(refused.value)
    assert "abc" not in str(refused.value)


WITHOUT = """
import sys
for package in {packages}:
    sys.modules[package] = None
from portcullis.bundle.sources.opening import remote_of
from portcullis.errors import SettingsError
for url in {urls}:
    try:
        remote_of(url)
    except SettingsError as error:
        print(error)
"""


@pytest.mark.parametrize(
    "packages", [("aiohttp", "s3fs", "gcsfs", "adlfs", "huggingface_hub", "mlflow"), ("fsspec", "mlflow")]
)
def test_a_missing_package_is_named_with_its_extra_in_one_line(packages):
    extras = {"s3://b/m": "s3", "gs://b/m": "gcs", "az://c/m": "azure", "https://h/m": "https", "hf://o/r": "hub"}
    extras["models:/pets"] = "mlflow"
    code = WITHOUT.format(packages=packages, urls=list(extras))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    lines = done.stdout.splitlines()
    assert [f"with the extra {extra} " in line for extra, line in zip(extras.values(), lines, strict=True)] == [
        True
    ] * 6


def test_the_files_of_one_bundle_may_lie_at_the_url_itself(memory, shelf, tmp_path):
    memory.store.clear()
    for file in FILES:
        memory.put_file(str(shelf / "tiny" / "2" / file), f"/models/{file}")
    source = Bench(tmp_path).source
    assert source.look().versions("tiny") == [2]
    assert source.load("tiny", 2).label == "tiny/2"


def test_a_default_name_comes_with_the_bundles_and_is_known_without_the_source(bench, memory):
    memory.pipe_file("/models/default", b"tiny\n")
    assert bench.source.look().default_name == "tiny"
    assert bench.source.at_hand().default_name == "tiny"


def test_a_directory_is_a_source_that_needs_no_cache(shelf, tmp_path):
    source = source_of(str(shelf), Keeping(tmp_path / "cache"), Trust())
    assert isinstance(source, DirectorySource)
    assert not (tmp_path / "cache").exists()
    assert source.look() == source.listing() == source.at_hand()
    assert source.load("tiny", 2).label == "tiny/2"
    with pytest.raises(BundleError, match="no bundle tiny/3 lies in the models directory"):
        source.load("tiny", 3)


def test_a_version_is_pushed_once_and_never_over_another(memory, shelf, tmp_path, monkeypatch):
    monkeypatch.setattr("portcullis.bundle.sources.moving.remote_of", Tree)
    assert push(shelf / "tiny" / "2", URL) == ("tiny/2", True)
    assert push(shelf / "tiny" / "2", URL) == ("tiny/2", False)
    tiny.write(tmp_path, version=2, sharpness=1.3)
    with pytest.raises(BundleError, match="another bundle tiny/2 is there already"):
        push(tmp_path / "tiny" / "2", URL)
