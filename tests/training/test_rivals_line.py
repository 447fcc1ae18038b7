"""Every method of the paper's tables goes the whole line on digits: trained, calibrated, measured, exported, served."""

from pathlib import Path

import numpy as np
import pytest
import torch

from portcullis.bundle.engine import Engine
from portcullis.bundle.files import load_bundle
from portcullis_training.config import RunConfig
from portcullis_training.data import as_array, to_float
from portcullis_training.errors import ConfigError
from portcullis_training.exporting.export import export
from portcullis_training.fitting import checkpoint
from portcullis_training.fitting.members import member_config
from portcullis_training.fitting.staged import is_trained, train
from portcullis_training.measuring.calibration import calibrate
from portcullis_training.measuring.evaluation import evaluate
from portcullis_training.measuring.trained import open_trained
from portcullis_training.recipes import RECIPES
from portcullis_training.runs.directory import Run, create_run

pytestmark = pytest.mark.slow

TINY = RECIPES["digits"].model_copy(
    update={
        "mixing": "none", "backbone": "small:8-16-24", "epochs": 3, "outside": ("noise:uniform",), "num_workers": 0,
        "score": "own", "weight_decay": 1e-4,
    }
)  # fmt: skip
OWN_SCORES = {
    "isomax": "negative_entropy", "scaled_cosine": "max_cosine", "godin": "max_h", "godin_dropout": "max_h",
    "duq": "max_logit", "sngp": "max_probability",
}  # fmt: skip


def evaluated(tmp_path: Path, **fields: object) -> Run:
    run = create_run(tmp_path / "runs", TINY.model_copy(update={"name": "rival", **fields}))
    train(run, show_progress=False)
    assert is_trained(run)
    calibrate(run)
    evaluate(run, time_cost=False)
    return run


def served(run: Run, tmp_path: Path) -> Engine:
    """Export proves parity with torch, on extreme images too, before it writes anything."""
    return Engine(load_bundle(export(run, tmp_path / "models").path))


@pytest.mark.parametrize("method", OWN_SCORES)
def test_a_rival_goes_the_whole_line(method: str, tmp_path: Path) -> None:
    averaging = 0.9 if method in ("sngp", "duq") else None  # what they set must fit what ships
    run = evaluated(tmp_path, method=method, weight_averaging=averaging, epochs=8)
    trained = open_trained(run)
    engine = served(run, tmp_path)
    answers = engine.run(as_array(trained.splits.test))
    assert (answers.probabilities.argmax(axis=1) == trained.splits.test.labels).mean() > 0.5
    readings = trained.readings_of("test", trained.splits.test)
    logits = readings.logits.astype(np.float64)
    probabilities = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    by_name = {
        "negative_entropy": (probabilities * np.log(np.maximum(probabilities, 1e-300))).sum(axis=1),
        "max_logit": logits.max(axis=1),
        "max_probability": probabilities.max(axis=1),
        "max_cosine": readings.beside.max(axis=1, initial=-1),
        "max_h": readings.beside.max(axis=1, initial=-1),
    }
    np.testing.assert_allclose(answers.scores, by_name[OWN_SCORES[method]], rtol=2e-3, atol=2e-3)


def test_preprocessing_is_evaluated_in_torch_and_export_says_why_it_refuses(tmp_path: Path) -> None:
    run = evaluated(tmp_path, method="godin_preprocessing")
    trained = open_trained(run)
    assert trained.classifier.head.epsilon.item() > 0  # type: ignore[union-attr, operator]
    assert trained.readings_of("test", trained.splits.test).beside.shape == (len(trained.splits.test), 10)
    with pytest.raises(ConfigError, match="godin_preprocessing cannot be exported: its score needs the gradient"):
        export(run, tmp_path / "models")


def test_preprocessing_has_the_very_network_of_godin(tmp_path: Path) -> None:
    """So that the score without preprocessing can be exported in its place, as its refusal says."""
    states = []
    for method in ("godin", "godin_preprocessing"):
        run = create_run(tmp_path, TINY.model_copy(update={"name": method, "method": method, "epochs": 1}))
        train(run, show_progress=False)
        states.append(checkpoint.load_classifier(run).state_dict())
    godin, preprocessing = states
    assert preprocessing.keys() - godin.keys() == {"head.epsilon"}
    assert all(torch.equal(tensor, preprocessing[name]) for name, tensor in godin.items())


def test_sngp_ships_the_precision_of_the_averaged_weights(tmp_path: Path) -> None:
    run = create_run(
        tmp_path, TINY.model_copy(update={"name": "sngp", "method": "sngp", "epochs": 2, "weight_averaging": 0.9})
    )
    train(run, show_progress=False)
    shipped, train_images = checkpoint.load_classifier(run), open_trained(run).splits.train
    last = shipped.state_dict().keys() & (saved := checkpoint.load(run.checkpoint_path).classifier).keys()
    assert any(not torch.equal(shipped.state_dict()[name], saved[name]) for name in last if name.endswith("beta"))
    with torch.inference_mode():
        features = shipped.features(to_float(torch.from_numpy(as_array(train_images))))
        phi = shipped.head.random_features(features).double().numpy()  # type: ignore[union-attr, operator]
    expected = np.linalg.inv(np.eye(phi.shape[1]) + phi.T @ phi)
    np.testing.assert_allclose(shipped.head.covariance.numpy(), expected, atol=1e-3)  # type: ignore[union-attr, operator]


def test_an_ensemble_is_served_as_one_graph_and_no_member_saw_held_out_images(tmp_path: Path) -> None:
    run = evaluated(tmp_path, method="softmax", members=2, seed=4)
    trained = open_trained(run)
    members = [open_trained(create_run(run.directory / "members", member_config(run.config, seed))) for seed in (4, 5)]
    assert {member.run.config.seed for member in members} == {4, 5}
    for member in members:
        assert member.splits.fingerprints == trained.splits.fingerprints
    test = trained.splits.test
    logits = [member.readings_of("test", test).logits.astype(np.float64) for member in members]
    shares = [np.exp(one) / np.exp(one).sum(axis=1, keepdims=True) for one in logits]
    assert np.abs(shares[0] - shares[1]).max() > 0.01, "two networks"
    answers = served(run, tmp_path).run(as_array(test))
    np.testing.assert_allclose(answers.scores, np.mean(shares, axis=0).max(axis=1), atol=1e-4)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"method": "duq", "mixing": "cutmix"}, "mixing: DUQ needs one label an image"),
        ({"method": "duq", "compile": True}, "compile: DUQ takes gradients of gradients"),
        ({"method": "godin_preprocessing", "members": 2}, "looks at every image twice"),
    ],
)
def test_what_a_method_cannot_do_is_refused_before_it_is_trained(
    fields: dict[str, object], message: str, tmp_path: Path
) -> None:
    config = RunConfig.model_validate({**TINY.model_dump(), **fields})
    with pytest.raises(ConfigError, match=message):
        train(create_run(tmp_path, config), show_progress=False)
