"""What a pipeline tells the metrics and the ring of recent scores. Knows instruments and records, no queue, no HTTP."""

import time

from portcullis.answering.job import DROP_REASONS
from portcullis.answering.prediction import Prediction
from portcullis.bundle.gate import Gate, Reason, Verdict, p_value
from portcullis.bundle.manifest import Manifest
from portcullis.drift.rings import ACCEPTED, STRANGER, UNSURE, RingWriter, model_key
from portcullis.telemetry.instruments import STAGES, Metrics, observer

_OUTCOMES = {None: ACCEPTED, Reason.STRANGER: STRANGER, Reason.UNSURE: UNSURE}


class Observer:
    """The instruments of one pipeline with their labels filled in once: a look-up costs more than an observation."""

    def __init__(self, manifest: Manifest, metrics: Metrics, ring: RingWriter) -> None:
        model = (manifest.name, str(manifest.version))
        self._verdicts = {verdict: metrics.predictions.labels(*model, verdict.value) for verdict in Verdict}
        self._reasons = {reason: metrics.rejections.labels(*model, reason.value) for reason in Reason}
        self._labels = [metrics.predicted_labels.labels(*model, label) for label in manifest.labels]
        self._p_value = observer(metrics.score_p_value.labels(*model))
        self._probability = observer(metrics.probability.labels(*model))
        self.batch = observer(metrics.batch_size.labels(*model))
        self.busy = metrics.engine_busy_seconds.labels(*model).inc
        self.broken = metrics.broken_engines.labels(*model).inc
        self._decode_wait, self._decode, self._queue, self._inference, self._total = (
            observer(metrics.stage_seconds.labels(stage)) for stage in STAGES
        )
        self._shed = {reason: metrics.shed.labels(reason) for reason in DROP_REASONS}
        self._manifest, self._ring = manifest, ring
        self._key = model_key(manifest.name, manifest.version)
        self._column: int | None = None
        self._calibration = manifest.calibration

    def follow(self, gate: Gate) -> None:
        """Drift is that of the score in force, whatever gate a request brings along."""
        self._key = model_key(self._manifest.name, self._manifest.version, gate.part)
        self._column, self._calibration = gate.column, gate.calibration

    def prediction(self, prediction: Prediction, total_seconds: float) -> None:
        row = prediction.row
        gate = prediction.gate
        if gate.calibration is self._calibration and gate.by_class is None:  # nearly always
            score, strangeness = prediction.score, prediction.p_value
        else:
            # over all classes even where the gate is by class: the evidence of drift is proven for such p-values
            score = row.score if self._column is None else row.parts[self._column]
            strangeness = p_value(score, self._calibration)
        self._verdicts[prediction.verdict].inc()
        if prediction.reason is not None:
            self._reasons[prediction.reason].inc()
        self._labels[row.class_index].inc()
        self._p_value(strangeness)
        self._probability(row.probability)
        self._decode_wait(prediction.decode_wait_seconds)
        self._decode(prediction.decode_seconds)
        self._queue(prediction.queue_seconds)
        self._inference(prediction.inference_seconds)
        self._total(total_seconds)
        self._ring.append(self._key, time.time(), score, strangeness, row.class_index, _OUTCOMES[prediction.reason])

    def drop(self, reason: str) -> None:
        self._shed[reason].inc()
