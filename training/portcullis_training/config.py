"""The configuration of a run, frozen: everything that decides what a run computes is a field here."""

from __future__ import annotations

import difflib
import math
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from portcullis.bundle.manifest import Name
from portcullis_training.errors import ConfigError

FORMER_FIELDS = ("amp", "fractional_regulariser")
Fraction = Annotated[float, Field(gt=0, le=1)]
Size = Annotated[int, Field(ge=1)] | Annotated[float, Field(gt=0, lt=1)]


class RunConfig(BaseModel):
    """One run, whole: saved as config.json beside its checkpoint. The defaults are the paper's recipe."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    name: Name = "run"
    """Name of the run directory and of the bundle."""
    data: str = "cifar10"
    """In-distribution images: digits, cifar10, cifar100, svhn, mnist, fashion_mnist, tinyimagenet, folder:PATH,
    idx:PATH, npz:TRAIN.npz or npz:TRAIN.npz,TEST.npz, and grey: before any of these but a folder."""
    class_names: tuple[str, ...] | None = None
    """Human names of the classes, by class index; by default those that come with the data."""
    outside: tuple[str, ...] = ("noise:uniform", "noise:smooth", "constant", "shuffled")
    """Out-of-distribution (OOD) sets to be evaluated against: any data spec, lsun, imagenet-o, noise:uniform,
    noise:smooth, constant, shuffled."""
    strict: bool = False
    """Stop at the first unreadable image instead of reporting it and going on."""
    seed: int = Field(0, ge=0)
    """Seed of the initial weights, the order of images and the augmentation."""
    split_seed: int | None = Field(None, ge=0)
    """Seed of the splits; by default that of everything else. All members of an ensemble have the same."""

    validation_size: Size = 5000
    """Images held out for the temperature: how many, or which share (0.1)."""
    calibration_size: Size = 5000
    """Images held out for the gate, and never used for anything else: how many, or which share."""
    test_size: Size = 5000
    """Images held out for the test where the data come without a test set of their own: how many, or which share."""
    image_size: int | None = Field(None, ge=8, le=4096)
    """Height and width in pixels; by default that of the arrays, or 224 for a folder."""
    resize_shorter_side: int | None = Field(None, ge=8, le=4096)
    """Resize the shorter side to this many pixels and crop the centre; by default stretch to image_size."""
    interpolation: Literal["bilinear", "bicubic"] = "bilinear"
    """How photos of a folder are resized, in training and by the service; pretrained weights have their own."""

    method: str = "dismax"
    """Head, loss and score: dismax, softmax, isomax, isomaxplus, scaled_cosine, godin, godin_dropout,
    godin_preprocessing, duq, sngp."""
    mixing: Literal["none", "fractional", "cutmix"] = "none"
    """Training images made of several: fractional trains on compound images too (the paper's DisMax†), cutmix puts a
    box of one image into another in half of the batches."""
    members: int = Field(1, ge=1, le=100)
    """Networks, trained apart with seeds that follow one another, whose mean probability is the answer: an ensemble."""
    backbone: str = "densenet-bc-100"
    """resnet9, resnet9:24-48-96-192, resnet20, resnet34, densenet-bc-100, wrn-28-10, small, whitened,
    whitened-residual, timm:NAME, torchvision:NAME."""
    pretrained_weights: str | None = None
    """For backbones of timm and torchvision: a file of weights, package:NAME for an installed package that has them, or
    'download'. Their own normalisation goes with them, and their image size where none is given."""
    initialisation: Literal["default", "identity"] = "default"
    """identity starts every convolution as one that passes its input on, as far as its channels reach."""

    frozen: bool = False
    """Begin with the head alone, on features of the frozen pretrained backbone, which takes seconds; fine-tune the
    whole network for `epochs` from there, and keep what answers more validation images rightly."""
    keep_norms: bool = False
    """Whether batch norm keeps its pretrained statistics in training, and takes none from small batches of crops."""
    fixed_stride: int | None = Field(None, ge=2)
    """Leave the first pretrained layers as they are, those with maps finer than 1/fixed_stride of the image's sides:
    edges and textures are the same everywhere, and take most of the time."""
    minutes: float | None = Field(None, gt=0)
    """About how long a run that begins frozen may train: as many of the epochs as this machine has time for."""

    epochs: int = Field(300, ge=0)
    """Passes over the training images; 0 to leave it at a frozen backbone."""
    batch_size: int = Field(64, ge=1)
    """Images in a step, summed over all processes."""
    learning_rate: float = Field(0.1, gt=0)
    """Peak learning rate."""
    weight_decay: float = Field(1e-4, ge=0)
    """L2 penalty."""
    decay_vectors: bool = True
    """Whether the penalty is on every parameter alike, or only on matrices: not on biases, norms and the scale."""
    backbone_rate: float = Field(1.0, gt=0)
    """Learning rate of the backbone, as a multiple of that of the head."""
    norm_bias_rate: float = Field(1.0, gt=0)
    """Learning rate of batch norm's biases, as a multiple of that of everything else."""
    optimizer: Literal["sgd", "adamw"] = "sgd"
    """sgd has Nesterov momentum; adamw is the usual choice for pretrained weights."""
    momentum: float = Field(0.9, gt=0, lt=1)
    """Nesterov momentum of SGD."""
    accumulation: int = Field(1, ge=1)
    """Parts in which a batch goes through the network, where memory has no room for it; it grows by itself."""
    schedule: Literal["step", "one-cycle", "cosine"] = "step"
    """step divides the learning rate by 10 at each milestone; one-cycle falls in a line to its floor, cosine in half a
    wave to 0."""
    milestones: tuple[Fraction, ...] = (1 / 2, 2 / 3, 5 / 6)
    """Fractions of the epochs at which the step schedule divides: 150, 200, 250 of 300."""
    warmup: float = Field(0.0, ge=0, lt=1)
    """Fraction of the steps over which the learning rate rises to its peak."""
    learning_rate_floor: float = Field(0.0, ge=0, lt=1)
    """Share of the peak that the one-cycle schedule falls to."""
    augmentation: Literal["none", "crop", "crop-flip", "reflect-crop-flip", "resized-crop-flip"] = "crop-flip"
    """The paper's crop-flip: pad by an eighth, crop at random, mirror half of the images."""
    crop_pixels: int | None = Field(None, ge=0)
    """How many pixels a crop may lie off the centre, on full-size images; by default an eighth of the side."""
    alternating_flips: bool = False
    """Mirror each image in every second epoch, instead of drawing anew: two epochs show both sides of all."""
    crop_share: Fraction = 0.08
    """Smallest share of a photo's area that a random resized crop keeps; for folders, which are cut as photos."""
    rand_augment: int = Field(0, ge=0, le=4)
    """Operations of RandAugment on each training photo, after a random resized crop; for folders."""
    cutout_pixels: int = Field(0, ge=0)
    """Side of a square, at a random place of each full-size training image, that is painted in the mean colour."""
    class_balance: float = Field(0.0, ge=0, le=1)
    """How often images of small classes are shown: 0 as often as there are such images, 1 every class equally often."""
    weight_averaging: float | None = Field(None, gt=0, lt=1)
    """Decay per step of the moving average of the weights that is evaluated and exported; none by default."""
    progressive_resizing: tuple[tuple[Fraction, int], ...] | None = None
    """(fraction of the epochs, pixels) pairs: train on smaller images up to each fraction."""

    device: str = Field("auto", pattern=r"^(auto|cpu|mps|cuda(:\d+)?)$")
    """auto takes a GPU where there is one; cpu, cuda, cuda:1 (the second GPU), mps (Apple's)."""
    deterministic: bool = False
    """On a GPU, use only operators that give the same bits every time, which costs speed; a CPU always does."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Of the backbone's forward and backward pass. auto takes what the GPU has; on a CPU it times both."""
    compile: bool = False
    """Compile the classifier with torch.compile."""
    num_workers: int = Field(2, ge=0)
    """Processes that decode the images of a folder."""

    score: Literal["fitted", "own", "norm_gap", "features", "middle", "neighbours"] = "fitted"
    """What the gate compares: fitted weighs all parts by made strangers; own is the method's own score (MMLES of
    dismax, Energy of softmax); the others are one part alone."""
    score_temperature: Literal["one", "calibrated"] = "one"
    """Whether the method's own score is of the logits, as in the paper's tables, or of logits / temperature."""

    @model_validator(mode="before")
    @classmethod
    def _former_fields_are_translated(cls, fields: Any) -> Any:
        """Configs of earlier runs, in bundles and beside results, have `amp` and `fractional_regulariser` instead."""
        if not isinstance(fields, dict):
            return fields
        kept = {name: value for name, value in fields.items() if name not in FORMER_FIELDS}
        if "amp" in fields:
            kept = {"precision": "auto" if fields["amp"] else "float32", **kept}
        if "fractional_regulariser" in fields:
            kept = {"mixing": "fractional" if fields["fractional_regulariser"] else "none", **kept}
        return kept

    @model_validator(mode="after")
    def _crop_fits(self) -> RunConfig:
        if self.resize_shorter_side is not None and (self.image_size or math.inf) > self.resize_shorter_side:
            raise ValueError(
                f"resize_shorter_side: expected at least image_size {self.image_size}, which must be given"
            )
        return self

    @model_validator(mode="after")
    def _stages_make_sense(self) -> RunConfig:
        if self.frozen and self.pretrained_weights is None:
            raise ValueError("frozen: a backbone that is not trained needs pretrained_weights")
        if not self.frozen and (self.epochs == 0 or self.minutes is not None):
            raise ValueError(f"{'epochs: 0' if self.epochs == 0 else 'minutes:'} goes with frozen only")
        return self

    @model_validator(mode="after")
    def _only_pretrained_layers_stay(self) -> RunConfig:
        for field in ("keep_norms", "fixed_stride"):
            if getattr(self, field) and self.pretrained_weights is None:
                raise ValueError(f"{field}: a network without pretrained_weights has nothing to keep")
        return self

    @model_validator(mode="after")
    def _members_are_whole_runs(self) -> RunConfig:
        if self.members > 1 and self.frozen:
            raise ValueError("members: networks that begin with the same frozen backbone are no ensemble")
        return self

    @model_validator(mode="after")
    def _pretrained_weights_stay(self) -> RunConfig:
        if self.pretrained_weights is not None and self.initialisation == "identity":
            raise ValueError("initialisation: identity would overwrite the pretrained_weights")
        return self

    @model_validator(mode="after")
    def _augmentation_has_what_is_set_of_it(self) -> RunConfig:
        if self.crop_pixels is not None and self.augmentation not in ("crop", "crop-flip", "reflect-crop-flip"):
            raise ValueError(f"crop_pixels: augmentation {self.augmentation} does not crop by pixels")
        if self.rand_augment and self.augmentation != "resized-crop-flip":
            raise ValueError("rand_augment: goes with augmentation resized-crop-flip, on a folder")
        if self.alternating_flips and not self.augmentation.endswith("flip"):
            raise ValueError(f"alternating_flips: augmentation {self.augmentation} does not flip")
        return self

    @model_validator(mode="after")
    def _progressive_resizing_rises(self) -> RunConfig:
        fractions = [fraction for fraction, _ in self.progressive_resizing or ()]
        if fractions != sorted(set(fractions)):
            raise ValueError(f"progressive_resizing: expected rising fractions of the epochs, got {fractions}")
        return self

    @property
    def is_fractional(self) -> bool:
        """Whether the second half of each batch becomes compound images."""
        return self.mixing == "fractional"

    @property
    def variant(self) -> str:
        """`method[+mixing][×M]`: what is trained, in one word."""
        return variant_name(self.method, self.mixing, self.members)


def variant_name(method: str, mixing: str, members: int) -> str:
    """`dismax`, `dismax+fractional`, `softmax×5`."""
    return method + ("" if mixing == "none" else f"+{mixing}") + (f"×{members}" if members > 1 else "")


def make_config(fields: dict[str, Any]) -> RunConfig:
    """A checked config; an unknown field is refused by name, with the nearest one that exists."""
    unknown = sorted(set(fields) - {*RunConfig.model_fields, *FORMER_FIELDS})
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
