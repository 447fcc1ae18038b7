"""How many images each split gets: numbers as they are, shares with floors under them. Pure arithmetic.

59 calibration images are the fewest of which one threshold keeps the rejections at 5 % with 95 % confidence
(0.95⁵⁹ < 5 %); fewer than 30 validation images fit no temperature worth the name.
"""

from __future__ import annotations

from collections.abc import Mapping

from portcullis_training.errors import DataError

FLOORS = {"validation": 30, "calibration": 60, "test": 60}
CEILINGS = {"validation": 0.15, "calibration": 0.25, "test": 0.25}
"""Shares that a floor does not reach beyond: most of a small set is still for training."""


def resolve(where: str, wanted: Mapping[str, int | float], num_images: int) -> dict[str, int]:
    """Numbers of images; refused where nothing would be left for training."""
    numbers = {
        name: size if isinstance(size, int) else _of_share(name, size, num_images) for name, size in wanted.items()
    }
    if sum(numbers.values()) >= num_images:
        listed = " + ".join(f"{name} {number}" for name, number in numbers.items())
        raise DataError(f"{where}: {num_images} images cannot give {listed} and leave any for training; ask for fewer")
    return numbers


def apportion(size: int, class_sizes: Mapping[int, int]) -> dict[int, int]:
    """The size divided among classes by their own sizes, largest remainders first."""
    total = sum(class_sizes.values())
    exact = {label: size * count / total for label, count in class_sizes.items()}
    quotas = {label: int(share) for label, share in exact.items()}
    by_remainder = sorted(exact, key=lambda label: (quotas[label] - exact[label], label))
    for label in by_remainder[: size - sum(quotas.values())]:
        quotas[label] += 1
    return quotas


def room_in(num_images: int) -> int:
    """How many images of a class may be held out: at least a third of them, and one, are for training."""
    return num_images - max(1, num_images // 3)


def _of_share(name: str, share: float, num_images: int) -> int:
    floor = min(FLOORS[name], int(CEILINGS[name] * num_images))
    return max(1, round(share * num_images), floor)
