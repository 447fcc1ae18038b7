"""The rule finds the parts that tell strangers apart, whichever they are, and sees nothing but what it is given."""

import numpy as np
import pytest
import torch
from scipy import optimize
from sklearn.linear_model import LogisticRegression

from portcullis.bundle import gate
from portcullis_training.data import ArrayImages, ImageSet
from portcullis_training.graph.score_parts import OwnScore
from portcullis_training.measuring import part_constants
from portcullis_training.measuring.fitted_score import FittingImages, fit_score
from portcullis_training.measuring.metrics import Array, auroc
from portcullis_training.measuring.readings import Readings
from portcullis_training.measuring.stranger_weights import MARGIN, PENALTY, Judged, weights_against

RANDOM = np.random.default_rng(0)


def rows(mean: list[float], num: int = 1500) -> Array:
    return RANDOM.normal(size=(num, len(mean))) + mean


def test_weights_minimise_the_penalised_loss_of_a_balanced_logistic_regression() -> None:
    familiar, strangers = rows([0, 0], 800), [rows([-1, -2], 300), rows([-2, -0.5], 500)]
    weights = weights_against(familiar, strangers)

    def loss(parameters: Array) -> float:
        inside = np.logaddexp(0, -(familiar @ parameters[:2] + parameters[2])).mean()
        outside = np.mean([np.logaddexp(0, kind @ parameters[:2] + parameters[2]).mean() for kind in strangers])
        return float((inside + outside) / 2 + PENALTY * (parameters[:2] ** 2).sum())

    found = optimize.minimize(loss, np.zeros(3), method="Nelder-Mead", options={"maxiter": 5000, "fatol": 1e-12})
    np.testing.assert_allclose(weights, found.x[:2], atol=1e-3)


def test_a_part_that_calls_strangers_familiar_has_no_weight() -> None:
    weights = weights_against(rows([0, 0, 0]), [rows([-2, 3, 0])])
    assert weights[0] > 0.5 and weights[1] == 0
    assert weights[2] == 0, "nor has one that cannot tell"


def test_every_kind_of_stranger_has_the_same_say_however_many_there_are() -> None:
    few, many = rows([-3, 0], 40), rows([0, -3], 4000)
    first, second = weights_against(rows([0, 0]), [few, many])
    assert first == pytest.approx(second, rel=0.5)


def test_a_part_can_be_left_out() -> None:
    weights = weights_against(rows([0, 0]), [rows([-2, -2])], without=0)
    assert weights[0] == 0 and weights[1] > 0.5


def test_a_part_stays_only_where_it_is_missed() -> None:
    def seen(mean: list[float]) -> Array:
        found = rows(mean)
        found[:, 1] += found[:, 0]  # the second part sees what the first sees, less well
        return found

    strangers = [seen([-2, 0, 0]) for _ in range(4)] + [seen([0, 0, -2]) for _ in range(4)]
    weights = weights_against(seen([0, 0, 0]), strangers)
    assert weights[0] > 0.5 and weights[1] == 0
    assert weights[2] > 0.5, "it alone tells the other kinds"


def told_of_a_kind_left_out(familiar: Array, strangers: list[Array], number: int, parts: list[int]) -> float:
    """By weights against all other kinds, found in another way than the rule's own."""
    others = [kind[:, parts] for place, kind in enumerate(strangers) if place != number]
    rows = np.concatenate([familiar[:, parts], *others])
    shares = [np.full(len(familiar), 1 / len(familiar))]
    shares += [np.full(len(kind), 1 / len(kind) / len(others)) for kind in others]
    labels = np.arange(len(rows)) < len(familiar)
    found = LogisticRegression(C=1 / (4 * PENALTY), tol=1e-8).fit(rows, labels, np.concatenate(shares))
    assert (found.coef_ >= 0).all(), "no bound had a say"
    return auroc(familiar[:, parts] @ found.coef_[0], strangers[number][:, parts] @ found.coef_[0])


def test_parts_are_judged_on_kinds_of_strangers_that_their_weights_were_not_fitted_on() -> None:
    """The last part tells one kind perfectly, so that fitting takes to it, and nothing of any other."""
    familiar, strangers = rows([0] * 3), [rows([-1.2, -1, 0]) for _ in range(3)] + [rows([0, -0.2, -4])]
    judged: Judged = {}
    weights = weights_against(familiar, strangers, judged=judged)
    assert weights[2] == 0 and weights[:2].min() > 0
    assert judged[0, 1] >= max(judged.values()) - MARGIN
    for parts, told in judged.items():
        by_kind = [told_of_a_kind_left_out(familiar, strangers, number, list(parts)) for number in range(4)]
        assert told == pytest.approx(np.mean(by_kind), abs=1e-3)


def test_no_score_is_left_to_one_part_where_two_tell() -> None:
    weights = weights_against(rows([0, 0]), [rows([-2, -0.2]), rows([-2, -0.2])])
    assert weights.min() > 0


