"""Parts of a score and their weights: logistic regressions of familiar images against strangers, no weight below zero.

Every kind of stranger has the same say, and familiar images as much as all strangers together. A weight below zero
would call an image strange for looking familiar; that helps against one kind of stranger and betrays on the next. For
the same reason parts are judged on kinds that their weights were not fitted on: those to come are of neither.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np
from scipy import optimize
from scipy.special import expit

from portcullis_training.measuring.metrics import Array, auroc

PENALTY = 1e-3
MARGIN = 1e-3
"""Of sets of parts whose AUROC differs by no more than this the smallest is taken: a part costs every answer time."""
MIN_PARTS = 2
"""Not fewer are left by that: what one part alone does not see, nothing would."""

Parts = tuple[int, ...]
Judged = dict[Parts, float]
"""AUROC of sets of parts against kinds of strangers left out in turn; what is known is not computed again."""


def weights_against(
    familiar: Array, strangers: Sequence[Array], without: int | None = None, judged: Judged | None = None
) -> Array:
    """Weights (K,) of standardised parts (N, K); 0 for the one left out by choice, and for those that nobody misses."""
    judge = partial(_judge, familiar, strangers, {} if judged is None else judged)
    path = [tuple(number for number in range(familiar.shape[1]) if number != without)]
    while len(path[-1]) > MIN_PARTS:
        path.append(max((_less(path[-1], number) for number in path[-1]), key=judge))
    most = max(map(judge, path))
    fewest = next(parts for parts in reversed(path) if judge(parts) >= most - MARGIN)
    weights = _fit(familiar, strangers, fewest)
    return weights if weights.any() else _equal(path[0], familiar.shape[1])


def _less(parts: Parts, left_out: int) -> Parts:
    return tuple(number for number in parts if number != left_out)


def _judge(familiar: Array, strangers: Sequence[Array], judged: Judged, parts: Parts) -> float:
    """Mean AUROC against each kind of strangers by weights that were fitted without it."""
    if parts not in judged:
        told = []
        for number, kind in enumerate(strangers):
            others = [other for place, other in enumerate(strangers) if place != number] or [kind]
            weights = _fit(familiar, others, parts)
            told.append(auroc(familiar @ weights, kind @ weights))
        judged[parts] = float(np.mean(told))
    return judged[parts]


def _fit(familiar: Array, strangers: Sequence[Array], parts: Parts) -> Array:
    """The weights (K,) of the least loss with these parts."""
    used = list(parts)
    rows = np.concatenate([familiar, *strangers])[:, used]
    signs = np.concatenate([np.ones(len(familiar)), -np.ones(len(rows) - len(familiar))])
    shares = [np.full(len(familiar), 0.5 / len(familiar))]
    shares += [np.full(len(kind), 0.5 / len(kind) / len(strangers)) for kind in strangers]
    found = optimize.minimize(
        _loss_and_gradient,
        np.zeros(rows.shape[1] + 1),
        args=(rows, signs, np.concatenate(shares)),
        jac=True,
        method="L-BFGS-B",
        bounds=[(0, None)] * rows.shape[1] + [(None, None)],
    )
    weights = np.zeros(familiar.shape[1])
    weights[used] = found.x[:-1]
    return weights


def _loss_and_gradient(parameters: Array, rows: Array, signs: Array, shares: Array) -> tuple[float, Array]:
    weights = parameters[:-1]
    margins = signs * (rows @ weights + parameters[-1])
    loss = shares @ np.logaddexp(0, -margins) + PENALTY * weights @ weights
    slopes = -shares * signs * expit(-margins)
    return float(loss), np.append(slopes @ rows + 2 * PENALTY * weights, slopes.sum())


def _equal(parts: Parts, num_parts: int) -> Array:
    """Where no part tells any stranger apart, all count alike: a score must order images somehow."""
    weights = np.zeros(num_parts)
    weights[list(parts)] = 1 / len(parts)
    return weights
