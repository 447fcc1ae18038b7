"""The stage `evaluate` on a genuine small run."""

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from portcullis_training import methods
from portcullis_training.data import as_array, to_float
from portcullis_training.errors import ConfigError
from portcullis_training.fitting import checkpoint
from portcullis_training.measuring import evaluation
from portcullis_training.measuring.calibration import load_calibration, load_score
from portcullis_training.measuring.evaluation import (
    evaluate,
    load_evaluation,
    measure,
    predict_of,
)
from portcullis_training.measuring.trained import open_trained
from portcullis_training.runs.directory import Run

pytestmark = pytest.mark.slow


def test_figures_equal_those_of_scikit_learn_on_the_same_images(evaluated_run: Run) -> None:
    trained = open_trained(evaluated_run)
    evaluation = load_evaluation(trained)
    classifier, score_of = checkpoint.load_classifier(evaluated_run), load_score(trained, load_calibration(trained))
    scores = {}
    for name, images in {"test": trained.splits.test, **trained.outside_sets()}.items():
        with torch.inference_mode():
            floats = to_float(torch.from_numpy(as_array(images)))
            fitted, parts = score_of(classifier.read(floats))
            names = score_of.info.parts
            scores[name] = {"fitted": fitted, **dict(zip(names, parts.T, strict=True))}
            scores[name] |= methods.find("dismax").scores(classifier(floats))
    for name in ("noise:uniform", "shuffled"):
        for score, figures in evaluation.outside[name].by_score.items():
            if score.endswith("_calibrated") or "_without_" in score:
                continue
            inside, outside = scores["test"][score].numpy(), scores[name][score].numpy()
            is_inside = np.r_[np.ones(len(inside)), np.zeros(len(outside))]
            expected = roc_auc_score(is_inside, np.r_[inside, outside])
            assert figures.auroc_inside_positive == pytest.approx(expected, abs=1e-4)
    threshold = load_calibration(trained).operating_points[1].threshold
    caught = (scores["shuffled"]["fitted"].numpy() < threshold).mean()
    assert evaluation.outside["shuffled"].caught["accept95"] == pytest.approx(caught, abs=0.005)


def test_every_detection_figure_names_its_positive_class(evaluated_run: Run) -> None:
    evaluation = load_evaluation(open_trained(evaluated_run))
    figures = evaluation.outside["shuffled"].by_score
    parts = {"mmles", "norm_gap", "features", "middle", "neighbours"}
    assert {name.removesuffix("_calibrated") for name in figures} == parts | {
        "fitted", "max_probability", "max_logit", "negative_entropy", "energy", *(f"fitted_without_{p}" for p in parts),
    }  # fmt: skip
    assert all(name.endswith("_positive") for name in figures["mmles"].model_dump())
    assert set(evaluation.inference_cost_relative_to_softmax) == {"batch of 1", "batch of 32"}


def test_evaluation_needs_a_calibration(trained_run: Run) -> None:
    with pytest.raises(ConfigError, match=r"no calibration\.json yet"):
        evaluate(trained_run)


def test_the_stage_can_be_run_again_alone_without_the_classifier(evaluated_run: Run) -> None:
    """The readings are kept, so other operating points or another temperature cost nothing."""
    trained = open_trained(evaluated_run)
    trained.classifier.read = None  # type: ignore[assignment,method-assign]
    calibration = load_calibration(trained)
    again = measure(
        predict_of(trained, calibration), trained.splits.test, trained.outside_sets(), calibration.operating_points,
        checkpoint=trained.digest,
    )  # fmt: skip
    assert again.inside == load_evaluation(trained).inside


def test_the_cost_is_not_timed_where_it_is_not_asked_for(evaluated_run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("relative_inference_cost", "relative_score_cost"):
        monkeypatch.setattr(evaluation, name, lambda *_: pytest.fail("timed"))
    assert evaluate(evaluated_run, time_cost=False).inference_cost_relative_to_softmax == {}
