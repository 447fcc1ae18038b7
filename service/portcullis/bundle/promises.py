"""What the calibration images of one manifest can promise: every gate that may be asked for, and prediction sets.

What is derived is derived once and kept, since a request may bring a gate of its own. Pure; knows no files or engine.
"""

import bisect
import contextlib
import functools
import math
import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import TypeVar

from portcullis.bundle import gate, grammar, right
from portcullis.bundle.gate import ClassGate, Gate
from portcullis.bundle.grammar import BY_CLASS, Spelling
from portcullis.bundle.manifest import CalibrationRows, CalibrationScores, Manifest, RightPoint
from portcullis.errors import BundleError, InvalidParameter, ServiceError, UnknownOperatingPoint

MAX_REJECTED_SHARE = 0.5
"""Of familiar images, by their score: a version that would reject more at the gate in force is refused."""
MAX_KEPT_GATES = 256  # of those that requests bring along
Answer = TypeVar("Answer")
_SET_SHARE = re.compile(r"0?\.\d{1,6}", re.ASCII)


def choose(text: str, manifest: Manifest) -> Gate:
    """The gate that is asked for, on this manifest's calibration images."""
    return Promises(manifest).gate(text)


def check_fit(text: str, manifest: Manifest) -> None:
    """Refuse a version to which a gate in force cannot be applied, or not with any sense."""
    label = f"{manifest.name}/{manifest.version}"
    try:
        share = choose(text, manifest).stranger_share
    except ServiceError as error:
        raise BundleError(f"bundle {label} cannot keep the gate in force: {error}") from None
    if share > MAX_REJECTED_SHARE:  # an absolute threshold, and scores on another scale
        raise BundleError(
            f"bundle {label}: the gate in force, {text}, would reject {share:.0%} of its familiar images; "
            "choose an operating point first"
        )


