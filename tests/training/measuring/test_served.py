"""A bundle is measured without its run, and by no other images than those it was made of."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from portcullis.bundle.files import load_bundle
from portcullis_training.__main__ import main
from portcullis_training.data import as_array
from portcullis_training.errors import ConfigError, DataError
from portcullis_training.exporting import export
from portcullis_training.measuring.evaluation import Evaluation, load_evaluation
from portcullis_training.measuring.served import evaluate_bundle
from portcullis_training.measuring.trained import open_trained
from portcullis_training.runs.directory import Run
from tests import tiny

pytestmark = pytest.mark.slow


def test_the_command_measures_a_bundle_alone(evaluated_run: Run, tmp_path: Path, capsys) -> None:
    bundle, figures = export.export(evaluated_run, tmp_path / "models"), tmp_path / "figures.json"
    words = ["evaluate", str(bundle.path), "--outside", "constant", "--figures", str(figures)]
    assert main(words) == 0
    served = Evaluation.model_validate_json(figures.read_bytes())
    measured = load_evaluation(open_trained(evaluated_run))
    assert served.inside.accuracy == measured.inside.accuracy
    assert served.inside.ece_at_temperature_one is None and set(served.outside) == {"constant"}
    assert served.checkpoint == json.loads((bundle.path / "manifest.json").read_text())["files"]["model.onnx"]
    said = capsys.readouterr().out
    assert f"accuracy {measured.inside.accuracy:.2%}" in said and "(MMLES " in said and str(figures) in said


def test_other_images_are_refused(evaluated_run: Run, tmp_path: Path) -> None:
    bundle = export.export(evaluated_run, tmp_path / "models")
    splits = open_trained(evaluated_run).splits
    for name, images in (("train", splits.train), ("test", splits.test)):
        np.savez(
            tmp_path / f"{name}.npz", images=as_array(images), labels=images.labels, class_names=splits.class_names
        )
    with pytest.raises(DataError, match=r"are not those that tiny-digits/1 was made of \(digits, fingerprint"):
        evaluate_bundle(bundle, f"npz:{tmp_path}/train.npz,{tmp_path}/test.npz")


def test_a_bundle_without_its_recipe_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="tiny/1 has no recipe of its run"):
        evaluate_bundle(load_bundle(tiny.write(tmp_path).path), "digits")


def test_a_recipe_that_is_not_in_the_digests_is_no_recipe(evaluated_run: Run, tmp_path: Path) -> None:
    bundle = export.export(evaluated_run, tmp_path / "models")
    files = {name: digest for name, digest in bundle.manifest.files.items() if name != "config.json"}
    with pytest.raises(ConfigError, match="no recipe"):
        evaluate_bundle(replace(bundle, manifest=bundle.manifest.model_copy(update={"files": files})))


@pytest.mark.parametrize("place", ["nowhere/figures.json", "."])
def test_figures_that_have_no_place_are_refused_before_anything_is_measured(place, tmp_path: Path, capsys) -> None:
    bundle = tiny.write(tmp_path)
    assert main(["evaluate", str(bundle.path), "--data", "digits", "--figures", str(tmp_path / place)]) == 1
    assert "--figures: expected a file in a directory that exists" in capsys.readouterr().err


def test_what_belongs_to_bundles_is_refused_for_a_run(evaluated_run: Run, capsys) -> None:
    assert main(["evaluate", str(evaluated_run.directory), "--data", "digits"]) == 1
    assert "--data and --figures are of a bundle" in capsys.readouterr().err
