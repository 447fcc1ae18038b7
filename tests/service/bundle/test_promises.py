import math
from fractions import Fraction

import numpy as np
import pytest

from portcullis.bundle import gate, grammar
from portcullis.bundle.gate import Gate
from portcullis.bundle.manifest import CalibrationRows, Manifest
from portcullis.bundle.promises import Promises, choose
from portcullis.errors import InvalidParameter, UnknownOperatingPoint
from tests import tiny
from tests.service.bundle.test_gate import row


@pytest.fixture(scope="module")
def manifest() -> Manifest:
    return tiny.fitted_manifest()


@pytest.fixture(scope="module")
def promises(manifest) -> Promises:
    return Promises(manifest)


# -- grammar ---------------------------------------------------------------------------------------------------------


def test_every_spelling_is_taken_apart():
    for text, expected in {
        "accept95": {"accept": "accept95"},
        "accept97.5:by-class": {"accept": "accept97.5", "is_by_class": True},
        "mmles:accept99:by-class+right995": {
            "score": "mmles", "accept": "accept99", "is_by_class": True, "right": "right995",
        },
        "accept95+right99": {"accept": "accept95", "right": "right99"},
        "right99": {"right": "right99"},
        "mmles:-14.2": {"score": "mmles", "threshold": -14.2},
        "1e-3": {"threshold": 1e-3},
    }.items():  # fmt: skip
        assert grammar.parse(text) == grammar.Spelling(text, **expected)


@pytest.mark.parametrize(
    "wrong",
    ["accept", "accept0", "accept100", "accept-5", "acceptable", "accept99.99999", "accept95:", "accept95:by-label",
     "accept95+", "accept95+accept90", "accept95+-14", "right", "right99+accept95", "mmles:accept", "x:accept95",
     "high", "strict", "accept95\n", "right99\n", "accept9\u0665", "right9\u0669"],
)  # fmt: skip
def test_an_unknown_operating_point_is_refused_with_those_that_exist(promises, wrong):
    with pytest.raises(UnknownOperatingPoint, match="published: accept90, accept95, accept99"):
        promises.gate(wrong)


@pytest.mark.parametrize("wrong", ["nan", "inf", "-inf", "", "mmles:", "mmles:nan", "-14.2+right99", "1" * 101])
def test_a_threshold_that_would_decide_blindly_is_refused(promises, wrong):
    with pytest.raises(InvalidParameter, match=r"score|characters"):
        promises.gate(wrong)


# -- one threshold ---------------------------------------------------------------------------------------------------


def test_the_gate_is_chosen_by_name_by_percent_or_by_score():
    manifest = tiny.manifest()
    point = manifest.operating_points[1]
    chosen = choose("accept95", manifest)
    assert (chosen.threshold, chosen.operating_point, chosen.score) == (point.threshold, "accept95", "mmles")
    assert (chosen.rejected_share, chosen.stranger_share) == (0.05, 0.05)
    assert choose("accept50", manifest).threshold == sorted(manifest.calibration.scores)[499]
    bare = choose("-3.5", manifest)
    assert (bare.threshold, bare.operating_point) == (-3.5, None)
    assert bare.rejected_share == sum(score < -3.5 for score in manifest.calibration.scores) / 999


def test_mmles_gates_a_fitted_bundle_by_thresholds_and_p_values_of_its_own(manifest, promises):
    own = tiny.manifest()  # the same images and MMLES in format 1, where it is the score
    for text in ("accept95", "accept99", "-3.5"):
        by_part, by_score = promises.gate(f"mmles:{text}"), choose(text, own)
        assert by_part.threshold == by_score.threshold
        assert (by_part.column, by_part.score, by_part.calibration) == (0, "mmles", own.calibration)
        image = row(score=math.nan, parts=(-3.4, 0.0))
        assert by_part.p_value(image) == by_score.p_value(row(-3.4))
        assert gate.decide(image, by_part) == gate.decide(row(-3.4), by_score)
    assert promises.gate("fitted:accept95").threshold == promises.gate("accept95").threshold
    assert choose("mmles:accept95", own).column is None  # its own score under its name


def test_a_score_that_was_not_calibrated_is_refused_with_those_that_were(promises):
    with pytest.raises(UnknownOperatingPoint, match="called 'energy'; there are: fitted, middle, mmles"):
        promises.gate("energy:accept95")


