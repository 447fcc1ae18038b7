import json
import os
from pathlib import Path

import pytest

from portcullis.bundle import files as bundles
from portcullis.bundle.files import load_bundle, write_bundle
from portcullis.errors import BundleError
from tests import tiny

SCORE = {
    "name": "mmles",
    "parts": ["mmles"],
    "means": [0.0],
    "deviations": [1.0],
    "weights": [1.0],
    "fitted_on": "none",
}


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
        ({"format_version": 3}, "format_version"),
        ({"format_version": 2}, "format_version 2 needs score"),
        ({"score": SCORE}, "format_version 1 has no score"),
        ({"format_version": 2, "score": SCORE}, r"self_test\.parts: expected a value for each"),
        (
            {"format_version": 2, "score": {**SCORE, "name": "energy"}},
            "'energy' is neither 'fitted' nor one of its parts",
        ),
        ({"format_version": 2, "score": {**SCORE, "weights": [1.0, 1.0]}}, "a mean, deviation and weight each"),
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


def rows_of(manifest, **changes):
    return {**manifest.calibration_rows.model_dump(), **changes}


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"is_right": [True]}, "the same number of values in every column"),
        ({"class_indices": [3] * 999}, "answer class 3 of 3 labels"),
        ({"parts": {"middle": [0.0] * 999}}, "with 'mmles'"),
        ({"parts": {"mmles": [0.0] * 999, "neighbours": [0.0] * 999}}, "expected parts of"),
        ({"probability_grid": [0.5, 0.9]}, "must fall strictly"),
    ],
)
def test_calibration_rows_that_do_not_fit_the_manifest_are_refused(tmp_path, changes, named):
    bundle = tiny.write_fitted(tmp_path)
    edit(bundle.path, calibration_rows=rows_of(bundle.manifest, **changes))
    with pytest.raises(BundleError, match=named):
        load_bundle(bundle.path)


def test_fewer_calibration_rows_than_images_are_refused(tmp_path):
    bundle = tiny.write_fitted(tmp_path)
    edit(bundle.path, calibration_rows=tiny.fitted_manifest(num_calibration=99).calibration_rows.model_dump())
    with pytest.raises(BundleError, match="expected 999 calibration rows, got 99"):
        load_bundle(bundle.path)


def test_a_format_tells_what_gates_and_what_it_is_made_of(tmp_path):
    first, second = tiny.write(tmp_path, "first").manifest, tiny.write_fitted(tmp_path, "second").manifest
    assert (first.score_name, first.part_names) == ("mmles", ("mmles",))
    assert (second.score_name, second.part_names) == ("fitted", ("mmles", "middle"))


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


def test_of_two_that_write_a_version_at_once_the_second_is_told_so(tmp_path):
    models = tmp_path / "models"

    def overtake(bundle):
        tiny.write(tmp_path / "other")
        (tmp_path / "other" / "tiny" / "1").rename(models / "tiny" / "1")

    with pytest.raises(BundleError, match="tiny/1 was written by somebody else just now; try again"):
        write_bundle(models, tiny.manifest(), {"model.onnx": tiny.graph()}, check=overtake)
    assert [path.name for path in (models / "tiny").iterdir()] == ["1"]
    load_bundle(models / "tiny" / "1")


def test_a_disk_that_fills_up_leaves_nothing_behind(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(BundleError, match="cannot write bundle tiny/1: No space left on device"):
        tiny.write(tmp_path)
    assert list((tmp_path / "tiny").iterdir()) == []


def test_a_written_bundle_keeps_its_name_through_a_loss_of_power(tmp_path, monkeypatch):
    """A name lives in its directory: each is synced after the name came into it, from the files up to a new folder."""
    synced, models = [], tmp_path / "models"
    sync = os.fsync

    def note(descriptor):
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))  # noqa: PTH115
        if path.is_dir():
            synced.append((path.relative_to(tmp_path), sorted(entry.name for entry in path.iterdir())))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    tiny.write(models)
    (draft, files), *above = synced
    assert (draft.parent, files) == (Path("models/tiny"), ["manifest.json", "model.onnx", "report.md"])
    assert above == [(Path("models/tiny"), ["1"]), (Path("models"), ["tiny"]), (Path(), ["models"])]


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


def test_a_models_directory_may_say_which_model_answers(tmp_path):
    assert bundles.default_name(tmp_path) is None
    (tmp_path / "default").write_text("pets\n")
    assert bundles.default_name(tmp_path) == "pets"
    (tmp_path / "default").write_bytes(b"\xff")
    assert bundles.default_name(tmp_path) is None
    (tmp_path / "default").unlink()
    tiny.write(tmp_path, name="default")
    assert bundles.default_name(tmp_path) is None, "that is a bundle"
