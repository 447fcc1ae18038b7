"""Exact binomial tails, for bounds that hold at every n. Pure arithmetic; knows no scores, images or gates."""

import functools
import math

CONFIDENCE = 0.95


def tail(successes: int, trials: int, probability: float) -> float:
    """P(Binomial <= successes) below the mean: its last term times a sum of falling ratios, some root of n of them."""
    last = math.exp(
        math.lgamma(trials + 1)
        - math.lgamma(successes + 1)
        - math.lgamma(trials - successes + 1)
        + successes * math.log(probability)
        + (trials - successes) * math.log1p(-probability)
    )
    odds = (1 - probability) / probability
    ratio = total = 1.0
    for count in range(successes, 0, -1):
        ratio *= count * odds / (trials - count + 1)
        total += ratio
        if ratio < 1e-17 * total:
            break
    return last * total


@functools.lru_cache(maxsize=4096)
def rejected_share_bound(rank: int, num_images: int, confidence: float = CONFIDENCE) -> float:
    """Upper bound on the true rejected share for one given calibration set.

    With the threshold at the k-th smallest of n scores the share is Beta(k, n + 1 - k); this is its quantile at
    `confidence`, found by bisection on P(Beta(k, n + 1 - k) <= x) = P(Binomial(n, x) >= k).
    """
    low, high = rank / (num_images + 1), 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if tail(rank - 1, num_images, middle) > 1 - confidence:
            low = middle
        else:
            high = middle
    return high


def proves(errors: int, trials: int, risk: float, confidence: float = CONFIDENCE) -> bool:
    """Whether so few errors refute, at this confidence, that the error rate exceeds `risk`: P(Bin <= e) <= 1 - c."""
    if errors >= trials * risk:  # at or above the mean the tail is near a half or more
        return False
    return tail(errors, trials, risk) <= 1 - confidence


def least_trials(risk: float, confidence: float = CONFIDENCE) -> int:
    """How many trials without a single error it takes to prove a risk: (1 - r)^n <= 1 - c."""
    return math.ceil(math.log(1 - confidence) / math.log1p(-risk))
