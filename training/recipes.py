"""Named, frozen run configurations: everything that decides what a run computes is a field here."""

from __future__ import annotations

import difflib
import math
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from training.errors import ConfigError

Fraction = Annotated[float, Field(gt=0, le=1)]


class RunConfig(BaseModel):
    """One run, whole: saved as config.json beside its checkpoint. The defaults are the paper's recipe."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    name: str = Field("run", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    """Name of the run directory and of the bundle."""
    data: str = "cifar10"
    """Inside images: digits, cifar10, cifar100, svhn, mnist, fashion_mnist, folder:PATH, idx:PATH,
    npz:TRAIN.npz or npz:TRAIN.npz,TEST.npz, and grey: before any of these but a folder."""
    class_names: tuple[str, ...] | None = None
    """Human names of the classes, by class index; by default those that come with the data."""
    outside: tuple[str, ...] = ("noise:uniform", "noise:smooth", "constant", "shuffled")
    """Outside sets to be evaluated against: any data spec, noise:uniform, noise:smooth, constant, shuffled."""
    strict: bool = False
    """Stop at the first unreadable image instead of reporting it and going on."""
    seed: int = Field(0, ge=0)
    """Seed of the splits, the initial weights, the order of images and the augmentation."""

    validation_size: int = Field(5000, ge=1)
    """Images held out for the temperature."""
    calibration_size: int = Field(5000, ge=1)
    """Images held out for the gate, and never used for anything else."""
    test_size: int = Field(5000, ge=1)
    """Images held out for the test where the data come without a test set of their own."""
    image_size: int | None = Field(None, ge=8)
    """Height and width in pixels; by default that of the arrays, or 224 for a folder."""
    resize_shorter_side: int | None = Field(None, ge=8)
    """Resize the shorter side to this many pixels and crop the centre; by default stretch to image_size."""

    method: str = "dismax"
    """Head, loss and score: dismax, softmax, isomaxplus."""
    fractional_regulariser: bool = False
    """Train on compound images too (the paper's DisMax†)."""
    backbone: str = "densenet-bc-100"
    """resnet9, resnet9:24-48-96-192, resnet20, resnet34, densenet-bc-100, wrn-28-10, small, whitened,
    torchvision:NAME."""
    pretrained_weights: str | None = None
    """For torchvision backbones: a file of weights, or 'download'."""

    epochs: int = Field(300, ge=1)
    """Passes over the training images."""
    batch_size: int = Field(64, ge=1)
    """Images in a step, summed over all processes."""
    learning_rate: float = Field(0.1, gt=0)
    """Peak learning rate."""
    weight_decay: float = Field(1e-4, ge=0)
    """L2 penalty."""
    decay_vectors: bool = True
    """Whether the penalty is on every parameter alike, or only on matrices: not on biases, norms and the scale."""
    momentum: float = Field(0.9, gt=0, lt=1)
    """Nesterov momentum of SGD."""
    schedule: Literal["step", "one-cycle"] = "step"
    """step divides the learning rate by 10 at each milestone; one-cycle rises and falls once."""
    milestones: tuple[Fraction, ...] = (1 / 2, 2 / 3, 5 / 6)
    """Fractions of the epochs at which the step schedule divides: 150, 200, 250 of 300."""
    warmup: float = Field(0.0, ge=0, lt=1)
    """Fraction of the steps over which the learning rate rises to its peak."""
    augmentation: Literal["none", "crop", "crop-flip", "reflect-crop-flip", "resized-crop-flip"] = "crop-flip"
    """The paper's crop-flip: pad by an eighth, crop at random, mirror half of the images."""
    weight_averaging: float | None = Field(None, gt=0, lt=1)
    """Decay per step of the moving average of the weights that is evaluated and exported; none by default."""
    progressive_resizing: tuple[tuple[Fraction, int], ...] | None = None
    """(fraction of the epochs, pixels) pairs: train on smaller images up to each fraction."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto takes a GPU where there is one."""
    amp: bool = True
    """Mixed precision on CUDA; without effect on CPU."""
    compile: bool = False
    """Compile the classifier with torch.compile."""
    num_workers: int = Field(2, ge=0)
    """Processes that decode the images of a folder."""

    score_temperature: Literal["one", "calibrated"] = "one"
    """Whether the score is computed on the logits, as in the paper's tables, or on logits / temperature."""

    @model_validator(mode="after")
    def _crop_fits(self) -> RunConfig:
        if self.resize_shorter_side is not None and (self.image_size or math.inf) > self.resize_shorter_side:
            raise ValueError(
                f"resize_shorter_side: expected at least image_size {self.image_size}, which must be given"
            )
        return self

    @model_validator(mode="after")
    def _progressive_resizing_rises(self) -> RunConfig:
        fractions = [fraction for fraction, _ in self.progressive_resizing or ()]
        if fractions != sorted(set(fractions)):
            raise ValueError(f"progressive_resizing: expected rising fractions of the epochs, got {fractions}")
        return self


def make_config(fields: dict[str, Any]) -> RunConfig:
    """A checked config; an unknown field is refused by name, with the nearest one that exists."""
    unknown = sorted(set(fields) - set(RunConfig.model_fields))
    if unknown:
        nearest = difflib.get_close_matches(unknown[0], RunConfig.model_fields, n=1)
        hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
        raise ConfigError(f"unknown config field {unknown[0]!r}{hint}")
    try:
        return RunConfig.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "config"
        raise ConfigError(f"{field}: {first['msg']}, got {first['input']!r}") from None


_ONE_CYCLE: dict[str, Any] = {"schedule": "one-cycle", "warmup": 0.25}
_CIFAR10_ON_CPU: dict[str, Any] = {
    "data": "cifar10", "outside": ("cifar100", "svhn", "noise:smooth"), **_ONE_CYCLE, "batch_size": 256,
    "learning_rate": 0.4, "weight_decay": 5e-4, "decay_vectors": False, "augmentation": "reflect-crop-flip",
    "weight_averaging": 0.99, "validation_size": 2500, "calibration_size": 5000,
    "image_size": 32, "resize_shorter_side": 32,  # the service crops a photograph instead of squeezing it
}  # fmt: skip

RECIPES: dict[str, RunConfig] = {
    "digits": RunConfig(
        name="digits", data="digits", backbone="small", fractional_regulariser=True, **_ONE_CYCLE, epochs=30,
        batch_size=64, learning_rate=0.1, weight_decay=5e-3, augmentation="crop", validation_size=200,
        calibration_size=250, test_size=360,
    ),
    "cifar10-resnet9": RunConfig(
        name="cifar10-resnet9", backbone="resnet9", **_CIFAR10_ON_CPU, epochs=40,
    ),
    "cifar10-whitened": RunConfig(
        name="cifar10-whitened", backbone="whitened:64-256-256", **_CIFAR10_ON_CPU, epochs=22,
        progressive_resizing=((0.6, 24),),
    ),
    "fashion-mnist": RunConfig(
        name="fashion-mnist", data="fashion_mnist", outside=("mnist", "grey:cifar10"), backbone="resnet9",
        class_names=(
            "T-shirt/top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot",
        ),
        **_ONE_CYCLE, epochs=10, batch_size=256, learning_rate=0.4, weight_decay=5e-4, decay_vectors=False,
        augmentation="reflect-crop-flip", weight_averaging=0.99, progressive_resizing=((0.5, 20),),
        validation_size=2500,
    ),
    "imagenet-resnet18": RunConfig(
        name="imagenet-resnet18", data="folder:imagenet", backbone="torchvision:resnet18", epochs=90,
        milestones=(1 / 3, 2 / 3), image_size=224, resize_shorter_side=256, augmentation="resized-crop-flip",
        num_workers=8,
    ),
}  # fmt: skip

for _data, _near in (("cifar10", "cifar100"), ("cifar100", "cifar10")):
    for _backbone in ("resnet34", "densenet-bc-100", "wrn-28-10"):
        _name = f"{_data}-{_backbone}"
        RECIPES[_name] = RunConfig(name=_name, data=_data, backbone=_backbone, outside=(_near, "svhn", "noise:smooth"))
