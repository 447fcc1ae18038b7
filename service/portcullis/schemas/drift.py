"""What is known of drift, as it is published, counted and answered at `/v1/models/{name}/drift`."""

from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field


@dataclass(frozen=True)
class DriftReport:
    """The window against the reference, and the evidence since the model came. None: the window is empty."""

    num_images: int
    evidence_log10: float
    alarm: bool
    threshold: float
    """Undrifted images between false alarms, on average and at least; the alarm is raised at its log10."""
    num_images_since_reset: int
    num_alarms_since_reset: int
    psi: float | None
    ks: float | None
    reject_ratio: float | None
    reject_ratio_interval: tuple[float, float]
    """Wilson's, 95 %."""
    class_mix: tuple[float, ...] | None
    class_mix_reference: tuple[float, ...]
    class_mix_distance: float | None
    """Total variation: the share of images that would have to be of another class to match the reference."""
    p_value_shares: tuple[float, ...] | None
    """Share in each of P_VALUE_BUCKETS."""
    score_quantiles: dict[float, float]
    unsure_ratio: float | None = None
    """Share rejected for a low probability alone; None also where it was written before there was that rule."""


@dataclass(frozen=True)
class ScoreHistogram:
    """How many scores lie in each bucket, since the version was first served."""

    edges: tuple[float, ...]
    """Upper edges, ascending; one more bucket lies above the last."""
    counts: tuple[int, ...]
    sum: float
    """Of the finite scores."""


@dataclass(frozen=True)
class FleetReading:
    """The evidence of a whole fleet, as one of its instances last read it."""

    evidence_log10: float
    alarm: bool
    threshold: float
    num_images_since_reset: int
    num_alarms_since_reset: int
    updated_by: str
    age_seconds: float
    """Of the evidence when it was read, by the database's clock."""
    read_at: float
    """When that was, in seconds since 1970 by this machine's clock."""

    def seconds_ago(self, now: float) -> float:
        """How old the evidence is by now."""
        return max(self.age_seconds, 0.0) + max(now - self.read_at, 0.0)


class DriftPoint(BaseModel):
    """One moment of the recent past."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="null")

    time: float
    num_images: int
    num_rejected: int
    psi: float | None
    reject_ratio: float | None
    evidence_log10: float


class InstanceDrift(BaseModel):
    """One instance of a fleet, as it last said of itself."""

    model_config = ConfigDict(use_attribute_docstrings=True, extra="forbid")

    instance: str
    version: int
    """The version that answers there when none is asked for."""
    score: str
    """Name of the score that gates there."""
    gate: str
    """The gate in force there, as the desired state spells it."""
    is_living: bool
    """Whether it was heard of within the last 15 seconds."""
    seconds_ago: float
    """Time since it last published something new, by the database's clock: an idle instance has nothing new."""
    num_images: int
    """Images in its window."""
    num_images_since_reset: int
    num_images_taken: int
    """Of the images that it has counted for the fleet, how many are in the fleet's evidence."""
    evidence_log10: float = Field(ge=0)
    """From its own images alone."""
    alarm: bool
    num_alarms_since_reset: int
    psi: float | None
    reject_ratio: float | None
    unsure_ratio: float | None


class FleetDrift(BaseModel):
    """All instances of a fleet together. The evidence is of this version and score alone."""

    model_config = ConfigDict(use_attribute_docstrings=True, extra="forbid")

    evidence_log10: float = Field(ge=0)
    """Sequential evidence over the counts of all instances, log10; the alarm is raised at log10 of `threshold`."""
    alarm: bool
    threshold: float
    """Undrifted images of the whole fleet between two false alarms, on average and at the least."""
    num_images_since_reset: int
    """Images of all instances that are in the evidence."""
    num_alarms_since_reset: int
    updated_by: str | None
    """The instance that last brought the evidence up to date; null before any has."""
    seconds_ago: float | None
    """Time since then, as far as this instance knows: it grows while the database is away."""
    num_images: int
    """Images in the windows of all living instances with this version and score; what follows is of those."""
    psi: float | None
    reject_ratio: float | None
    reject_ratio_interval: tuple[float, float]
    unsure_ratio: float | None
    p_value_shares: tuple[float, ...] | None
    num_instances: int
    """Living instances that serve the model, whatever its version."""
    instances: tuple[InstanceDrift, ...]
    """By name; of very many those with the most evidence of their own."""


class DriftInfo(BaseModel):
    """The window of recent images against the reference. Null where the window is empty."""

    model_config = ConfigDict(use_attribute_docstrings=True, extra="forbid")

    model: str
    version: int
    score: str
    """Name of the score that gates, which all of this is about."""
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
    unsure_ratio: float | None
    """Share of the window's images that were rejected as unsure: familiar, with too low a probability."""
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
    fleet: FleetDrift | None = None
    """All instances that share a database; null where this one has none. Everything above is of this instance alone."""
