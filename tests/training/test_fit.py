"""The loop: a resumed run equals an uninterrupted one to the bit, and whatever stops a run leaves a good checkpoint."""

import json
import os
import signal

import pytest
import torch
from PIL import Image

from training import checkpoint, fit, interrupt, precision, preparation
from training.checkpoint import load_classifier
from training.errors import CheckpointError, FitError
from training.interrupt import InterruptRequest
from training.objective import objective
from training.recipes import RECIPES, RunConfig
from training.runs import Run, create_run

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
        patch.setattr(fit, "objective", noisy_objective)
        fit.fit(run, show_progress=False)
    return run


def interrupt_after(monkeypatch, num_steps: int) -> None:
    """Ctrl-C, as the kernel delivers it, in the middle of a given step."""
    original, steps = fit.Fitting.train_step, []

    def train_step(self, images, labels):
        original(self, images, labels)
        steps.append(1)
        if len(steps) == num_steps:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(fit.Fitting, "train_step", train_step)


@pytest.mark.parametrize("num_steps", [3, 7, 9], ids=["within epoch 1", "at the end of epoch 1", "within epoch 2"])
def test_a_resumed_run_has_the_weights_of_an_uninterrupted_one(tmp_path, monkeypatch, uninterrupted, num_steps):
    run = tiny(tmp_path, weight_averaging=0.9, progressive_resizing=((0.5, 6),))
    monkeypatch.setattr(fit, "objective", noisy_objective)
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
    original = fit.objective

    def poisoned(*arguments, **options):
        result = original(*arguments, **options)
        return result._replace(loss=result.loss * float("nan"))

    monkeypatch.setattr(fit, "objective", poisoned)
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


@pytest.mark.slow
def test_a_folder_is_trained_on_with_random_boxes_of_images_decoded_in_worker_processes(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for label, brightness in (("dark", 40), ("light", 200)):
        (tmp_path / "images" / label).mkdir(parents=True)
        for index in range(20):
            image = Image.new("RGB", (30 + index, 50 - index), (brightness + index,) * 3)
            image.save(tmp_path / "images" / label / f"{index}.png")
    sizes = {"validation_size": 4, "calibration_size": 4, "test_size": 4, "image_size": 16, "resize_shorter_side": 20}
    options = {
        "augmentation": "resized-crop-flip",
        "epochs": 6,
        "batch_size": 8,
        "learning_rate": 0.05,
        "num_workers": 1,
    }
    run = tiny(tmp_path, data=f"folder:{tmp_path / 'images'}", **sizes, **options)
    history = fit.fit(run, show_progress=False)
    assert history[-1]["accuracy"] > 0.9
    assert load_classifier(run)(torch.rand(1, 3, 16, 16)).shape == (1, 2)


def test_mixed_precision_is_for_cuda_only(monkeypatch):
    config = RunConfig(amp=True)
    assert precision.amp_dtype(config, torch.device("cpu")) is None
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: True)
    assert precision.amp_dtype(config, torch.device("cuda")) == torch.bfloat16
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: False)
    assert precision.amp_dtype(config, torch.device("cuda")) == torch.float16
    assert precision.amp_dtype(RunConfig(amp=False), torch.device("cuda")) is None


def test_weight_decay_can_spare_what_is_not_a_matrix(tmp_path):
    from training.classifier import ChannelStatistics, build_classifier

    statistics = ChannelStatistics((0.5, 0.5, 0.5), (0.2, 0.2, 0.2))
    classifier = build_classifier(TINY, 10, statistics)
    decayed, others = preparation.parameter_groups(classifier, TINY.model_copy(update={"decay_vectors": False}))
    assert {p.ndim > 1 for p in decayed["params"]} == {True}
    assert {p.ndim > 1 for p in others["params"]} == {False}
    assert others["weight_decay"] == 0 and decayed["weight_decay"] == TINY.weight_decay
    everything, nothing = preparation.parameter_groups(classifier, TINY)
    assert len(everything["params"]) == len(list(classifier.parameters())) and nothing["params"] == []


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
