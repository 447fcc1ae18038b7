"""The JSON of `/v1/models/{name}/drift`."""

from pydantic import BaseModel, ConfigDict, Field

from service.drift_reader import DriftPoint


class DriftInfo(BaseModel):
    """The window of recent images against the reference. Null where the window is empty."""

    model_config = ConfigDict(use_attribute_docstrings=True, extra="forbid")

    model: str
    version: int
    num_images: int
    """Images in the window; the setting drift_window is the most."""
    evidence_log10: float = Field(ge=0)
    """Sequential evidence of drift since the model came, log10; the alarm is raised at log10 of `threshold`."""
    alarm: bool
    """Whether the evidence of drift stands."""
    threshold: float
    """Undrifted images between two false alarms, on average and at the least (the setting drift_alarm_images)."""
    num_images_since_reset: int
    num_alarms_since_reset: int
    psi: float | None
    """Population stability index of the p-values against uniform. For the eye: it raises no alarm."""
    ks: float | None
    """Kolmogorov-Smirnov distance of the scores from the calibration scores. For the eye, too."""
    reject_ratio: float | None
    """Share of the window's images that were rejected."""
    reject_ratio_interval: tuple[float, float]
    """95 % interval of that share."""
    labels: tuple[str, ...]
    class_mix: tuple[float, ...] | None
    """Share of each label among the window's answers."""
    class_mix_reference: tuple[float, ...]
    """The same among the calibration images."""
    class_mix_distance: float | None
    """Share of images that would have to be of another class to match the reference."""
    p_value_buckets: tuple[float, ...]
    """Upper edges; each bucket's width is its share while nothing drifts."""
    p_value_shares: tuple[float, ...] | None
    """Share of the window's p-values in each bucket."""
    score_quantiles: dict[float, float]
    """Quantiles of the window's scores."""
    history: tuple[DriftPoint, ...]
    """The last ten minutes, one point every two seconds; counts are since the reset."""
