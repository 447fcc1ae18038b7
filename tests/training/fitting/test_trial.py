"""A trial trains as `fit` trains, and the networks of the paper's recipes pass one on real images."""

from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from portcullis_training.__main__ import main
from portcullis_training.config import make_config
from portcullis_training.data.read_later import num_read_later
from portcullis_training.errors import FitError
from portcullis_training.fitting import fit, trial
from portcullis_training.fitting.memory import Portions
from portcullis_training.recipes import RECIPES
from portcullis_training.runs.directory import create_run
from tests.training.photos import photos_config, write_photos, write_weights

TINY = RECIPES["digits"].model_copy(
    update={"backbone": "small:4-8-8", "epochs": 2, "batch_size": 256, "device": "cpu", "precision": "float32"}
)
EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"
FEW_IMAGES = {
    "batch_size": 4, "validation_size": 1, "calibration_size": 1, "test_size": 1, "num_workers": 0,
    "precision": "float32",
}  # fmt: skip


def test_the_losses_of_a_trial_are_those_of_the_run(tmp_path: Path) -> None:
    tried = trial.trial(TINY, 100)
    (stage,) = tried.stages
    assert len(stage.steps) == 3 and tried.num_run_steps == 6  # 987 images; a trial ends with the epoch
    epoch = fit.fit(create_run(tmp_path, TINY), show_progress=False)[0]
    assert sum(step.loss for step in stage.steps) / 3 == pytest.approx(epoch["loss"], rel=1e-6)


def test_the_time_of_a_run_is_told_by_the_steps_after_the_first() -> None:
    steps = tuple(trial.TrialStep(2.3, seconds) for seconds in (60.0, 2.0, 9.0, 2.0))
    assert trial.TrialStage(None, 1000, steps).run_seconds == 2000
    assert trial.TrialStage(None, 1000, steps[:1]).run_seconds == 60000


def test_the_time_of_a_run_counts_every_image_size_at_its_own_pace() -> None:
    config = TINY.model_copy(update={"epochs": 10, "progressive_resizing": ((0.6, 4), (0.8, 6))})
    sizes = []
    original = fit.Fitting.train_step

    def train_step(self, images, labels):
        sizes.append(images.shape[2])
        original(self, images, labels)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fit.Fitting, "train_step", train_step)
        tried = trial.trial(config, 2)
    assert sizes == [4, 4, 6, 6, 8, 8]
    assert [stage.num_run_steps for stage in tried.stages] == [18, 6, 6] and tried.num_run_steps == 30
    assert tried.run_seconds == pytest.approx(sum(stage.run_seconds for stage in tried.stages))
    assert tried.run_seconds == pytest.approx(
        18 * tried.stages[0].steps[1].seconds
        + 6 * (tried.stages[1].steps[1].seconds + tried.stages[2].steps[1].seconds)
    )


def test_a_trial_that_diverges_says_so() -> None:
    with pytest.raises(FitError, match="the loss of step 2 is nan"):
        trial.trial(TINY.model_copy(update={"learning_rate": 1e30, "warmup": 0.0, "method": "softmax"}), 3)


def test_the_command_prints_every_step_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    tiny = ["try", "--recipe", "digits", "--backbone", "small:4-8-8", "--batch-size", "256", "--device", "cpu"]
    assert main([*tiny, "--steps", "2"]) == 0
    shown = capsys.readouterr().out
    assert "step 2: loss" in shown and "step 3" not in shown and "the whole run of 90 steps" in shown
    assert "calibrated, exported and compared with torch" in shown
    assert list(tmp_path.iterdir()) == []
    assert main([*tiny, "--steps", "none"]) == 1
    assert "expected a whole number from 1, got 'none'" in capsys.readouterr().err


def assert_learns(fields: dict[str, Any]) -> None:
    """The first step of the recipe moves the loss of the second away from that of a network which stands still."""
    moving, standing = (
        trial.trial(make_config({**fields, **rate}), 2).stages[0].steps for rate in ({}, {"learning_rate": 1e-12})
    )
    assert 0 < moving[0].loss < 6 and moving[0].loss == pytest.approx(standing[0].loss, rel=1e-4)
    assert abs(moving[1].loss - standing[1].loss) > 0.01


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cifar10-resnet34", "cifar10-densenet-bc-100", "cifar10-wrn-28-10"])
def test_the_papers_networks_train_on_real_digits(name: str) -> None:
    """CIFAR itself is not in the repository; docs/training.md has the same command on it."""
    fields = {**RECIPES[name].model_dump(), **FEW_IMAGES, "data": "digits", "image_size": 32, "device": "cpu"}
    assert_learns(fields)


def two_classes_of_photographs(root: Path, share: float = 1.0) -> None:
    """The upper left share of each: whole and cut photographs are no duplicates."""
    for index, source in enumerate(sorted(EXAMPLES.glob("*.jpg"))):
        folder = root / ("sky" if source.stem in ("galaxies", "rocket") else "ground")
        folder.mkdir(parents=True, exist_ok=True)
        with Image.open(source) as opened:
            photograph = opened.crop((0, 0, int(share * opened.width), int(share * opened.height)))
            for turn in range(3):  # of each photograph three, so that held-out splits and a step of four can be filled
                photograph.rotate(90 * turn, expand=True).save(folder / f"{index}-{turn}.jpg")


@pytest.mark.slow
def test_the_papers_imagenet_recipe_trains_on_real_photographs(tmp_path: Path) -> None:
    two_classes_of_photographs(tmp_path)
    fields = {**RECIPES["imagenet-resnet18"].model_dump(), **FEW_IMAGES, "data": f"folder:{tmp_path}", "device": "cpu"}
    assert_learns(fields)


@pytest.mark.slow
def test_the_papers_tinyimagenet_recipe_trains_on_photographs_laid_out_as_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One network; the others of the paper are tried on digits above."""
    two_classes_of_photographs(tmp_path / "tinyimagenet" / "train")
    two_classes_of_photographs(tmp_path / "tinyimagenet" / "val", share=0.4)
    monkeypatch.setenv("PORTCULLIS_DATA", str(tmp_path))
    assert_learns({**RECIPES["tinyimagenet-densenet-bc-100"].model_dump(), **FEW_IMAGES, "device": "cpu"})


def test_a_trial_of_photos_encodes_and_validates_as_the_run_would(tmp_path: Path) -> None:
    """Memory may run out there, where the run would be by then: hours in."""
    config = photos_config(
        write_photos(tmp_path / "photos", per_class=20), write_weights(tmp_path / "small.pt"), epochs=2
    )
    asked = []
    original = Portions.run

    def run(self, function, images):
        asked.append((self.num_images, len(images)))
        return original(self, function, images)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Portions, "run", run)
        tried = trial.trial(config, 1)
    *encoding, validation = asked
    assert encoding == 2 * [(32, len(tried.splits.train))] and validation == (16, len(tried.splits.validation))
    num_photos = sum(map(len, (tried.splits.train, *tried.splits.held_out)))
    assert tried.encoding_seconds > 0 and tried.later_seconds / tried.encoding_seconds == pytest.approx(
        num_read_later(tried.splits, config) / num_photos
    )
    assert tried.run_seconds > tried.encoding_seconds + tried.later_seconds
    assert len(tried.stages[0].steps) == 1
