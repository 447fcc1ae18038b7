"""What the drift figures are made of: scores by the service's own code, and tables that are not typed by hand."""

import numpy as np
import pytest

from bench import drift_document, drift_scores, drift_streams
from tests import tiny


@pytest.fixture(scope="module")
def written(bundle, tmp_path_factory):
    directory = tmp_path_factory.mktemp("scores")
    sets = {"inside": tiny.familiar(40, seed=3)[0], "grey": np.full((7, tiny.SIZE, tiny.SIZE), 128, np.uint8)}
    for name, images in sets.items():
        np.savez(directory / f"{name}.npz", images=images)
    out = directory / "scores.npz"
    drift_scores.write(bundle.path, directory / "inside.npz", [directory / "grey.npz"], out)
    return sets, drift_streams.load_scores(out)


def test_the_scores_are_those_of_the_bundle_for_grey_images_too(written):
    sets, scores = written
    np.testing.assert_allclose(scores.inside, tiny.answers(sets["inside"])[1], rtol=1e-4)
    colour = np.repeat(sets["grey"][..., None], 3, axis=-1)
    assert list(scores.outside) == ["grey"]
    np.testing.assert_allclose(scores.outside["grey"], tiny.answers(colour)[1], rtol=1e-4)


def test_the_bundle_and_its_calibration_scores_go_with_them(written):
    _, scores = written
    assert scores.bundle == "tiny/1"
    assert scores.calibration.tolist() == np.float32(tiny.manifest().calibration.scores).tolist()


def test_a_large_outside_set_is_thinned_evenly(bundle, tmp_path, monkeypatch):
    monkeypatch.setattr(drift_scores, "MAX_OUTSIDE", 4)
    shades = np.arange(10, dtype=np.uint8)[:, None, None, None] * np.full((1, tiny.SIZE, tiny.SIZE, 3), 20, np.uint8)
    np.savez(tmp_path / "shades.npz", images=shades)
    drift_scores.write(bundle.path, tmp_path / "shades.npz", [tmp_path / "shades.npz"], tmp_path / "out.npz")
    scores = drift_streams.load_scores(tmp_path / "out.npz")
    assert scores.outside["shades"].tolist() == scores.inside[[0, 3, 6, 9]].tolist()


def test_the_measured_tables_of_the_document_are_those_of_the_results():
    text = drift_document.DOCUMENT.read_text()
    for results in (drift_document.RESULTS, drift_document.BLOCK_RESULTS):
        assert drift_document.with_tables(text, results.read_text()) == text


def test_a_table_without_a_place_in_the_document_is_an_error():
    with pytest.raises(ValueError, match="costs"):
        drift_document.with_tables("no marks", '{"tables": {"costs": {"head": ["a"], "rows": [["1"]]}}}')
