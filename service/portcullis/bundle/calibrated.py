"""What calibration leaves in a manifest: the score's constants, calibration scores and rows, thresholds and promises.

Shapes only, checked in themselves; `gate.py` does the arithmetic. It knows the standard library and pydantic.
"""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

Share = Annotated[float, Field(ge=0, le=1)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
FITTED = "fitted"
"""The score that is made of several parts; one of a single part has its part's name."""
MAX_CALIBRATION_ROWS = 50_000


class Frozen(BaseModel):
    """What is unknown is refused: a manifest is never half understood."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class ScoreInfo(Frozen):
    """What the graph's `score` is made of; the arithmetic is in the graph, so this explains and is not computed with.

    score = sum over the parts of weight · (part − mean) / deviation; higher is more familiar, of every part too.
    """

    name: Name
    """What gates by default: `fitted`, or the name of the one part that does."""
    parts: tuple[Name, ...] = Field(min_length=1)
    """Names of the columns of the output `parts`, which are raw values."""
    means: tuple[float, ...]
    deviations: tuple[Annotated[float, Field(gt=0)], ...]
    weights: tuple[Annotated[float, Field(ge=0)], ...]
    fitted_on: str
    """The images behind these constants; calibration images are never among them."""

    @model_validator(mode="after")
    def _one_constant_a_part(self) -> "ScoreInfo":
        if {len(self.means), len(self.deviations), len(self.weights), len(set(self.parts))} != {len(self.parts)}:
            raise ValueError(f"expected different parts with a mean, deviation and weight each, got {self.parts}")
        if self.name != FITTED and self.name not in self.parts:
            raise ValueError(f"the score {self.name!r} is neither {FITTED!r} nor one of its parts {self.parts}")
        return self


class CalibrationScores(Frozen):
    """The sorted scores of held-out inside images, all of them or some order statistics with their ranks."""

    num_images: int = Field(ge=1)
    scores: tuple[float, ...]
    ranks: tuple[int, ...] | None = None
    """Rank (1 = smallest) of each score among all images; none: every score is here."""

    @model_validator(mode="after")
    def _sorted_and_complete(self) -> "CalibrationScores":
        if any(later < earlier for earlier, later in zip(self.scores, self.scores[1:], strict=False)):
            raise ValueError("calibration scores must be sorted, smallest first")
        ranks = self.ranks if self.ranks is not None else tuple(range(1, self.num_images + 1))
        if len(ranks) != len(self.scores):
            raise ValueError(f"expected {len(ranks)} calibration scores, got {len(self.scores)}")
        if list(ranks) != sorted(set(ranks)) or ranks[0] != 1 or ranks[-1] != self.num_images:
            raise ValueError("ranks must rise strictly from 1 to num_images")
        return self


class CalibrationRows(Frozen):
    """Every calibration image in one row, by rising gating score: what promises beyond `calibration` are made from."""

    class_indices: tuple[Annotated[int, Field(ge=0)], ...]
    """The answered class."""
    probabilities: tuple[Share, ...]
    """Of the answered class."""
    is_right: tuple[bool, ...]
    """Empty where the images came without labels, as the next is."""
    true_probabilities: tuple[Share, ...]
    """Of the true class."""
    parts: dict[Name, tuple[float, ...]]
    """Raw values of the score's parts, the method's own score at least."""
    probability_grid: tuple[Share, ...] = ()
    """Falling candidates for the least probability of an answer, fixed on validation images."""

    @model_validator(mode="after")
    def _rows_are_whole(self) -> "CalibrationRows":
        labelled = (self.is_right, self.true_probabilities) if self.is_right or self.true_probabilities else ()
        columns = (self.probabilities, *labelled, *self.parts.values())
        if not self.class_indices or any(len(column) != len(self.class_indices) for column in columns):
            raise ValueError("calibration rows need the same number of values in every column")
        if list(self.probability_grid) != sorted(set(self.probability_grid), reverse=True):
            raise ValueError("probability_grid must fall strictly")
        return self


class OperatingPoint(Frozen):
    """A named threshold with its promise about familiar images (docs/bundle.md)."""

    name: Name
    alpha: float = Field(gt=0, lt=1)
    """At most this share of familiar images is rejected, on average over calibration sets."""
    threshold: float
    """Scores at or above it are accepted."""
    rejected_share_bound: Share
    """The share of familiar images that this calibration set does not exceed, with 95 % confidence."""


class RightPoint(Frozen):
    """A named promise about familiar images that pass: they are answered rightly but for a share `risk`."""

    name: Name
    gate: str = ""
    """The operating point that must accept too, such as accept95; empty: none."""
    risk: float = Field(gt=0, lt=1)
    confidence: float = Field(gt=0, lt=1)
    """With which the promise holds over draws of the calibration images."""
    min_probability: Share
    """Answers of at least this probability pass."""
    coverage: Share
    """Share of the calibration images that pass."""
    test_coverage: Share | None = None
    test_error: Share | None = None
    """Share of wrong answers among the test images that pass."""
