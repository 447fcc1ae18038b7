"""What is published of a model that has answered nothing yet, written out by hand."""

from portcullis.drift.published import PublishedModel
from portcullis.schemas.drift import DriftReport


def empty_report(class_mix=(1.0,)) -> DriftReport:
    return DriftReport(
        num_images=0,
        evidence_log10=0.0,
        alarm=False,
        threshold=1e6,
        num_images_since_reset=0,
        num_alarms_since_reset=0,
        psi=None,
        ks=None,
        reject_ratio=None,
        reject_ratio_interval=(0.0, 1.0),
        class_mix=None,
        class_mix_reference=class_mix,
        class_mix_distance=None,
        p_value_shares=None,
        score_quantiles={},
    )


def published(**changes) -> PublishedModel:
    plain = {"version": 1, "num_rejected": 0, "detector": {}, "report": empty_report(), "history": ()}
    return PublishedModel(**plain | changes)