class Promises:
    """The gates of one manifest by what they are called."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._parts: dict[str, CalibrationScores] = {}
        self.gate: Callable[[str], Gate] = _remembering(self._gate)
        """The gate that is asked for, refused where the calibration images cannot promise it."""
        self.set_threshold: Callable[[str], float] = _remembering(self._set_threshold)
        """The least probability of a label in the prediction set that holds the truth so often, such as "0.95"."""

    def calibration(self, score: str) -> CalibrationScores:
        """Calibration scores of one score by name."""
        return self._manifest.calibration if score == self._manifest.score_name else self._of_part(score)

    def right_points(self, gate_name: str = "") -> tuple[RightPoint, ...]:
        """Those of the published promises to be right that can be proven behind this gate."""
        points = []
        for name in right.PUBLISHED:
            try:
                points.append(self.gate(f"{gate_name}+{name}" if gate_name else name).right)
            except UnknownOperatingPoint:
                continue
        return tuple(point for point in points if point is not None)

    def published(self) -> list[Gate]:
        """Gates that the manifest names: operating points, by class and on the method's own score too; promises."""
        points = [point.name for point in self._manifest.operating_points]
        own = self._manifest.method.score
        texts = [*points, *(f"{name}:{BY_CLASS}" for name in self.by_class)]
        texts += [f"{own}:{name}" for name in points if own != self._manifest.score_name]
        texts += ["+".join(filter(None, (point.gate, point.name))) for point in self._manifest.promises]
        gates = []
        for text in texts:
            with contextlib.suppress(UnknownOperatingPoint):  # too many images to keep a row of each
                gates.append(self.gate(text))
        return gates

    @functools.cached_property
    def by_class(self) -> dict[str, tuple[float, ...]]:
        """Thresholds of each class at the published operating points that can be promised by class."""
        found = {}
        for point in self._manifest.operating_points:
            try:
                chosen = self.gate(f"{point.name}:{BY_CLASS}")
            except UnknownOperatingPoint:
                continue
            found[point.name] = tuple(one.threshold for one in chosen.by_class or ())
        return found

    # -- steps -------------------------------------------------------------------------------------------------------

    def _gate(self, text: str) -> Gate:
        try:
            return self._choose(grammar.parse(text))
        except UnknownOperatingPoint as error:
            published = [point.name for point in self._manifest.operating_points]
            published += [point.name for point in self._manifest.promises if not point.gate]
            known = ", ".join(published) or "none"
            raise UnknownOperatingPoint(f"{error}; published: {known}") from None

    def _choose(self, spelling: Spelling) -> Gate:
        score = self._manifest.score_name if spelling.score is None else spelling.score
        calibration = self.calibration(score)
        threshold, share = self._threshold(spelling, calibration)
        by_class = self._class_gates(spelling, score) if spelling.is_by_class else None
        point = self._right_point(spelling, score, threshold, by_class) if spelling.right is not None else None
        return Gate(
            operating_point=spelling.text if spelling.threshold is None else None,
            score=score,
            column=None if score == self._manifest.score_name else self._manifest.part_names.index(score),
            calibration=calibration,
            threshold=threshold,
            by_class=by_class,
            right=point,
            min_probability=point.min_probability if point is not None else 0.0,
            probabilities=self._probabilities if point is not None else (),
            stranger_share=share,
            rejected_share=1 - point.coverage if point is not None else share,
        )

    def _threshold(self, spelling: Spelling, calibration: CalibrationScores) -> tuple[float, float]:
        """Of all classes together, with the share of familiar images below it."""
        if spelling.threshold is not None:
            return spelling.threshold, gate.share_below(spelling.threshold, calibration)
        if spelling.accept is None:
            return -math.inf, 0.0
        return gate.threshold_and_rank(spelling.accept, calibration)[0], float(gate.alpha_of(spelling.accept))

    def _class_gates(self, spelling: Spelling, score: str) -> tuple[ClassGate, ...]:
        assert spelling.accept is not None
        gates = []
        for label, calibration in zip(self._manifest.labels, self._of_classes(score, spelling.text), strict=True):
            num_images = calibration.num_images if calibration is not None else 0
            needed = math.ceil(1 / gate.alpha_of(spelling.accept)) - 1
            if calibration is None or num_images < needed:
                raise UnknownOperatingPoint(
                    f"{spelling.text} needs at least {needed} calibration images of every answered class to keep its "
                    f"promise; {label} has {num_images}"
                )
            gates.append(ClassGate(gate.threshold_and_rank(spelling.accept, calibration)[0], calibration))
        return tuple(gates)

    def _of_classes(self, score: str, asked_for: str) -> tuple[CalibrationScores | None, ...]:
        rows = self._rows(asked_for)
        classes: list[list[float]] = [[] for _ in self._manifest.labels]
        for class_index, value in zip(rows.class_indices, self._column(score), strict=True):
            classes[class_index].append(value)
        return tuple(gate.summarise(values, len(values)) if values else None for values in classes)

    def _right_point(
        self, spelling: Spelling, score: str, threshold: float, by_class: tuple[ClassGate, ...] | None
    ) -> RightPoint:
        assert spelling.right is not None
        rows = self._labelled_rows(spelling.text)
        probabilities, tested = [], []
        for index, value in enumerate(self._column(score)):
            least = threshold if by_class is None else by_class[rows.class_indices[index]].threshold
            if value >= least:
                probabilities.append(rows.probabilities[index])
            if value > least:
                tested.append((rows.probabilities[index], rows.is_right[index]))
        passing = right.Passing(probabilities, tested, len(rows.class_indices))
        return right.right_point(spelling.right, spelling.gate, passing, rows.probability_grid)

    def _rows(self, asked_for: str) -> CalibrationRows:
        rows = self._manifest.calibration_rows
        if rows is None:
            raise UnknownOperatingPoint(
                f"{asked_for} needs what each calibration image was answered, and this bundle keeps scores alone; "
                "calibrate it anew (portcullis calibrate) to get it"
            )
        return rows

    def _labelled_rows(self, asked_for: str) -> CalibrationRows:
        rows = self._rows(asked_for)
        if not rows.is_right:
            raise UnknownOperatingPoint(
                f"{asked_for} needs labelled calibration images, and those of this bundle came without labels"
            )
        return rows

    def _of_part(self, score: str) -> CalibrationScores:
        rows = self._manifest.calibration_rows
        known = {self._manifest.score_name, *(rows.parts if rows is not None else ())}
        if rows is None or score not in rows.parts:
            raise UnknownOperatingPoint(
                f"this bundle has no calibration scores called {score!r}; there are: {', '.join(sorted(known))}"
            )
        if score not in self._parts:
            self._parts[score] = gate.summarise(list(rows.parts[score]), len(rows.parts[score]))
        return self._parts[score]

    def _column(self, score: str) -> Sequence[float]:
        """One score of every calibration row, in the order of the rows."""
        rows, calibration = self._manifest.calibration_rows, self._manifest.calibration
        if score != self._manifest.score_name:
            assert rows is not None
            return rows.parts[score]
        if calibration.ranks is None:
            return calibration.scores
        # where some are left out, the nearest kept below: thresholds fall and p-values rise, so promises hold
        ranks = calibration.ranks
        return [calibration.scores[bisect.bisect_right(ranks, i + 1) - 1] for i in range(calibration.num_images)]

    def _set_threshold(self, text: str) -> float:
        if not _SET_SHARE.fullmatch(text) or Fraction(text) == 0:
            raise InvalidParameter(f"expected the share of sets that hold the truth, such as 0.95, got {text[:40]!r}")
        alpha, ordered = 1 - Fraction(text), self._true_probabilities
        rank = math.floor(alpha * (len(ordered) + 1))
        if rank == 0:
            needed = math.ceil(1 / alpha) - 1
            raise UnknownOperatingPoint(
                f"a set of {text} needs at least {needed} calibration images; this bundle has {len(ordered)}"
            )
        return ordered[rank - 1]

    @functools.cached_property
    def _probabilities(self) -> tuple[float, ...]:
        return tuple(sorted(self._rows("a promise to be right").probabilities))

    @functools.cached_property
    def _true_probabilities(self) -> Sequence[float]:
        return sorted(self._labelled_rows("a prediction set").true_probabilities)


def _remembering(find: Callable[[str], Answer]) -> Callable[[str], Answer]:
    """The same, with what was found for the most recent texts; a refusal is remembered too."""

    @functools.lru_cache(MAX_KEPT_GATES)
    def outcome(text: str) -> Answer | ServiceError:
        try:
            return find(text)
        except ServiceError as error:
            return error

    def found(text: str) -> Answer:
        answer = outcome(text)
        if isinstance(answer, ServiceError):
            raise type(answer)(str(answer))
        return answer

    return found
