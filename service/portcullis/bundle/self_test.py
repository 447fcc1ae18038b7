"""The self-test: four fixed images, whose answers here are compared with those of the export. Knows no onnxruntime."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from portcullis.bundle import shift
from portcullis.bundle.gate import DEFAULT_OPERATING_POINT
from portcullis.bundle.manifest import ImageSpec, Manifest
from portcullis.bundle.outputs import Outputs
from portcullis.bundle.promises import Promises
from portcullis.bundle.shift import Shifts
from portcullis.errors import BundleError

PROBABILITY_TOLERANCE = 0.02  # of a probability, and of its share: devices add up in another order
PART_TOLERANCE = 0.02  # of a part, and of its deviation among familiar images

Run = Callable[[NDArray[np.uint8]], Outputs]


def self_test_images(spec: ImageSpec) -> NDArray[np.uint8]:
    """Four fixed images, the same on every machine: black, white, a gradient and hash noise."""
    height, width = spec.height, spec.width
    index = np.arange(height * width * 3, dtype=np.uint64).reshape(height, width, 3)
    black = np.zeros((height, width, 3), np.uint8)
    gradient = (index * 255 // max(1, index.size - 1)).astype(np.uint8)
    noise = ((index * np.uint64(2654435761) >> np.uint64(13)) % np.uint64(256)).astype(np.uint8)
    return np.stack([black, black + np.uint8(255), gradient, noise])


def shifts_of(run: Run, manifest: Manifest, label: str) -> Shifts:
    """How far the answers differ from those of the export; a BundleError where that is too far."""
    images, test = self_test_images(manifest.image), _SelfTest(manifest, label)
    whole, alone = test.checked(run(images)), test.checked(run(images[:1]))
    test.check_probabilities(whole, alone)
    test.check_parts(whole)
    return Shifts(test.score_shift(whole, alone), test.part_shifts(whole), test.log_odds_shift(whole))


class _SelfTest:
    """What the manifest of one bundle expects."""

    def __init__(self, manifest: Manifest, label: str) -> None:
        self._manifest, self._label = manifest, label

    def checked(self, outputs: Outputs) -> Outputs:
        if not all(np.isfinite(values).all() for values in (outputs.probabilities, outputs.scores, outputs.parts)):
            raise BundleError(f"bundle {self._label}: the self-test gave NaN or infinity")
        if not np.allclose(outputs.probabilities.sum(axis=1), 1, atol=1e-3):
            raise BundleError(f"bundle {self._label}: probabilities do not add up to 1")
        return outputs

    def check_probabilities(self, whole: Outputs, alone: Outputs) -> None:
        expected = self._manifest.self_test
        for name, got, want in (
            ("probabilities", whole.probabilities, np.asarray(expected.probabilities, np.float32)),
            ("probabilities of one image", alone.probabilities, whole.probabilities[:1]),
        ):
            if got.shape != want.shape or not np.allclose(
                got, want, atol=PROBABILITY_TOLERANCE, rtol=PROBABILITY_TOLERANCE
            ):
                raise BundleError(f"bundle {self._label}: self-test {name} differ from those of the export")

    def check_parts(self, whole: Outputs) -> None:
        """Refuse parts that differ from those of the export; a graph of format 1 has none beside its score."""
        info = self._manifest.score
        if info is None:
            return
        expected = np.asarray(self._manifest.self_test.parts, np.float32)
        tolerances = PART_TOLERANCE * (np.abs(expected) + np.asarray(info.deviations, np.float32))
        if whole.parts.shape != expected.shape or not (np.abs(whole.parts - expected) <= tolerances).all():
            raise BundleError(f"bundle {self._label}: self-test parts differ from those of the export")

    def score_shift(self, whole: Outputs, alone: Outputs) -> float:
        """The largest difference of a score from the export's; one that would move the gate's promise is refused."""
        expected = np.asarray(self._manifest.self_test.scores, np.float32)
        if expected.shape != whole.scores.shape:
            raise BundleError(f"bundle {self._label}: the manifest has {len(expected)} scores for its self-test")
        calibration = self._manifest.calibration
        pairs = zip([*whole.scores.tolist(), float(alone.scores[0])], [*expected.tolist(), expected[0]], strict=True)
        found = max(shift.near_the_threshold(abs(got - want), want, calibration) for got, want in pairs)
        tolerated = shift.tolerated(calibration)
        if found > tolerated:
            raise BundleError(
                f"bundle {self._label}: self-test scores differ from those of the export by up to {found:.2g}; beyond "
                f"{tolerated:.2g} the share of familiar images that {DEFAULT_OPERATING_POINT} rejects could move by "
                f"more than {shift.max_moved_share(self._manifest.calibration):.1%}"
            )
        return found

    def part_shifts(self, whole: Outputs) -> tuple[float, ...]:
        """The same of each part, on the scale of its own calibration scores; empty where no part can gate."""
        if self._manifest.calibration_rows is None:
            return ()
        promises, expected = Promises(self._manifest), self._manifest.self_test.parts
        shifts = []
        for column, name in enumerate(self._manifest.part_names):
            calibration = promises.calibration(name)
            pairs = zip(whole.parts[:, column].tolist(), (row[column] for row in expected), strict=True)
            shifts.append(max(shift.near_the_threshold(abs(got - want), want, calibration) for got, want in pairs))
        return tuple(shifts)

    def log_odds_shift(self, whole: Outputs) -> float:
        shifts: list[float] = []
        for got, want in zip(whole.probabilities.tolist(), self._manifest.self_test.probabilities, strict=True):
            answered = max(range(len(want)), key=want.__getitem__)
            shifts.append(abs(got[answered] - want[answered]) / shift.spread(want[answered]))
        return max(shifts)
