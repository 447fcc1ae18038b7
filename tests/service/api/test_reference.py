"""The reference of a bundle, against NumPy on the scores themselves; its files, as a client asks for them."""

import httpx
import numpy as np
import pytest

from portcullis.api.reference import NUM_QUANTILES, reference_of
from portcullis.bundle import gate
from portcullis.bundle.manifest import CalibrationScores
from portcullis.bundle.promises import choose
from portcullis.schemas.reference import Reference
from tests import tiny

MANIFEST = tiny.manifest()
SCORES = np.array(MANIFEST.calibration.scores)


def with_calibration(scores, max_kept=10_000):
    return MANIFEST.model_copy(update={"calibration": gate.summarise(list(map(float, scores)), max_kept)})


def following(manifest, text="-4.0"):
    return reference_of(manifest, choose(text, manifest))


def test_the_histogram_agrees_with_numpy():
    histogram = following(MANIFEST).histogram
    counts, edges = np.histogram(SCORES, bins=len(histogram.counts))
    assert histogram.edges == pytest.approx(edges)
    # a score within rounding of an edge may fall on either side of it
    assert np.abs(np.cumsum(histogram.counts) - np.cumsum(counts)).max() <= 1
    assert sum(histogram.counts) == MANIFEST.calibration.num_images


def test_the_quantiles_agree_with_numpy():
    quantiles = following(MANIFEST).quantiles
    assert quantiles == pytest.approx(np.quantile(SCORES, np.linspace(0, 1, len(quantiles))))
    assert len(quantiles) == 999


def test_a_thinned_calibration_set_keeps_its_shape():
    scores = np.sort(np.random.default_rng(0).gumbel(size=30_000))
    reference = following(with_calibration(scores, max_kept=3_000))
    assert reference.num_images == 30_000
    assert len(reference.quantiles) == NUM_QUANTILES
    assert reference.quantiles == pytest.approx(np.quantile(scores, np.linspace(0, 1, NUM_QUANTILES)), abs=0.02)
    counts, _ = np.histogram(scores, bins=len(reference.histogram.counts))
    assert np.abs(np.cumsum(reference.histogram.counts) - np.cumsum(counts)).max() <= 10
    assert sum(reference.histogram.counts) == 30_000


@pytest.mark.parametrize("scores", [[1.5], [2.0, 2.0, 2.0]])
def test_equal_scores_still_give_bins_of_some_width(scores):
    calibration = CalibrationScores(num_images=len(scores), scores=tuple(scores))
    reference = following(MANIFEST.model_copy(update={"calibration": calibration}))
    assert np.all(np.diff(reference.histogram.edges) > 0)
    assert sum(reference.histogram.counts) == len(scores)
    assert set(reference.quantiles) == set(scores)


def test_the_route_gives_all_that_a_threshold_needs(running_service):
    answer = httpx.get(f"{running_service.url}/v1/models/tiny/reference").raise_for_status()
    reference = Reference.model_validate(answer.json())
    assert reference == following(MANIFEST)
    assert reference.outside["grey"].quantiles == list(MANIFEST.figures.outside["grey"].score_quantiles)


def test_the_report_is_sent_as_markdown(running_service):
    answer = httpx.get(f"{running_service.url}/v1/models/tiny/report").raise_for_status()
    assert answer.headers["content-type"] == "text/markdown; charset=utf-8"
    assert answer.text == "# tiny\n"


@pytest.mark.parametrize(
    "path",
    ["report/model.onnx", "report/manifest.json", "report/plots/none.png", "report/../../../etc/passwd",
     "report/..%2f..%2f..%2fetc%2fpasswd.png", "examples/cat.png", "examples/..%2fmodel.onnx"],
)  # fmt: skip
def test_nothing_but_the_images_of_a_bundle_is_given_away(running_service, path):
    answer = httpx.get(f"{running_service.url}/v1/models/tiny/{path}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")


def test_a_bundle_without_examples_has_an_empty_list_of_them(running_service):
    assert httpx.get(f"{running_service.url}/v1/models/tiny/examples").json() == {"examples": []}


def test_an_unknown_model_or_version_is_named(running_service):
    for path, code in (("nobody/reference", "unknown_model"), ("tiny/reference?version=9", "unknown_version")):
        answer = httpx.get(f"{running_service.url}/v1/models/{path}")
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, code)


def test_the_reference_is_of_the_score_that_gates():
    fitted = tiny.fitted_manifest()
    own, by_mmles = following(fitted, "accept95:by-class"), following(fitted, "mmles:accept95")
    assert (own.score, own.operating_points) == ("fitted", list(fitted.operating_points))
    assert own.outside
    in_format_1 = following(tiny.manifest(), "accept95")  # the same images, and there MMLES is the score
    assert by_mmles.score == "mmles"
    assert by_mmles.histogram == in_format_1.histogram
    assert by_mmles.operating_points == in_format_1.operating_points
    assert by_mmles.outside == {}  # their quantiles are of the fitted score