# -- by class --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("score", ["fitted", "mmles"])
def test_thresholds_by_class_are_those_of_the_images_answered_so(manifest, promises, score):
    rows, chosen = manifest.calibration_rows, promises.gate(f"{score}:accept95:by-class")
    column = manifest.calibration.scores if score == "fitted" else rows.parts[score]
    for index in range(3):
        scores = sorted(s for s, c in zip(column, rows.class_indices, strict=True) if c == index)
        assert chosen.threshold_for(index) == scores[math.floor(Fraction(5, 100) * (len(scores) + 1)) - 1]
        image = row(scores[10], class_index=index, parts=(scores[10], math.nan))
        assert chosen.p_value(image) == 12 / (len(scores) + 1)


def test_a_gate_by_class_is_told_as_it_is_published(promises):
    chosen = promises.gate("accept95:by-class")
    assert promises.by_class["accept95"] == tuple(one.threshold for one in chosen.by_class)
    assert (chosen.rejected_share, chosen.operating_point) == (0.05, "accept95:by-class")


def test_by_class_is_refused_where_a_class_is_too_small_naming_it(manifest, promises):
    num_images = manifest.calibration_rows.class_indices.count(0)
    assert num_images < 999
    with pytest.raises(UnknownOperatingPoint, match=rf"at least 999 calibration images .*; red has {num_images}"):
        promises.gate("accept99.9:by-class")
    assert promises.gate("accept99.9").operating_point == "accept99.9"  # all classes together can


def test_the_promise_by_class_holds_within_each_predicted_class():
    """Two classes of very different scores: one threshold for both turns the second away four times too often."""
    random, draws, rejected = np.random.default_rng(3), 200, np.zeros((2, 2))
    for _ in range(draws):
        labels = random.integers(0, 2, 800)
        scores = random.normal(size=800) * (1 + labels) - labels
        order = np.argsort(scores)
        chosen = [
            choose(name, _with_rows(scores[order].tolist(), labels[order].tolist()))
            for name in ("accept95", "accept95:by-class")
        ]
        for index in (0, 1):
            fresh = random.normal(size=100) * (1 + index) - index
            rejected[index] += [(fresh < one.threshold_for(index)).mean() for one in chosen]
    overall, by_class = (rejected / draws).T
    assert overall[1] > 0.08
    # the spread of one draw: binomial of 100 fresh images and Beta(20, 381) of the calibration images
    tolerance = 3 * math.sqrt(0.05 * 0.95 * (1 / 100 + 1 / 400) / draws)
    assert (by_class <= 0.05 + tolerance).all()
    assert (by_class >= 0.05 - 1 / 400 - tolerance).all()


def test_where_scores_are_left_out_thresholds_by_class_fall_and_p_values_rise():
    random = np.random.default_rng(5)
    scores, classes = np.sort(random.normal(size=3000)).tolist(), random.integers(0, 2, 3000).tolist()
    whole = choose("accept95:by-class", _with_rows(scores, classes))
    thinned = choose("accept95:by-class", _with_rows(scores, classes, max_kept=300))
    for index in (0, 1):
        assert thinned.threshold_for(index) <= whole.threshold_for(index)
        for score in np.linspace(-3, 3, 61):
            image = row(score, class_index=index)
            assert 0 <= thinned.p_value(image) - whole.p_value(image) <= 0.01


# -- right -----------------------------------------------------------------------------------------------------------


def test_right_is_proven_for_the_rule_as_a_whole(manifest, promises):
    alone, joint = promises.gate("right95"), promises.gate("accept95+right95")
    assert (alone.threshold, joint.threshold) == (-math.inf, promises.gate("accept95").threshold)
    rows = manifest.calibration_rows
    for chosen in (alone, joint):
        passes = [
            gate.decide(row(score, probability=probability), chosen)[1] is None
            for score, probability in zip(manifest.calibration.scores, rows.probabilities, strict=True)
        ]
        assert chosen.right.coverage == sum(passes) / 999
        assert chosen.rejected_share == 1 - chosen.right.coverage
        wrong = sum(not right for right, is_in in zip(rows.is_right, passes, strict=True) if is_in)
        assert wrong / sum(passes) < 0.05
    assert (alone.right.gate, joint.right.gate) == ("", "accept95")
    assert alone.stranger_share == 0


