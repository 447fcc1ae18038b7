"""The JSON of what a bundle brings along: the distribution of its calibration scores, and its example images."""

from pydantic import BaseModel, ConfigDict

from portcullis.bundle.manifest import OperatingPoint


class _Schema(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True, extra="forbid")


class ReferenceHistogram(_Schema):
    """Counts of the calibration scores in equal bins."""

    edges: list[float]
    """One more than there are counts."""
    counts: list[int]


class OutsideReference(_Schema):
    """The scores of one outside set, as measured when the bundle was made."""

    num_images: int
    auroc: float
    quantiles: list[float]
    """Evenly spaced quantiles, smallest score first; empty where the bundle has none."""


class Reference(_Schema):
    """The distribution that scores are compared with."""

    model: str
    version: int
    score: str
    """Name of the score that gates; higher is more familiar."""
    num_images: int
    histogram: ReferenceHistogram
    quantiles: list[float]
    """Evenly spaced quantiles of the calibration scores, smallest first."""
    operating_points: list[OperatingPoint]
    """Of that score."""
    class_mix: list[float]
    """Share of each predicted class among the calibration images."""
    outside: dict[str, OutsideReference]
    """Of the bundle's own score; empty while another one gates."""


class ExampleImage(_Schema):
    """An image that came with the bundle."""

    file: str
    title: str


class ExampleList(_Schema):
    """All of a bundle's example images."""

    examples: list[ExampleImage]
