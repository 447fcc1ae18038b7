"""Recipes: the paper's are the paper's, and a config can neither be changed nor hold what it does not know."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from portcullis_training import backbones, methods
from portcullis_training.config import RunConfig, make_config
from portcullis_training.errors import ConfigError
from portcullis_training.recipes import RECIPES
from portcullis_training.runs.directory import read_config

NETWORKS = ("resnet34", "densenet-bc-100", "wrn-28-10")
PAPER = [f"{data}-{backbone}" for data in ("cifar10", "cifar100") for backbone in NETWORKS]


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_recipes_are_as_published(name):
    config = RECIPES[name]
    assert (config.learning_rate, config.momentum, config.weight_decay) == (0.1, 0.9, 1e-4)
    assert (config.batch_size, config.epochs, config.schedule) == (64, 300, "step")
    assert [round(fraction * config.epochs) for fraction in config.milestones] == [150, 200, 250]
    assert config.augmentation == "crop-flip" and config.decay_vectors and config.method == "dismax"
    assert config.is_fractional == (name != "cifar10-densenet-bc-100")
    near = {"cifar10": "cifar100", "cifar100": "cifar10"}[config.data]
    assert config.outside == (near, "tinyimagenet", "lsun", "svhn")


@pytest.mark.parametrize("backbone", NETWORKS)
def test_the_papers_recipes_for_tinyimagenet_are_as_published(backbone):
    config = RECIPES[f"tinyimagenet-{backbone}"]
    assert (config.data, config.image_size, config.epochs, config.mixing) == ("tinyimagenet", 64, 90, "none")
    assert [round(fraction * config.epochs) for fraction in config.milestones] == [30, 60]
    assert config.outside == ("imagenet-o", "cifar10", "cifar100", "svhn")


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_names_itself_and_parts_that_exist(name):
    config = RECIPES[name]
    assert config.name == name and config.method in methods.names()
    assert config.backbone.split(":")[0] in {known.split(":")[0] for known in backbones.names()}


def test_a_config_survives_json():
    for config in RECIPES.values():
        assert RunConfig.model_validate_json(config.model_dump_json()) == config


def test_a_config_is_frozen():
    with pytest.raises(ValidationError):
        RECIPES["digits"].epochs = 3


def test_contradictions_are_refused():
    with pytest.raises(ConfigError, match="rising fractions"):
        make_config({"progressive_resizing": ((0.6, 24), (0.3, 16))})
    with pytest.raises(ConfigError, match="resize_shorter_side: expected at least image_size"):
        make_config({"image_size": 224, "resize_shorter_side": 200})
    with pytest.raises(ConfigError, match="name: "):
        make_config({"name": "../elsewhere"})
    with pytest.raises(ConfigError, match="would overwrite the pretrained_weights"):
        make_config({"initialisation": "identity", "pretrained_weights": "download"})
    with pytest.raises(ConfigError, match="crop_pixels: augmentation none does not crop"):
        make_config({"augmentation": "none", "crop_pixels": 2})
    with pytest.raises(ConfigError, match="alternating_flips: augmentation crop does not flip"):
        make_config({"augmentation": "crop", "alternating_flips": True})
    with pytest.raises(ConfigError, match="members: networks that begin with the same frozen backbone"):
        make_config({"members": 2, "frozen": True, "pretrained_weights": "download"})


@pytest.mark.parametrize(("amp", "precision"), [(True, "auto"), (False, "float32")])
def test_a_config_from_before_the_precision_had_its_name_is_read(amp, precision):
    former = {name: value for name, value in RECIPES["digits"].model_dump().items() if name != "precision"}
    config = make_config({**former, "amp": amp})
    assert config == RECIPES["digits"].model_copy(update={"precision": precision})


@pytest.mark.parametrize(("is_fractional", "mixing"), [(True, "fractional"), (False, "none")])
def test_a_config_from_before_mixing_was_a_choice_is_read(is_fractional, mixing):
    former = {
        name: value for name, value in RECIPES["digits"].model_dump().items() if name not in ("mixing", "members")
    }
    config = make_config({**former, "fractional_regulariser": is_fractional})
    assert config == RECIPES["digits"].model_copy(update={"mixing": mixing})


@pytest.mark.parametrize("path", sorted((Path(__file__).parents[2] / "models").glob("*/*/config.json")), ids=str)
def test_the_config_of_every_shipped_bundle_is_a_recipe(path):
    assert read_config(path).name == path.parents[1].name
