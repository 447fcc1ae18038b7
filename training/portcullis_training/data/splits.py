"""Four disjoint seeded splits: train, validation for the temperature, calibration for the gate, test.

The promise of the gate needs calibration images that nothing else has seen; no function here mixes them. Images that
come with groups of near-duplicates are drawn class by class, and a group is never divided.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from portcullis.bundle.manifest import ImageSpec
from portcullis_training.data import sizes
from portcullis_training.data.image_set import ImageSet
from portcullis_training.data.sources import Source
from portcullis_training.errors import DataError

Indices = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Splits:
    """The inside images of a run."""

    train: ImageSet
    validation: ImageSet
    calibration: ImageSet
    test: ImageSet
    class_names: tuple[str, ...]
    image_spec: ImageSpec
    fingerprints: dict[str, str]
    """sha256 of each split over pixels, labels and the indices that were drawn."""

    @property
    def held_out(self) -> tuple[ImageSet, ImageSet, ImageSet]:
        """What is not trained on."""
        return self.validation, self.calibration, self.test

    @property
    def num_classes(self) -> int:
        """How many classes the head must tell apart."""
        return len(self.class_names)

    @property
    def fingerprint(self) -> str:
        """One digest for all four splits."""
        return hashlib.sha256(
            "".join(f"{key}={self.fingerprints[key]};" for key in sorted(self.fingerprints)).encode()
        ).hexdigest()


def split(where: str, source: Source, *, seed: int, wanted: Mapping[str, int | float]) -> Splits:
    """Draw the splits without replacement; the same seed draws the same.

    `wanted` has how many validation, calibration and test images, or which share of them all; those that the source
    comes with are taken as they are.
    """
    given = {"validation": source.validation, "test": source.test}
    drawn_sizes = sizes.resolve(
        where, {name: size for name, size in wanted.items() if given.get(name) is None}, len(source.train)
    )
    random = np.random.default_rng(seed)
    if source.groups is None:
        drawn = _draw(len(source.train), drawn_sizes, random)
    else:
        drawn = _draw_by_class(source.train.labels, source.groups, drawn_sizes, random)
    parts: dict[str, ImageSet] = {name: source.train.subset(indices) for name, indices in drawn.items()}
    for name, images in given.items():
        if images is not None:
            parts[name], drawn[name] = images, np.arange(len(images))
    _check_classes(where, parts["train"], source.class_names)
    fingerprints = {name: fingerprint(parts[name], drawn[name]) for name in parts}
    return Splits(**parts, class_names=source.class_names, image_spec=source.image_spec, fingerprints=fingerprints)


def fingerprint(images: ImageSet, indices: Indices) -> str:
    """sha256 over every image's digest, its label and the index it was drawn from."""
    digest = hashlib.sha256()
    for image_digest, label, index in zip(images.digests(), images.labels, indices, strict=True):
        digest.update(f"{image_digest} {label} {index}\n".encode())
    return digest.hexdigest()


def _draw(num_images: int, wanted: Mapping[str, int], random: np.random.Generator) -> dict[str, Indices]:
    order = random.permutation(num_images)
    drawn: dict[str, Indices] = {}
    start = 0
    for name, size in wanted.items():
        drawn[name] = np.sort(order[start : start + size])
        start += size
    drawn["train"] = np.sort(order[start:])
    return drawn


def _draw_by_class(
    labels: Indices, groups: Indices, wanted: Mapping[str, int], random: np.random.Generator
) -> dict[str, Indices]:
    """Every class gives each split its share, group by group; what is left is for training."""
    of_group: dict[int, list[int]] = {}
    for index in random.permutation(len(labels)).tolist():
        of_group.setdefault(int(groups[index]), []).append(index)
    by_class: dict[int, list[list[int]]] = {}
    for members in of_group.values():  # a group with several labels counts for the first
        by_class.setdefault(int(labels[members[0]]), []).append(members)
    drawn: dict[str, list[int]] = {name: [] for name in (*wanted, "train")}
    class_sizes = {label: sum(map(len, members)) for label, members in by_class.items()}
    quotas = {name: sizes.apportion(size, class_sizes) for name, size in wanted.items()}
    for label, waiting in by_class.items():
        room = sizes.room_in(class_sizes[label])
        for name in wanted:
            chosen, waiting = _fill(waiting, min(quotas[name][label], room))
            drawn[name] += chosen
            room -= len(chosen)
        drawn["train"] += [index for members in waiting for index in members]
    return {name: np.array(sorted(indices), dtype=np.int64) for name, indices in drawn.items()}


def _fill(waiting: list[list[int]], quota: int) -> tuple[list[int], list[list[int]]]:
    """Groups in their random order, as long as they fit; those that do not are left for the others."""
    chosen: list[int] = []
    left = []
    for members in waiting:
        if len(chosen) + len(members) <= quota:
            chosen += members
        else:
            left.append(members)
    return chosen, left


def _check_classes(where: str, train: ImageSet, class_names: tuple[str, ...]) -> None:
    present = set(np.unique(train.labels).tolist())
    if len(class_names) < 2 or len(present) < 2:
        raise DataError(f"{where}: expected images of at least two classes, got only {class_names[min(present)]!r}")
    missing = [name for index, name in enumerate(class_names) if index not in present]
    if missing:
        raise DataError(f"{where}: no training image of class {missing[0]!r} ({len(missing)} classes without any)")
