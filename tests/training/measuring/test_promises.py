"""Published promises against what the bundle's own engine answers on fresh images of the tiny task."""

import numpy as np
import pytest

from portcullis.bundle.gate import Row, decide
from portcullis.bundle.promises import Promises
from portcullis_training.exporting.promise_sections import promise_sections
from portcullis_training.measuring.predictions import Predictions
from portcullis_training.measuring.promises import passes, turned_away, with_promises
from tests import tiny


@pytest.fixture(scope="module")
def test_images() -> tuple[Predictions, np.ndarray]:
    images, labels = tiny.familiar(3000, seed=5)
    parts = tiny.parts_of(images)
    scores = tiny.fitted_scores(parts)
    named = {name: parts[:, column] for column, name in enumerate(tiny.PARTS)}
    return Predictions(tiny.answers(images)[0], {"fitted": scores, **named}, "fitted", named), labels


def test_promises_are_published_with_what_test_images_say(test_images):
    predictions, labels = test_images
    manifest = with_promises(tiny.fitted_manifest(), predictions, labels)
    named = {(point.gate, point.name): point for point in manifest.promises}
    assert {("", "right95"), ("accept95", "right95")} <= set(named)
    for (gate, name), point in named.items():
        chosen = Promises(manifest).gate(f"{gate}+{name}" if gate else name)
        accepted = _accepted(chosen, predictions)
        assert point.test_coverage == accepted.mean()
        wrong = predictions.probabilities.argmax(axis=1) != labels
        assert point.test_error == wrong[accepted].mean()
        assert point.test_error <= point.risk


def test_what_passes_is_what_the_service_would_accept(test_images):
    promises = Promises(tiny.fitted_manifest())
    for text in ("accept95", "accept95:by-class", "right95", "accept90:by-class+right95"):
        chosen = promises.gate(text)
        assert (passes(chosen, test_images[0]) == _accepted(chosen, test_images[0])).all()


def test_the_report_tells_both_promises_and_that_they_are_about_familiar_images(test_images):
    manifest = with_promises(tiny.fitted_manifest(), *test_images)
    shares = turned_away(manifest, test_images[0])
    assert [share.label for share in shares] == list(tiny.LABELS)
    overall = sum(share.overall * share.num_images for share in shares) / 3000
    assert overall == pytest.approx((~passes(Promises(manifest).gate("accept95"), test_images[0])).mean())
    text = "\n".join(promise_sections(manifest, test_images[0]))
    assert "holds for familiar images only" in text
    assert "| accept95+right95 | ≥ " in text
    assert f"| red | {shares[0].num_images} | {shares[0].overall:.1%} | {shares[0].by_class:.1%} |" in text


def test_a_bundle_without_rows_publishes_none(test_images):
    bare = tiny.fitted_manifest().model_copy(update={"calibration_rows": None})
    assert with_promises(bare, *test_images).promises == ()
    assert "cannot prove one" in "\n".join(promise_sections(bare, test_images[0]))
    assert all(share.by_class is None for share in turned_away(bare, test_images[0]))


def _accepted(chosen, predictions) -> np.ndarray:
    best = predictions.probabilities.argmax(axis=1)
    return np.array([
        decide(Row(int(index), float(row[index]), float(score), []), chosen)[1] is None
        for index, row, score in zip(best, predictions.probabilities, predictions.score, strict=True)
    ])  # fmt: skip
