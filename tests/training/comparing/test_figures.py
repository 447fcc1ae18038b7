"""The loss landscape by its definition, and the figures of runs as files."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from portcullis_training import backbones, methods
from portcullis_training.__main__ import main
from portcullis_training.comparing.compare import parse_variant, twin_config
from portcullis_training.comparing.figures import run_title
from portcullis_training.comparing.landscape import filter_normalised, landscape
from portcullis_training.config import RunConfig
from portcullis_training.data import ArrayImages, to_float
from portcullis_training.fitting.classifier import Classifier
from portcullis_training.runs.directory import Run


def tiny_classifier() -> Classifier:
    torch.manual_seed(0)
    backbone = backbones.build("small:3-4-5")
    return Classifier(backbone, methods.find("dismax").make_head(5, 3), (0.5,) * 3, (0.2,) * 3).eval()


def test_every_filter_of_a_direction_is_as_long_as_that_of_the_weights() -> None:
    classifier = tiny_classifier()
    direction = filter_normalised(classifier, torch.Generator().manual_seed(0))
    for name, weights in classifier.named_parameters():
        assert (name in direction) == (weights.ndim > 1), name
        if name in direction:
            for drawn, own in zip(direction[name], weights.detach(), strict=True):
                assert drawn.norm().item() == pytest.approx(own.norm().item(), rel=1e-4)
                cosine = (drawn * own).sum() / drawn.norm() / own.norm()
                assert abs(cosine) < 0.999, "a direction of its own"


def test_the_middle_of_a_landscape_is_the_loss_and_the_weights_are_left_as_they_were() -> None:
    classifier, method = tiny_classifier(), methods.find("dismax")
    random = np.random.default_rng(0)
    images = ArrayImages(random.integers(0, 256, (6, 8, 8, 3), dtype=np.uint8), np.arange(6) % 3)
    before = {name: tensor.clone() for name, tensor in classifier.state_dict().items()}
    places, losses = landscape(classifier, method, images, num_places=3)
    for name, tensor in classifier.state_dict().items():
        assert torch.equal(tensor, before[name]), name
    floats, labels = to_float(torch.from_numpy(images.images)), torch.from_numpy(images.labels)
    assert losses[1, 1] == pytest.approx(method.loss(classifier(floats), labels).item(), rel=1e-5)

    generator = torch.Generator().manual_seed(0)
    first, second = (filter_normalised(classifier, generator) for _ in range(2))
    with torch.no_grad():
        for name, weights in classifier.named_parameters():
            if name in first:
                weights += float(places[0]) * first[name] + float(places[2]) * second[name]
    assert losses[0, 2] == pytest.approx(method.loss(classifier(floats), labels).item(), rel=1e-4)


def test_runs_that_differ_in_mixing_or_members_alone_have_titles_of_their_own() -> None:
    variants = ["isomaxplus", "isomaxplus+cutmix", "isomaxplus+fractional", "isomaxplus×2"]
    runs = [Run(Path(name), twin_config(RunConfig(), parse_variant(name), 0)) for name in variants]
    assert [run_title(run) for run in runs] == ["IsoMax+", "IsoMax+, CutMix", "IsoMax+†", "IsoMax+ ×2"]


def test_a_landscape_of_one_place_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["figures", "run", "--output", "figures", "--places", "1"]) == 1
    assert "argument --places: expected at least 2" in capsys.readouterr().err


@pytest.mark.slow
def test_the_command_draws_what_the_paper_draws(evaluated_run: Run, tmp_path: Path) -> None:
    output = tmp_path / "figures"
    assert main(["figures", str(evaluated_run.directory), "--output", str(output), "--places", "3"]) == 0
    names = {"landscape-contours.png", "landscape-surfaces.png", "compound.png", "mean-logits-tiny-digits.png"}
    assert {path.name for path in output.iterdir()} == names | {"landscapes.json"}
    assert all((output / name).read_bytes().startswith(b"\x89PNG") for name in names)
    raw = json.loads((output / "landscapes.json").read_text())
    assert np.array(raw["DisMax†"]["losses"]).shape == (3, 3)
    twice = [str(evaluated_run.directory)] * 2
    assert main(["figures", *twice, "--output", str(output), "--places", "3"]) == 1
