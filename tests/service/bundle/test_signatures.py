"""Signed bundles: who may be loaded where a key is trusted, and what a stranger with write access can do."""

import shutil
import stat

import pytest
from prometheus_client import CollectorRegistry

from portcullis.answering.device.graphs import Graphs
from portcullis.bundle.files import MANIFEST_FILE, MODEL_FILE, SIGNATURE_FILE
from portcullis.bundle.providers import EngineOptions
from portcullis.bundle.signatures import Trust, make_key, sign
from portcullis.errors import BundleError, PortcullisError, SettingsError
from portcullis.processes.probe import report
from portcullis.telemetry.instruments import Metrics
from tests import tiny


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """Two keys: private files and public halves."""
    directory = tmp_path_factory.mktemp("keys")
    return {name: (directory / name, make_key(directory / name)) for name in ("ours", "theirs")}


@pytest.fixture
def path(tmp_path):
    return tiny.write(tmp_path).path


def test_a_signed_bundle_loads_and_an_unsigned_one_does_not(path, keys):
    private, public = keys["ours"]
    with pytest.raises(BundleError, match="not signed, and a trusted key is set"):
        Trust([public]).load(path)
    assert sign(path, private) == public
    assert Trust([public]).load(path).label == "tiny/1"
    assert Trust().load(path).label == "tiny/1"


def test_a_bundle_that_a_stranger_signed_is_refused(path, keys):
    sign(path, keys["theirs"][0])
    with pytest.raises(BundleError, match="not signed by a trusted key"):
        Trust([keys["ours"][1]]).load(path)


def test_any_of_several_trusted_keys_will_do_and_signatures_add_up(path, keys):
    sign(path, keys["theirs"][0])
    sign(path, keys["ours"][0])
    sign(path, keys["ours"][0])
    assert len((path / SIGNATURE_FILE).read_text().splitlines()) == 2
    for trusted in (["ours"], ["theirs"], ["ours", "theirs"]):
        Trust([keys[name][1] for name in trusted]).load(path)


def test_a_changed_manifest_or_file_is_refused_though_the_bundle_was_signed(path, keys):
    sign(path, keys["ours"][0])
    trust = Trust([keys["ours"][1]])
    manifest = (path / MANIFEST_FILE).read_bytes()
    (path / MANIFEST_FILE).write_bytes(manifest.replace(b'"red"', b'"rot"'))
    with pytest.raises(BundleError, match="not signed by a trusted key"):
        trust.load(path)
    (path / MANIFEST_FILE).write_bytes(manifest)
    (path / MODEL_FILE).write_bytes((path / MODEL_FILE).read_bytes() + b"x")
    with pytest.raises(BundleError, match="digest"):
        trust.load(path)


def test_the_signature_of_one_bundle_does_not_fit_another(path, keys, tmp_path):
    other = tiny.write(tmp_path, version=2).path
    sign(path, keys["ours"][0])
    shutil.copy(path / SIGNATURE_FILE, other / SIGNATURE_FILE)
    with pytest.raises(BundleError, match="not signed by a trusted key"):
        Trust([keys["ours"][1]]).load(other)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"ed25519 AAAA BBBB\n", b"ed25519 only-one\n", b"x" * 10**6])
def test_a_signature_that_is_none_signs_nothing(path, keys, content):
    (path / SIGNATURE_FILE).write_bytes(content)
    with pytest.raises(BundleError, match="not signed"):
        Trust([keys["ours"][1]]).load(path)


@pytest.mark.parametrize("key", ["", "ed25519:", "ed25519:AAAA", "rsa:AAAA", "ed25519:" + "!" * 44])
def test_a_trusted_key_that_is_none_stops_the_start(key):
    with pytest.raises(SettingsError, match="expected a trusted key"):
        Trust([key])


def test_without_cryptography_a_trusted_key_names_the_extra(keys, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "cryptography", None)
    Trust()
    with pytest.raises(SettingsError, match="extra signing"):
        Trust([keys["ours"][1]])


def test_a_private_key_is_its_owners_alone_and_never_overwritten(tmp_path):
    file = tmp_path / "release.pem"
    make_key(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with pytest.raises(PortcullisError, match="File exists"):
        make_key(file)


def test_a_broken_bundle_is_not_signed(path, keys):
    (path / MODEL_FILE).write_bytes(b"cut")
    with pytest.raises(BundleError):
        sign(path, keys["ours"][0])
    assert not (path / SIGNATURE_FILE).exists()


async def test_an_engine_process_and_a_trial_of_a_device_refuse_what_is_not_signed(path, keys):
    trust, options = Trust([keys["ours"][1]]), EngineOptions(("cpu",))
    graphs = Graphs(options, Metrics(CollectorRegistry()), 60.0, trust)
    with pytest.raises(BundleError, match="not signed"):
        await graphs.open(path)
    assert "not signed" in report(options, [path], trust)["error"]
    sign(path, keys["ours"][0])
    graph = await graphs.open(path)
    assert graph.bundle.label == "tiny/1"
    graphs.release(graph)
    assert report(options, [path], trust)["provider"] == "cpu"
