"""The manifest: everything about a graph that is not arithmetic, as pydantic models. docs/bundle.md is its prose.

Both lines use this module, so it knows the standard library and pydantic, nothing else.
"""

import math
from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field, model_validator

from portcullis.bundle.calibrated import (
    FITTED,
    MAX_CALIBRATION_ROWS,
    CalibrationRows,
    CalibrationScores,
    Frozen,
    Name,
    OperatingPoint,
    RightPoint,
    ScoreInfo,
    Share,
)

__all__ = [
    "FILE_NAME_PATTERN", "FITTED", "MAX_CALIBRATION_ROWS", "CalibrationRows", "CalibrationScores", "Figures",
    "ImageSpec", "Manifest", "MethodInfo", "Name", "OperatingPoint", "OutsideFigures", "Provenance", "RightPoint",
    "ScoreInfo", "SelfTest", "Share",
]  # fmt: skip

FILE_NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*$"
FileName = Annotated[str, Field(pattern=FILE_NAME_PATTERN)]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class ImageSpec(Frozen):
    """How any picture becomes the graph's input."""

    height: int = Field(ge=1, le=4096)
    width: int = Field(ge=1, le=4096)
    resize_shorter_side: int | None = Field(None, ge=1, le=4096)
    """Scale the shorter side to this, then crop the centre; none: stretch to height × width."""
    interpolation: Literal["nearest", "bilinear", "bicubic", "lanczos"] = "bilinear"

    @model_validator(mode="after")
    def _crop_fits(self) -> "ImageSpec":
        if self.resize_shorter_side is not None and self.resize_shorter_side < max(self.height, self.width):
            raise ValueError(
                f"resize_shorter_side {self.resize_shorter_side} is less than the crop {self.height}x{self.width}"
            )
        return self


class MethodInfo(Frozen):
    """What was trained, and the score that comes with it."""

    name: str
    backbone: str
    fractional_regulariser: bool
    score: str
    """The method's own score: `mmles` for DisMax. In format 1 it is what gates, from format 2 on one of the parts."""
    score_temperature: float = Field(gt=0)
    """Temperature of the logits inside the score (not of the probabilities)."""


class OutsideFigures(Frozen):
    """How well the score tells one outside set from the inside test images (inside = positive unless named)."""

    num_images: int = Field(ge=1)
    auroc: Share
    aupr_inside: Share
    aupr_outside: Share
    tnr_at_tpr95: Share
    """Share of outside images rejected at the threshold that keeps 95 % of inside ones."""
    caught: dict[str, Share] = Field(default_factory=dict)
    """Share of this set rejected at each operating point."""
    score_quantiles: tuple[float, ...] = ()
    """Evenly spaced quantiles of this set's scores, smallest first: what any threshold would catch."""


class Figures(Frozen):
    """Measured on test images that neither training nor calibration saw."""

    num_images: int = Field(ge=1)
    accuracy: Share
    ece: Share
    nll: float
    brier: float
    rejected: dict[str, Share] = Field(default_factory=dict)
    """Share of inside test images rejected at each operating point."""
    outside: dict[str, OutsideFigures] = Field(default_factory=dict)


class Provenance(Frozen):
    """Where it came from, so that it can be made again."""

    data: str
    data_fingerprint: str
    seed: int
    commit: str
    libraries: dict[str, str]
    recipe: str = ""


class SelfTest(Frozen):
    """What the graph answered on the engine's built-in test images when it was exported."""

    probabilities: tuple[tuple[float, ...], ...]
    scores: tuple[float, ...]
    parts: tuple[tuple[float, ...], ...] = ()
    """From format 2 on."""


class Manifest(Frozen):
    """Everything about the graph that is not arithmetic."""

    format_version: Literal[1, 2] = 1
    name: Name
    version: int = Field(ge=1)
    created: datetime
    labels: tuple[str, ...] = Field(min_length=2)
    image: ImageSpec
    method: MethodInfo
    score: ScoreInfo | None = None
    """From format 2 on."""
    temperature: float = Field(gt=0)
    calibration: CalibrationScores
    """Of the score that gates by default."""
    calibration_rows: CalibrationRows | None = None
    """From format 2 on, where there are at most MAX_CALIBRATION_ROWS images."""
    operating_points: tuple[OperatingPoint, ...]
    promises: tuple[RightPoint, ...] = ()
    """From format 2 on, those that the calibration images can prove."""
    class_mix: tuple[Share, ...]
    """Share of each predicted class among the calibration images: the reference for drift."""
    figures: Figures
    provenance: Provenance
    self_test: SelfTest
    files: dict[FileName, Digest] = Field(default_factory=dict)
    """sha256 of every file of the bundle but the manifest itself."""

    @property
    def score_name(self) -> str:
        """What the graph's `score` is called."""
        return self.method.score if self.score is None else self.score.name

    @property
    def part_names(self) -> tuple[str, ...]:
        """Names of the columns of the engine's `parts`; a graph of format 1 has its score as the only one."""
        return (self.method.score,) if self.score is None else self.score.parts

    @model_validator(mode="after")
    def _format_has_its_fields(self) -> "Manifest":
        if self.format_version == 1:
            later = [name for name in ("score", "calibration_rows", "promises") if getattr(self, name)]
            if later or self.self_test.parts:
                raise ValueError(f"format_version 1 has no {(*later, 'self_test.parts')[0]}")
            return self
        if self.score is None:
            raise ValueError("format_version 2 needs score")
        if {len(row) for row in self.self_test.parts} != {len(self.score.parts)}:
            raise ValueError(f"self_test.parts: expected a value for each of {self.score.parts} in every row")
        return self

    @model_validator(mode="after")
    def _rows_agree(self) -> "Manifest":
        rows = self.calibration_rows
        if rows is None:
            return self
        if len(rows.class_indices) != self.calibration.num_images:
            raise ValueError(f"expected {self.calibration.num_images} calibration rows, got {len(rows.class_indices)}")
        if max(rows.class_indices) >= len(self.labels):
            raise ValueError(f"calibration rows answer class {max(rows.class_indices)} of {len(self.labels)} labels")
        if self.method.score not in rows.parts or not set(rows.parts) <= set(self.part_names):
            raise ValueError(f"calibration rows: expected parts of {self.part_names} with {self.method.score!r}")
        return self

    @model_validator(mode="after")
    def _lengths_agree(self) -> "Manifest":
        if len(set(self.labels)) != len(self.labels):
            raise ValueError("labels must differ from one another")
        if len(self.class_mix) != len(self.labels):
            raise ValueError(f"class_mix has {len(self.class_mix)} shares for {len(self.labels)} labels")
        if not math.isclose(sum(self.class_mix), 1, abs_tol=1e-3):
            raise ValueError(f"class_mix must add up to 1, got {sum(self.class_mix):.4f}")
        names = [point.name for point in self.operating_points]
        if len(set(names)) != len(names):
            raise ValueError(f"operating points must have different names, got {names}")
        return self