def test_right_behind_every_kind_of_gate(manifest, promises):
    for text in ("mmles:accept95+right95", "accept95:by-class+right95", "mmles:accept90:by-class+right95"):
        chosen = promises.gate(text)
        assert (chosen.operating_point, chosen.right.gate) == (text, text.removesuffix("+right95"))
        assert 0.5 <= chosen.min_probability < 1
        rows, scores = manifest.calibration_rows, manifest.calibration.scores
        images = zip(scores, rows.class_indices, rows.probabilities, rows.parts["mmles"], strict=True)
        passes = [gate.decide(row(*image, parts=(mmles, math.nan)), chosen)[1] is None for *image, mmles in images]
        assert chosen.right.coverage == sum(passes) / 999


def test_the_image_that_sets_the_threshold_proves_nothing_about_those_above_it():
    """right95 takes 59 images without a wrong answer; accept50 has that many above its threshold from 118 on."""
    proven, not_proven = (_with_rows([float(score) for score in range(num)], [0] * num) for num in (118, 117))
    assert choose("accept50+right95", proven).right.coverage == 60 / 118
    with pytest.raises(UnknownOperatingPoint, match=r"at least 59 .* there are 58 with 0 wrong"):
        choose("accept50+right95", not_proven)


def test_a_bundle_of_format_1_refuses_what_needs_rows_and_says_what_to_do():
    for text in ("accept95:by-class", "right99", "accept95+right99"):
        with pytest.raises(UnknownOperatingPoint, match="calibrate it anew"):
            choose(text, tiny.manifest())
    with pytest.raises(UnknownOperatingPoint, match="calibrate it anew"):
        Promises(tiny.manifest()).set_threshold("0.95")


def test_a_gate_is_worked_out_once_and_a_refusal_too(promises):
    assert promises.gate("accept95:by-class+right95") is promises.gate("accept95:by-class+right95")
    for _ in range(2):
        with pytest.raises(UnknownOperatingPoint, match="right9999 cannot be proven"):
            promises.gate("right9999")


# -- prediction sets -------------------------------------------------------------------------------------------------


def test_the_threshold_of_a_prediction_set_by_hand(manifest, promises):
    ordered = sorted(manifest.calibration_rows.true_probabilities)
    assert promises.set_threshold("0.95") == ordered[49]  # floor(0.05 · 1000) = 50th
    assert promises.set_threshold(".999") == ordered[0]
    with pytest.raises(UnknownOperatingPoint, match="at least 9999 calibration images; this bundle has 999"):
        promises.set_threshold("0.9999")
    for wrong in ("0", "1", "95", "0.0", "1/2", "-0.5", "nan", "", "0.95\n", "0.9\u0665"):
        with pytest.raises(InvalidParameter, match=r"such as 0\.95"):
            promises.set_threshold(wrong)


def test_sets_hold_the_truth_as_often_as_they_say(promises):
    images, labels = tiny.familiar(20_000, seed=11)
    true = tiny.answers(images)[0][np.arange(20_000), labels]
    for share in (0.9, 0.95, 0.99):
        held = (true >= promises.set_threshold(str(share))).mean()
        # Beta of 999 calibration images and binomial of 20,000 fresh ones
        assert held == pytest.approx(share, abs=3 * math.sqrt(share * (1 - share) * (1 / 1000 + 1 / 20_000)) + 0.001)


def _with_rows(scores: list[float], classes: list[int], max_kept: int = 10_000) -> Manifest:
    """A manifest of two classes with these calibration rows, in rising order of score."""
    num = len(scores)
    calibration = gate.summarise(scores, max_kept)
    rows = CalibrationRows(
        class_indices=classes, probabilities=[1.0] * num, is_right=[True] * num, true_probabilities=[1.0] * num,
        parts={"mmles": scores}, probability_grid=(0.9,),
    )  # fmt: skip
    changes = {"calibration": calibration, "calibration_rows": rows, "operating_points": ()}
    return _BASE.model_copy(update=changes | {"labels": ("a", "b")})


_BASE = tiny.fitted_manifest()


def test_a_gate_is_frozen(promises):
    chosen: Gate = promises.gate("accept95")
    with pytest.raises(AttributeError):
        chosen.threshold = 0.0  # type: ignore[misc]
