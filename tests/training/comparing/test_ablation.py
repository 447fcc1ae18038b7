"""The ablation says of each score what an independent look at the run's readings says, and who leads among twins."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from portcullis_training.__main__ import main
from portcullis_training.comparing.ablation import Ablation, ablate
from portcullis_training.comparing.ablation_page import tables
from portcullis_training.errors import ConfigError
from portcullis_training.measuring.calibration import load_calibration
from portcullis_training.measuring.evaluation import load_evaluation, predict_of
from portcullis_training.measuring.metrics import auroc
from portcullis_training.measuring.trained import open_trained
from portcullis_training.runs.directory import Run, measured_against, open_run


@pytest.fixture(scope="module")
def output(evaluated_run_directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command's files for one run."""
    directory = tmp_path_factory.mktemp("ablation")
    run = directory / "run"
    shutil.copytree(evaluated_run_directory, run)
    assert main(["ablate", str(run), "--output", str(directory)]) == 0
    return directory


@pytest.fixture(scope="module")
def ablation(output: Path) -> Ablation:
    return Ablation.model_validate_json((output / "ablation.json").read_text())


def test_parts_and_the_fitted_score_have_the_figures_of_the_evaluation(output: Path, ablation: Ablation) -> None:
    trained = open_trained(open_run(output / "run"))
    evaluation, [run] = load_evaluation(trained), ablation.runs
    for row in run.rows:
        if row.kind in ("fitted", "part", "without"):
            assert row.outside == {name: figures.by_score[row.name] for name, figures in evaluation.outside.items()}
    assert run.accuracy == evaluation.inside.accuracy
    assert run.title == "DisMax†"
    assert [row.name for row in run.rows if row.kind == "part"] == list(run.score.parts)
    assert {row.name: row.weight for row in run.rows if row.kind == "part"} == dict(
        zip(run.score.parts, run.score.weights, strict=True)
    )


def test_a_fixed_sum_and_knn_agree_with_independent_arithmetic(output: Path, ablation: Ablation) -> None:
    trained = open_trained(open_run(output / "run"))
    calibration = load_calibration(trained)
    predict, [run] = predict_of(trained, calibration), ablation.runs
    [name] = [name for name in trained.outside_sets() if name == "shuffled"]
    found = []
    for key, images in (("test", trained.splits.test), (f"outside {name}", trained.outside_sets()[name])):
        parts = predict(key, images).parts
        z = {
            part: (parts[part] - calibration.score.means[number]) / calibration.score.deviations[number]
            for number, part in enumerate(calibration.score.parts)
        }
        found.append(z["mmles"] + 0.1 * z["middle"])
    assert run.row("mmles+middle").outside[name].auroc_inside_positive == pytest.approx(auroc(*found), abs=1e-6)

    def nearest(images) -> np.ndarray:
        features = trained.read("features", images).features
        return features / np.linalg.norm(features, axis=1, keepdims=True)

    bank = nearest(trained.splits.train)
    scores = [
        -np.sort(np.linalg.norm(nearest(images)[:, None] - bank, axis=2), axis=1)[:, 49]
        for images in (trained.splits.test, trained.outside_sets()[name])
    ]
    assert run.row("knn").outside[name].auroc_inside_positive == pytest.approx(auroc(*scores), abs=1e-4)


def test_the_page_has_a_row_for_every_score(output: Path, ablation: Ablation) -> None:
    text = (output / "ablation.md").read_text()
    for row in ("**fitted score**", "MMLES + 0.1 · Mahalanobis, middle block", "KNN, k = 50", "fitted score without"):
        assert f"| {row}" in text
    assert "same additions" not in text
    assert (output / "ablation.png").read_bytes().startswith(b"\x89PNG")


def test_the_page_says_who_leads_whoever_it_is(ablation: Ablation) -> None:
    [run] = ablation.runs
    worse = json.loads(run.model_dump_json()) | {"title": "Other"}
    for row in worse["rows"]:
        for figures in row["outside"].values():
            figures["auroc_inside_positive"] -= 0.1
    worse["rows"][0]["outside"]["shuffled"]["auroc_inside_positive"] += 0.15
    for order in ((0, 1), (1, 0)):
        twins = [run.model_dump(), worse]
        text = "\n".join(tables(Ablation(commit="", runs=[twins[number] for number in order])))
        assert "DisMax† leads Other by 2.5 points; Other is ahead on shuffled (by 5.0)." in text


def test_runs_against_other_sets_are_refused_until_all_have_the_same(evaluated_run: Run, tmp_path: Path) -> None:
    other = Run(tmp_path / "other", evaluated_run.config)
    shutil.copytree(evaluated_run.directory, other.directory)
    changed = measured_against(other, ("constant",))
    assert open_run(other.directory).config.outside == ("constant",)
    with pytest.raises(ConfigError, match="give --outside"):
        ablate([evaluated_run, changed], tmp_path / "page", print, with_knn=False)
    with pytest.raises(ConfigError, match="other outside sets"):
        load_evaluation(open_trained(changed))
    output = tmp_path / "same"
    words = ["ablate", str(other.directory), str(evaluated_run.directory), "--outside", "constant", "--no-knn"]
    assert main([*words, "--output", str(output)]) == 0
    ablation = Ablation.model_validate_json((output / "ablation.json").read_text())
    assert [list(run.rows[0].outside) for run in ablation.runs] == [["constant"], ["constant"]]
    assert "are level" in (output / "ablation.md").read_text()