def test_of_parts_that_tell_alike_the_fewest_are_kept_that_tell_as_much() -> None:
    familiar, strangers = rows([0] * 6), [rows([-0.5] * 4 + [0, 0]) for _ in range(3)]
    judged: Judged = {}
    kept = tuple(np.flatnonzero(weights_against(familiar, strangers, judged=judged)).tolist())
    most = max(judged.values())
    assert kept == (0, 1, 2, 3) and judged[kept] >= most - MARGIN
    assert all(told < most - MARGIN for parts, told in judged.items() if len(parts) < len(kept))


def test_where_no_part_tells_anything_all_count_alike() -> None:
    weights = weights_against(rows([0, 0]), [rows([2, 2])])
    np.testing.assert_array_equal(weights, [0.5, 0.5])


def test_the_gates_promise_holds_on_average_for_whatever_score_was_fitted() -> None:
    """Weights from validation images and strangers anew in every draw; then calibration and test images come in."""
    draws, num_calibration, num_test = 300, 99, 100
    rejected, chosen = 0, set()
    for _ in range(draws):
        weights = weights_against(rows([0, 0, 0], 40), [rows([-1, 0, 0], 40), rows([0, -0.5, 0.5], 40)])
        chosen.add(tuple(weights > 0))
        calibration = gate.summarise((rows([0, 0, 0], num_calibration) @ weights).tolist())
        threshold = gate.operating_point("accept95", calibration).threshold
        rejected += int((rows([0, 0, 0], num_test) @ weights < threshold).sum())
    share, alpha = rejected / (draws * num_test), 0.05
    error = np.sqrt(alpha * (1 - alpha) * (1 / num_test + 1 / (num_calibration + 2)) / draws)
    assert alpha - 3 * error <= share <= alpha + 3 * error, "exact, for (n + 1) · 5 % is a whole number"
    assert len(chosen) > 1, "the rule came out differently"


def reads(name: str, images: ImageSet) -> Readings:
    """What a classifier would show that sees colours (logits, features) and texture (middle)."""
    assert isinstance(images, ArrayImages)
    pixels = images.images.astype(np.float32) / 255
    colours = pixels.mean(axis=(1, 2))
    texture = np.stack([pixels.std(axis=(1, 2)).mean(axis=1), np.abs(np.diff(pixels, axis=1)).mean(axis=(1, 2, 3))], 1)
    return Readings(10 * colours, colours, texture, colours[:, :0])


def plain_images(num: int, seed: int) -> ArrayImages:
    random = np.random.default_rng(seed)
    labels = random.integers(0, 3, num)
    colours = 255 * np.eye(3)[labels][:, None, None] * 0.7 + 30
    noise = random.normal(0, 12, (num, 16, 16, 3)) + random.normal(0, 10, (num, 1, 1, 3))
    return ArrayImages(np.clip(colours + noise, 0, 255).astype(np.uint8), labels)


IMAGES = FittingImages(plain_images(300, 0), plain_images(200, 1))


def test_the_fitted_score_tells_strangers_that_it_was_not_fitted_on() -> None:
    fitted = fit_score(IMAGES, reads, OwnScore("mmles", 1.0), chosen="fitted", seed=0)
    test = plain_images(200, 2)
    stripes = test.images.copy()
    stripes[:, ::2] = 255 - stripes[:, ::2]
    with torch.inference_mode():
        inside, _ = fitted.score(reads("test", test).as_tensors())
        outside, _ = fitted.score(reads("stripes", ArrayImages(stripes, test.labels)).as_tensors())
    assert auroc(inside.numpy(), outside.numpy()) > 0.99
    assert fitted.score.info.parts == ("mmles", "norm_gap", "features", "middle", "neighbours")
    assert set(fitted.ablation) == set(fitted.score.info.parts)
    assert all(fitted.ablation[part][number] == 0 for number, part in enumerate(fitted.score.info.parts))


def test_the_same_seed_fits_the_same_score_and_another_seed_another() -> None:
    infos = [
        fit_score(IMAGES, reads, OwnScore("mmles", 1.0), chosen="fitted", seed=seed).score.info for seed in (0, 0, 1)
    ]
    assert infos[0] == infos[1] != infos[2]


def test_one_part_is_the_score_as_it_is_and_makes_no_strangers() -> None:
    asked = []

    def noting(name: str, images: ImageSet) -> Readings:
        asked.append(name)
        return reads(name, images)

    own = OwnScore("mmles", 1.0)
    middle = fit_score(IMAGES, noting, own, chosen="middle", seed=0).score
    score, parts = middle(reads("validation", IMAGES.validation).as_tensors())
    torch.testing.assert_close(score, parts[:, 3])
    assert middle.lean().info.parts == ("mmles", "middle")
    assert asked == ["training images for the score"]
    expected = part_constants.of_all(reads("all training images, for so few are all taken", IMAGES.train).middle)
    for name, tensor in expected.items():
        torch.testing.assert_close(middle.constants["middle"][name], tensor)
    assert fit_score(IMAGES, noting, own, chosen="mmles", seed=0).score.info.parts == ("mmles",)
    assert len(asked) == 1, "the method's own score has nothing to fit"
