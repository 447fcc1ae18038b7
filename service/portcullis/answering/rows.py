"""What an engine answers, image by image."""

import numpy as np
from numpy.typing import NDArray

from portcullis.answering.prediction import FullRow

Values = NDArray[np.float32]


def rows_of(probabilities: Values, scores: Values, parts: Values) -> list[FullRow]:
    """(N, C), (N,) and (N, K) as N rows, each with the class that is answered."""
    best = probabilities.argmax(axis=1).tolist()
    return [
        FullRow(index, float(row[index]), score, of_row, row)
        for row, index, score, of_row in zip(probabilities, best, scores.tolist(), parts.tolist(), strict=True)
    ]
