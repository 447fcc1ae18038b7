"""What is said of one image: the engine's row, and the answer once the gate has seen it. Knows no queue and no HTTP."""

import operator
from dataclasses import dataclass

import numpy as np

from portcullis.bundle.gate import Gate, Reason, Row, Verdict

Top = tuple[tuple[int, float], ...]

FEW_LABELS = 64  # sorted faster as a list than as an array
_by_probability = operator.itemgetter(1)


@dataclass(slots=True)
class FullRow(Row):
    """The same with the probability of every class."""

    probabilities: "np.ndarray[tuple[int], np.dtype[np.float32]]"


@dataclass(slots=True)
class Prediction:
    """The answer for one image, with the times that it took."""

    row: FullRow
    top: Top
    score: float
    """The one that gates."""
    p_value: float
    threshold: float
    gate: Gate
    verdict: Verdict
    reason: Reason | None
    decode_wait_seconds: float
    decode_seconds: float
    queue_seconds: float
    inference_seconds: float


def top(row: FullRow, top_k: int) -> Top:
    """The most probable classes with their probabilities, the best first."""
    if top_k == 1:
        return ((row.class_index, row.probability),)
    if len(row.probabilities) > FEW_LABELS:
        order = np.argsort(-row.probabilities, kind="stable")[:top_k].tolist()
        return tuple((index, float(row.probabilities[index])) for index in order)
    probabilities = row.probabilities.tolist()
    ranked = sorted(enumerate(probabilities), key=_by_probability, reverse=True)  # stable: of equals, the first
    return tuple(ranked[:top_k])


def prediction_set(row: FullRow, min_probability: float) -> Top:
    """The classes that may be the truth, the best first; the answered one is always among them."""
    return top(row, max(1, int(np.count_nonzero(row.probabilities >= min_probability))))
