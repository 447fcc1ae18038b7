"""Weights of a score's parts: a logistic regression of familiar images against strangers, with no weight below zero.

Every kind of stranger has the same say, and familiar images as much as all strangers together. A weight below zero
would call an image strange for looking familiar; that helps against one kind of stranger and betrays on the next.
"""

from collections.abc import Sequence

import numpy as np
from scipy import optimize
from scipy.special import expit

from portcullis_training.measuring.metrics import Array

PENALTY = 1e-3
MIN_SHARE = 0.1
"""A part with less than this share of the largest weight is left out: it would cost every answer time for nothing."""
TOLERANCE = 0.05
"""How much the loss may grow as further parts are left out, of that with all: one that hardly earns its place tells the
made strangers better, and not those to come."""
MIN_PARTS = 2
"""Not fewer are left by that: what one part alone does not see, nothing would."""


def weights_against(familiar: Array, strangers: Sequence[Array], without: int | None = None) -> Array:
    """Weights (K,) of standardised parts (N, K), as few as will do; 0 for parts left out, by choice or as needless."""
    used = np.arange(familiar.shape[1]) != without
    least, weights = _fit(familiar, strangers, used)
    if not weights.any():
        return _equal(used)
    used = weights >= MIN_SHARE * weights.max()
    _, weights = _fit(familiar, strangers, used)
    while used.sum() > MIN_PARTS:
        smaller = [used & (np.arange(len(used)) != number) for number in np.flatnonzero(used)]
        fits = [_fit(familiar, strangers, each) for each in smaller]
        missed_least = int(np.argmin([loss for loss, _ in fits]))
        if fits[missed_least][0] > (1 + TOLERANCE) * least:
            break
        used, weights = smaller[missed_least], fits[missed_least][1]
    return weights


def _fit(familiar: Array, strangers: Sequence[Array], used: Array) -> tuple[float, Array]:
    """The least loss with these parts, and the weights (K,) that have it."""
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
    weights = np.zeros(len(used))
    weights[used] = found.x[:-1]
    return float(found.fun), weights


def _loss_and_gradient(parameters: Array, rows: Array, signs: Array, shares: Array) -> tuple[float, Array]:
    weights = parameters[:-1]
    margins = signs * (rows @ weights + parameters[-1])
    loss = shares @ np.logaddexp(0, -margins) + PENALTY * weights @ weights
    slopes = -shares * signs * expit(-margins)
    return float(loss), np.append(slopes @ rows + 2 * PENALTY * weights, slopes.sum())


def _equal(used: Array) -> Array:
    """Where no part tells any stranger apart, all count alike: a score must order images somehow."""
    return used / used.sum()
