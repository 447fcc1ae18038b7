import json
import os

import pytest

from service import bundle as bundles
from service.bundle import load_bundle, write_bundle
from service.errors import BundleError
from tests import tiny


@pytest.fixture
def written(tmp_path):
    return tiny.write(tmp_path).path


def edit(path, **changes):
    manifest = json.loads((path / "manifest.json").read_text())
    manifest.update(changes)
    (path / "manifest.json").write_text(json.dumps(manifest))


def test_what_is_written_is_what_is_loaded(written):
    loaded = load_bundle(written)
    assert loaded.manifest.files.keys() == {"model.onnx", "report.md"}
    assert loaded.manifest == bundles.Manifest.model_validate_json((written / "manifest.json").read_bytes())
    assert loaded.manifest.labels == tiny.LABELS
    assert loaded.read("model.onnx") == tiny.graph()


def test_one_flipped_bit_is_refused(written):
    model = bytearray((written / "model.onnx").read_bytes())
    model[100] ^= 1
    (written / "model.onnx").write_bytes(model)
    with pytest.raises(BundleError, match=r"tiny/1: model\.onnx has digest"):
        load_bundle(written)


def test_a_file_changed_after_loading_is_refused_at_the_read(written):
    loaded = load_bundle(written)
    (written / "model.onnx").write_bytes(b"another graph")
    with pytest.raises(BundleError, match="changed or cut short"):
        loaded.read("model.onnx")


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"colour": "blue"}, "colour: Extra inputs"),
        ({"format_version": 2}, "format_version"),
        ({"labels": ["one"]}, "labels"),
        ({"labels": ["a", "a", "b"]}, "labels must differ"),
        ({"class_mix": [1.0]}, "class_mix has 1 shares for 3 labels"),
        ({"temperature": 0}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"name": "../evil"}, "name"),
        ({"files": {"../model.onnx": "0" * 64}}, "files"),
        ({"files": {}}, r"lists no model\.onnx"),
        ({"calibration": {"num_images": 2, "scores": [2.0, 1.0]}}, "sorted"),
        ({"calibration": {"num_images": 3, "scores": [1.0, 2.0]}}, "expected 3 calibration scores, got 2"),
        ({"image": {"height": 32, "width": 32, "resize_shorter_side": 16}}, "less than the crop"),
    ],
)
def test_a_manifest_that_is_not_understood_is_refused_by_name(written, changes, named):
    edit(written, **changes)
    with pytest.raises(BundleError, match=named):
        load_bundle(written)


@pytest.mark.parametrize("file", ["manifest.json", "model.onnx"])
def test_a_missing_file_is_named(written, file):
    (written / file).unlink()
    with pytest.raises(BundleError, match=f"cannot read {file}: No such file"):
        load_bundle(written)


def test_no_message_leaks_a_path_of_this_machine(written):
    (written / "model.onnx").unlink()
    with pytest.raises(BundleError) as caught:
        load_bundle(written)
    assert str(written.parent) not in str(caught.value)


def test_a_version_is_immutable(tmp_path):
    tiny.write(tmp_path)
    with pytest.raises(BundleError, match="immutable"):
        tiny.write(tmp_path)


def test_a_bundle_that_fails_its_check_is_never_written(tmp_path):
    def refuse(bundle):
        raise BundleError("cannot be served")

    with pytest.raises(BundleError, match="cannot be served"):
        write_bundle(tmp_path, tiny.manifest(), {"model.onnx": tiny.graph()}, check=refuse)
    assert list((tmp_path / "tiny").iterdir()) == []


def test_a_disk_that_fills_up_leaves_nothing_behind(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(BundleError, match="cannot write bundle tiny/1: No space left on device"):
        tiny.write(tmp_path)
    assert list((tmp_path / "tiny").iterdir()) == []


def test_names_and_versions_come_in_order_and_drafts_are_ignored(tmp_path):
    for version in (10, 9, 1):
        tiny.write(tmp_path, version=version)
    tiny.write(tmp_path, name="other")
    (tmp_path / "tiny" / ".11-draft").mkdir()
    (tmp_path / "tiny" / "12").mkdir()
    (tmp_path / "README.md").write_text("models")
    assert bundles.versions(tmp_path, "tiny") == [1, 9, 10]
    assert bundles.names(tmp_path) == ["other", "tiny"]
    assert bundles.names(tmp_path / "nowhere") == []
