"""Scores from logits, or from what a head shows beside them, one function each; higher is more familiar."""

from collections.abc import Callable

from torch import Tensor
from torch.nn import functional


def mmles(logits: Tensor) -> Tensor:
    """Max-Mean Logit Entropy Score (Macêdo et al. 2022): max_j L_j + mean_j L_j − H(softmax(L))."""
    return logits.amax(dim=1) + logits.mean(dim=1) + negative_entropy(logits)  # (B,)


def max_probability(logits: Tensor) -> Tensor:
    """MPS of the literature: the probability of the answered class."""
    return logits.softmax(dim=1).amax(dim=1)  # (B,)


def max_logit(logits: Tensor) -> Tensor:
    """MDS of the literature for distance heads: minus the distance to the nearest prototype, up to the mean."""
    return logits.amax(dim=1)  # (B,)


def negative_entropy(logits: Tensor) -> Tensor:
    """ES of the literature: −H(softmax(L)) in nats."""
    # Through log-softmax: p·log p with p from softmax is 0·(−inf) = NaN once a probability underflows.
    log_probabilities = functional.log_softmax(logits, dim=1)  # (B, C)
    return (log_probabilities.exp() * log_probabilities).sum(dim=1)  # (B,)


def energy(logits: Tensor) -> Tensor:
    """Energy of the literature, its sign turned: log Σ_j exp(L_j) (Liu et al. 2020)."""
    return logits.logsumexp(dim=1)  # (B,)


SCORES: dict[str, Callable[[Tensor], Tensor]] = {
    function.__name__: function for function in (mmles, max_probability, max_logit, negative_entropy, energy)
}


def largest(beside: Tensor) -> Tensor:
    """The largest of a row, such as the cosine to the nearest class."""
    return beside.amax(dim=1)  # (B,)


BESIDE_SCORES: dict[str, Callable[[Tensor], Tensor]] = {"max_cosine": largest, "max_h": largest}
"""Scores of what is beside the logits, which no temperature divides, by the names that a bundle has for them."""
