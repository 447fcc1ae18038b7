"""The rule that fits a score: parts from training images, their weights from validation images and strangers of them.

No calibration image can come in here, for nothing that is given holds one: so the score is fixed before they are seen,
and the gate's promise holds for it as for any other. No outside set comes in either.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from portcullis.bundle.manifest import FITTED, ScoreInfo
from portcullis_training.data import ArrayImages, ImageSet, as_array
from portcullis_training.data.read_later import NUM_TRAINING_IMAGES
from portcullis_training.data.strangers import KINDS, make_strangers, num_sources
from portcullis_training.graph.score import Score, one_part
from portcullis_training.graph.score_parts import Constants, OwnScore
from portcullis_training.measuring import part_constants
from portcullis_training.measuring.metrics import Array, Indices
from portcullis_training.measuring.readings import Readings, ReadingsOf
from portcullis_training.measuring.stranger_weights import Judged, weights_against


@dataclass(frozen=True, eq=False)
class FittedScore:
    """What the rule came to."""

    score: Score
    """With every part; those without weight are not served."""
    ablation: dict[str, tuple[float, ...]]
    """By part, the weights of all parts where that one is left out."""


@dataclass(frozen=True, eq=False)
class FittingImages:
    """All that a score may be fitted on."""

    train: ImageSet
    validation: ImageSet


def fit_score(images: FittingImages, read: ReadingsOf, own: OwnScore, *, chosen: str, seed: int) -> FittedScore:
    """Fit every part, and where `chosen` is `fitted` their weights; else the score is the one part of that name."""
    random = np.random.default_rng(seed)
    constants: Mapping[str, Constants] = {}
    if chosen != own.name:
        train = _some(images.train, NUM_TRAINING_IMAGES, random)
        constants = _constants(read("training images for the score", train), train.labels, random)
    plain = one_part((own.name, *constants), own.name if chosen == FITTED else chosen, _described(images, chosen, own))
    if chosen != FITTED:
        return FittedScore(Score(plain, own, constants), {})
    parts = Score(plain, own, constants)
    info, ablation = _weighed(plain, *_rows(parts, images.validation, read, random, seed))
    return FittedScore(Score(info, own, constants), ablation)


def _constants(train: Readings, labels: Indices, random: np.random.Generator) -> dict[str, Constants]:
    return {
        "norm_gap": {},
        "features": part_constants.of_classes(train.features, labels),
        "middle": part_constants.of_all(train.middle),
        "neighbours": part_constants.bank(train.features, random),
    }


def _rows(
    parts: Score, validation: ImageSet, read: ReadingsOf, random: np.random.Generator, seed: int
) -> tuple[Array, dict[str, Array]]:
    """Parts (N, K) of the validation images, and of strangers made of them by kind."""
    familiar = parts_of(parts, read("validation images for the score", validation))
    sources = _some(validation, _num_sources(validation), random)
    pixels = as_array(sources)
    strangers = {}
    for kind in KINDS:
        made = ArrayImages(make_strangers(kind, pixels, sources.labels, seed), sources.labels)
        strangers[kind] = parts_of(parts, read(f"strangers, {kind}", made))
    return familiar, strangers


@torch.inference_mode()
def parts_of(score: Score, readings: Readings) -> Array:
    """(N, K) in float64."""
    columns: Array = score(readings.as_tensors())[1].double().numpy()
    return columns


def _weighed(
    plain: ScoreInfo, familiar: Array, strangers: Mapping[str, Array]
) -> tuple[ScoreInfo, dict[str, tuple[float, ...]]]:
    means, deviations = familiar.mean(axis=0), np.maximum(familiar.std(axis=0), 1e-12)
    standard = (familiar - means) / deviations
    strange = [(rows - means) / deviations for rows in strangers.values()]
    judged: Judged = {}
    weights = weights_against(standard, strange, judged=judged)
    info = plain.model_copy(
        update={
            "name": FITTED,
            "means": tuple(means.tolist()),
            "deviations": tuple(deviations.tolist()),
            "weights": tuple(weights.tolist()),
        }
    )
    ablation = {
        name: tuple(weights_against(standard, strange, number, judged).tolist())
        for number, name in enumerate(plain.parts)
    }
    return info, ablation


def _some(images: ImageSet, num: int, random: np.random.Generator) -> ImageSet:
    if len(images) <= num:
        return images
    return images.subset(np.sort(random.permutation(len(images))[:num]))


def _num_sources(images: ImageSet) -> int:
    return num_sources(len(images), as_array(images.subset(np.arange(1))).nbytes)


def _described(images: FittingImages, chosen: str, own: OwnScore) -> str:
    if chosen == own.name:
        return "nothing: it has no constants"
    train = f"{min(len(images.train), NUM_TRAINING_IMAGES)} training images"
    if chosen != FITTED:
        return train
    return (
        f"{train}, {len(images.validation)} validation images and {len(KINDS)} kinds of strangers made of "
        f"{_num_sources(images.validation)} of them; no calibration image and no outside set"
    )
