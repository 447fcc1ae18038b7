"""Frozen first, then as a whole: what is kept, what is decided by time, and that a stopped run goes on."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from portcullis.bundle.manifest import ImageSpec
from portcullis_training import methods
from portcullis_training.config import make_config
from portcullis_training.data.outside import num_made
from portcullis_training.data.photo_crops import PhotoCrops, crop
from portcullis_training.data.read_later import num_read_later
from portcullis_training.data.statistics import ChannelStatistics
from portcullis_training.errors import CheckpointError, ConfigError
from portcullis_training.fitting import checkpoint, fit, frozen, plan, staged
from portcullis_training.fitting.classifier import build_classifier
from portcullis_training.fitting.distributed import Process
from portcullis_training.fitting.frozen_head import train_head
from portcullis_training.fitting.objective import Material
from portcullis_training.fitting.plan import PLAN, Plan, planned
from portcullis_training.fitting.preparation import make_optimizer
from portcullis_training.fitting.staged import FINE_TUNED, STAGES, is_trained, train
from portcullis_training.fitting.step import TrainingStep
from portcullis_training.measuring.calibration import calibrate_by
from portcullis_training.measuring.evaluation import measure
from portcullis_training.measuring.predictions import of_readings
from portcullis_training.measuring.temperature import unfitted
from portcullis_training.measuring.trained import open_trained
from portcullis_training.recipes import RECIPES
from portcullis_training.runs.directory import Run, create_run
from tests.training.fitting.interrupts import interrupt_after
from tests.training.photos import photos_config, write_photos, write_weights

pytestmark = pytest.mark.slow
SMALL = ImageSpec(height=32, width=32)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def photos(tmp_path_factory) -> Path:
    return write_photos(tmp_path_factory.mktemp("photos"), per_class=30)


@pytest.fixture(scope="module")
def weights(tmp_path_factory) -> Path:
    return write_weights(tmp_path_factory.mktemp("weights") / "small.pt")


@pytest.fixture
def make(tmp_path, photos, weights):
    def make_run(**fields) -> Run:
        return create_run(tmp_path / "runs", photos_config(photos, weights, **fields))

    return make_run


def stages_of(run: Run) -> staged.Stages:
    return STAGES.read(run, staged._origins(run))


def test_a_frozen_run_learns_from_remembered_features_and_changes_no_backbone(make, weights):
    run = make()
    history = train(run, show_progress=False)
    assert len(history) == 1 and history[0]["accuracy"] > 0.9
    state = checkpoint.load_classifier(run).state_dict()
    pretrained = torch.load(weights)
    assert torch.equal(state["backbone.body.conv_stem.weight"], pretrained["conv_stem.weight"])
    assert torch.equal(state["backbone.body.bn1.running_mean"], pretrained["bn1.running_mean"])
    assert is_trained(run) and stages_of(run).kept == frozen.STAGE


def test_logits_by_the_head_alone_are_those_of_the_whole_classifier(make):
    run = make()
    train(run, show_progress=False)
    trained = open_trained(run)
    images = trained.splits.test
    pixels = next(images.batches([np.arange(len(images))]))[0]
    with torch.inference_mode():
        expected = trained.classifier(pixels.permute(0, 3, 1, 2) / 255)
    np.testing.assert_allclose(trained.readings_of("test", images).logits, expected.numpy(), atol=1e-4, rtol=1e-4)


def test_a_second_run_on_the_same_photos_encodes_nothing(make, monkeypatch):
    train(make(), show_progress=False)
    monkeypatch.setattr("portcullis_training.fitting.encoding.encoder_session", lambda *_: pytest.fail("encoded again"))
    train(make(name="again", seed=1), show_progress=False)


def test_fine_tuning_changes_the_whole_and_keeps_files_of_its_own(make):
    run = make(epochs=2)
    history = train(run, show_progress=False)
    assert [row["epoch"] for row in history] == [0, 1, 2]
    states = [checkpoint.load(run.at(stage).checkpoint_path).classifier for stage in (frozen.STAGE, FINE_TUNED)]
    assert not torch.equal(*(state["backbone.body.conv_head.weight"] for state in states))
    assert is_trained(run) and stages_of(run).epochs == 2


def test_fine_tuning_at_no_rate_changes_nothing(make):
    """Batch norm alone, by the statistics of a few small batches of crops, made answers wrong that had been right."""
    run = make(epochs=1, learning_rate=1e-30)
    train(run, show_progress=False)
    before = checkpoint.load(run.at(frozen.STAGE).checkpoint_path).classifier
    fine_tuned = run.at(FINE_TUNED)
    trained, averaged = checkpoint.load(fine_tuned.checkpoint_path).classifier, checkpoint.load_classifier(fine_tuned)
    for state in (trained, averaged.state_dict()):
        torch.testing.assert_close(dict(state), before, rtol=0, atol=1e-12)


def test_fine_tuning_leaves_the_first_layers_as_they_came(make, weights):
    run = make(epochs=1, fixed_stride=8)
    train(run, show_progress=False)
    state, pretrained = checkpoint.load(run.at(FINE_TUNED).checkpoint_path).classifier, torch.load(weights)
    is_kept = {name: torch.equal(state[f"backbone.body.{name}.weight"], pretrained[f"{name}.weight"]) for name in (
        "conv_stem", "bn1", "blocks.0.0.conv", "conv_head"
    )}  # fmt: skip
    assert is_kept == {"conv_stem": True, "bn1": True, "blocks.0.0.conv": True, "conv_head": False}


@pytest.mark.parametrize(
    ("accuracies", "kept"), [((0.8, 0.9), FINE_TUNED), ((0.9, 0.9), "frozen"), ((0.9, 0.8), "frozen")]
)
def test_the_frozen_result_is_kept_unless_fine_tuning_beats_it(make, accuracies, kept):
    run = make(epochs=2)
    for stage in (frozen.STAGE, FINE_TUNED):
        run.at(stage).checkpoint_path.write_text(stage)
    first, last = ({"validation_accuracy": value, "seconds": 1.0, "encoding_seconds": 1.0} for value in accuracies)
    staged._finish(run, Plan(epochs=2, reason="a test"), [first, last])
    assert run.checkpoint_path.read_text() == kept
    assert stages_of(run).kept == kept and stages_of(run).fine_tuned_validation_accuracy == accuracies[1]


def test_a_run_that_is_stopped_while_fine_tuning_goes_on_to_the_same_weights(make, monkeypatch):
    whole, stopped = make(name="whole", epochs=2), make(name="stopped", epochs=2)
    train(whole, show_progress=False)
    with monkeypatch.context() as patch:
        interrupt_after(patch, 3)
        with pytest.raises(fit.Interrupted):
            train(stopped, show_progress=False)
    assert stopped.checkpoint_path.exists() and not is_trained(stopped)  # the frozen result could be served meanwhile
    assert len(train(stopped, show_progress=False)) == 3
    first, second = (checkpoint.load(run.at(FINE_TUNED).checkpoint_path).classifier for run in (whole, stopped))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_other_photos_than_those_of_the_frozen_stage_are_refused(make, tmp_path):
    train(make(), show_progress=False)
    other = make(name="other", split_seed=7)
    (other.directory / "frozen.pt").write_bytes((tmp_path / "runs" / "small-photos" / "frozen.pt").read_bytes())
    with pytest.raises(CheckpointError, match="are not those that"):
        train(other, show_progress=False)


@pytest.mark.parametrize(
    ("seconds_left", "epoch_seconds", "epochs"),
    [(1000, 60, 12), (300, 60, 5), (179, 60, 0), (-20, 60, 0), (190, 60, 3)],
)
def test_time_decides_how_many_epochs(seconds_left, epoch_seconds, epochs):
    decided = planned(12, seconds_left, epoch_seconds, "float32")
    assert decided.epochs == epochs and f"{epoch_seconds / 60:.1f} minutes here" in decided.reason
    assert ("too few" in decided.reason) == (epochs == 0)


def test_minutes_count_what_was_spent_and_what_is_still_to_come(make, monkeypatch):
    run = make(epochs=12, minutes=10, batch_size=10)
    monkeypatch.setattr(plan, "_timed", lambda *_: (3.0, 20, "float32"))  # 3 s a step, 20 steps an epoch
    monkeypatch.setattr(plan, "num_read_later", lambda *_: 300)
    decided = plan.make_plan(run, None, fit.Start({}, None), seconds_spent=200.0)
    # 600 − 200 − 30 batches of a third of 3 s = 370 s: six epochs of a minute.
    assert decided.epochs == 6 and decided.epoch_seconds == 60


def test_what_the_command_did_before_counts_too(make, monkeypatch):
    spent = []
    monkeypatch.setattr(staged, "make_plan", lambda *given: spent.append(given[-1]) or Plan(epochs=0, reason="a test"))
    train(make(minutes=10, epochs=3), show_progress=False, seconds_before=1000.0)
    assert spent[0] > 1000


def test_what_is_read_after_training_is_what_the_stages_really_read(make, monkeypatch):
    """A budget that forgets the strangers of the score is overdrawn by minutes."""
    run = make(outside=("shuffled", "constant"))
    train(run, show_progress=False)
    trained = open_trained(run)
    sets: dict[str, int] = {}

    def read(name, images):
        sets[name] = len(images)
        return trained.readings_of(name, images)

    counting = replace(trained, read=read, readings_of=read)
    calibration, score = calibrate_by(counting, unfitted)
    predict = of_readings(read, trained.method, calibration.temperature, score, calibration.ablation)
    measure(predict, trained.splits.test, counting.outside_sets(), calibration.operating_points, checkpoint="0" * 64)
    sets.pop("validation images for the score", None)  # the validation images once more, whose features are kept
    num_shuffled = len(trained.splits.test)  # as many as there are to be shuffled, at most 400
    assert num_read_later(trained.splits, run.config) == sum(sets.values()) + num_made(SMALL) - num_shuffled
    own = run.config.model_copy(update={"score": "own", "outside": ()})
    assert num_read_later(trained.splits, own) == sum(map(len, trained.splits.held_out))


def test_both_stages_count_right_answers_alike(make):
    """As a mean in float32, 2 of 3 is more than 2 of 3: a tie would be taken for a gain, or a gain for a tie."""
    run = make()
    (row,) = train(run, show_progress=False)
    num_images = len(open_trained(run).splits.validation)
    assert row["validation_accuracy"] == round(row["validation_accuracy"] * num_images) / num_images
    features, labels = torch.eye(3), torch.tensor([0, 1, 0])
    head = SimpleNamespace(head=lambda rows: rows)
    assert frozen._accuracy(head, features, labels) == 2 / 3


def test_the_plan_is_measured_once_and_kept(make, monkeypatch):
    run = make(epochs=3, minutes=60)
    train(run, show_progress=False)
    found = PLAN.path(run).read_text()
    assert Plan.model_validate_json(found[found.index('"content": ') + 11 : found.rindex("}")]).epoch_seconds > 0
    monkeypatch.setattr(plan, "_timed", lambda *_: pytest.fail("measured again"))
    train(run, show_progress=False)


def test_stages_that_make_no_sense_are_refused():
    for fields, message in (
        ({"frozen": True}, "needs pretrained_weights"),
        ({"epochs": 0}, "epochs: 0 goes with frozen only"),
        ({"minutes": 3}, "minutes: goes with frozen only"),
        ({"keep_norms": True}, "keep_norms: a network without pretrained_weights has nothing to keep"),
        ({"fixed_stride": 16}, "fixed_stride: a network without pretrained_weights has nothing to keep"),
    ):
        with pytest.raises(ConfigError, match=message):
            make_config(fields)


EXAMPLES = sorted((Path(__file__).parents[3] / "docs" / "examples").glob("*.jpg"))


def crops_of_the_examples(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Of every example four, a class an example: float32 NCHW, and labels."""
    crops = [
        crop(path.read_bytes(), 100 * seed + number, PhotoCrops(0.3, 0), (96, 96), "bicubic")
        for path in EXAMPLES for number in range(4)
    ]  # fmt: skip
    pixels = torch.from_numpy(np.stack([np.array(one) for one in crops]))
    return pixels.permute(0, 3, 1, 2) / 255, torch.arange(len(EXAMPLES)).repeat_interleave(4)


def moved_by_the_first_steps(config) -> float:
    """How far ten steps move the features of other crops, in their own deviations."""
    method = methods.find("dismax")
    torch.manual_seed(0)
    classifier = build_classifier(config, len(EXAMPLES), ChannelStatistics((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))).eval()
    classifier.backbone.keeps_norms = config.keep_norms
    (images, labels), (others, _) = crops_of_the_examples(0), crops_of_the_examples(1)
    with torch.no_grad():
        known, before = classifier.features(images), classifier.features(others)
    train_head(classifier.head, method, known, labels, seed=0)
    step = TrainingStep(
        method, classifier.train(), make_optimizer(classifier, config), Process(0, 1, torch.device("cpu")), "float32"
    )
    for _ in range(10):
        step.take(Material(images, labels, labels.new_zeros(0, 1)), config.learning_rate)
    with torch.no_grad():
        after = classifier.eval().features(others)
    return float(((after - before).norm(dim=1) / (before - before.mean(dim=0)).norm(dim=1)).mean())


def test_the_first_steps_of_fine_tuning_leave_features_about_where_they_were():
    """AdamW's steps are of the whole rate in every weight, however small the gradient of photos known by heart."""
    assert moved_by_the_first_steps(RECIPES["photos"]) < 0.5
