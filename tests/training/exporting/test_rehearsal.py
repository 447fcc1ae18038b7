"""What would fail after hours of training fails in a rehearsal, and a good run passes it and leaves nothing behind."""

from pathlib import Path

import pytest
import torch

from portcullis_training.config import RunConfig
from portcullis_training.errors import ConfigError
from portcullis_training.exporting import export, parity
from portcullis_training.exporting.parity import ParityError
from portcullis_training.exporting.rehearsal import rehearse
from portcullis_training.fitting.trial import Trial, trial
from portcullis_training.measuring import readings
from portcullis_training.recipes import RECIPES
from tests.training.photos import photos_config, write_photos, write_weights

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def tried(tmp_path_factory) -> tuple[Trial, RunConfig]:
    root = tmp_path_factory.mktemp("rehearsal")
    photos = write_photos(root / "photos", per_class=20)
    config = photos_config(photos, write_weights(root / "small.pt"), epochs=1)
    return trial(config, 1), config


def test_a_good_run_is_calibrated_exported_and_compared_and_leaves_nothing(tried, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    compared = []
    original = parity.check_parity
    monkeypatch.setattr(export, "check_parity", lambda *inputs: compared.append(original(*inputs)))
    assert rehearse(*tried) > 100_000
    assert len(compared) == 1
    assert list(Path(tmp_path).iterdir()) == []


def test_an_ensemble_is_tried_by_a_member_and_rehearsed_whole():
    fields = {"backbone": "small:4-8-16", "mixing": "none", "method": "softmax", "num_workers": 0, "epochs": 2}
    single = RECIPES["digits"].model_copy(update=fields)
    ensemble = single.model_copy(update={"members": 3})
    one, three = trial(single, 1), trial(ensemble, 1)
    assert rehearse(three, ensemble) > 0
    weights = one.classifier.state_dict()
    for member in three.classifier.backbone.members:
        assert all(torch.equal(value, weights[f"backbone.{name}"]) for name, value in member.state_dict().items())
    assert three.num_parameters == 3 * one.num_parameters
    assert three.num_run_steps == 3 * one.num_run_steps
    assert [stage.steps[0].loss for stage in three.stages] == [stage.steps[0].loss for stage in one.stages]
    with pytest.raises(ConfigError, match="looks at every image twice"):
        trial(ensemble.model_copy(update={"method": "godin_preprocessing"}), 1)


def test_what_export_refuses_a_rehearsal_refuses(tried):
    config = RunConfig(method="godin_preprocessing")
    with pytest.raises(ConfigError, match="godin_preprocessing cannot be exported: its score needs the gradient"):
        rehearse(tried[0], config)


def test_a_rehearsal_reads_few_images_and_no_set_twice(tried, monkeypatch):
    """A large network takes a second an image on a laptop, and a rehearsal is to be over before one loses patience."""
    sets, original = [], readings.in_batches
    monkeypatch.setattr(
        readings,
        "in_batches",
        lambda name, images, *others: sets.append((name, len(images))) or original(name, images, *others),
    )
    rehearse(*tried)
    assert {name for name, _ in sets} > {"test", "calibration"} and max(count for _, count in sets) <= 64
    assert len({name for name, _ in sets}) == len(sets)


def test_a_graph_that_computes_something_else_is_found_before_training(tried, monkeypatch):
    def other(served, image):
        served.temperature *= 2
        try:
            return to_onnx(served, image)
        finally:
            served.temperature /= 2

    to_onnx = export.to_onnx
    monkeypatch.setattr(export, "to_onnx", other)
    with pytest.raises(ParityError):
        rehearse(*tried)
