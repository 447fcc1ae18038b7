"""The stage `evaluate` on a genuine small run."""

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from training import checkpoint, methods
from training.calibrate import calibrate, load_calibration
from training.data import as_array, to_float
from training.errors import ConfigError
from training.evaluate import evaluate, load_evaluation, measure, predict_of
from training.runs import Run
from training.trained import open_trained

pytestmark = pytest.mark.slow


def test_figures_equal_those_of_scikit_learn_on_the_same_images(evaluated_run: Run) -> None:
    trained = open_trained(evaluated_run)
    evaluation = load_evaluation(trained)
    classifier = checkpoint.load_classifier(evaluated_run)
    scores = {}
    for name, images in {"test": trained.splits.test, **trained.outside_sets()}.items():
        with torch.inference_mode():
            scores[name] = methods.find("dismax").scores(classifier(to_float(torch.from_numpy(as_array(images)))))
    for name in ("noise:uniform", "shuffled"):
        for score, figures in evaluation.outside[name].by_score.items():
            if score.endswith("_calibrated"):
                continue
            inside, outside = scores["test"][score].numpy(), scores[name][score].numpy()
            is_inside = np.r_[np.ones(len(inside)), np.zeros(len(outside))]
            expected = roc_auc_score(is_inside, np.r_[inside, outside])
            assert figures.auroc_inside_positive == pytest.approx(expected, abs=1e-4)
    threshold = load_calibration(trained).operating_points[1].threshold
    caught = (scores["shuffled"]["mmles"].numpy() < threshold).mean()
    assert evaluation.outside["shuffled"].caught["accept95"] == pytest.approx(caught, abs=0.005)


def test_every_detection_figure_names_its_positive_class(evaluated_run: Run) -> None:
    evaluation = load_evaluation(open_trained(evaluated_run))
    figures = evaluation.outside["shuffled"].by_score
    assert {name.removesuffix("_calibrated") for name in figures} == {
        "mmles", "max_probability", "max_logit", "negative_entropy",
    }  # fmt: skip
    assert all(name.endswith("_positive") for name in figures["mmles"].model_dump())
    assert set(evaluation.inference_cost_relative_to_softmax) == {"batch of 1", "batch of 32"}


def test_evaluation_needs_a_calibration(trained_run: Run) -> None:
    with pytest.raises(ConfigError, match="not calibrated"):
        evaluate(trained_run)


def test_the_stage_can_be_run_again_alone_without_the_classifier(evaluated_run: Run) -> None:
    """The logits are kept, so other operating points or another temperature cost nothing."""
    trained = open_trained(evaluated_run)
    trained.classifier.forward = None  # type: ignore[assignment,method-assign]
    calibration = calibrate(evaluated_run)
    again = measure(
        predict_of(trained, calibration), trained.splits.test, trained.outside_sets(), calibration.operating_points,
        checkpoint=trained.digest,
    )  # fmt: skip
    assert again.inside == load_evaluation(trained).inside
