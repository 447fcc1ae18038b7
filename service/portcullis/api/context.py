"""What the routes need, passed in rather than kept in globals."""

from collections.abc import Callable
from dataclasses import dataclass, field

from portcullis.answering.review_queue import NoReview
from portcullis.bundle.sources.source import Source
from portcullis.drift.instances import InstanceReader
from portcullis.drift.published import DriftReader
from portcullis.errors import Unavailable
from portcullis.http.keys import Access
from portcullis.lifecycle.calibrating import Calibrating
from portcullis.lifecycle.changes import Changes
from portcullis.lifecycle.registry import Registry
from portcullis.lifecycle.watcher import Watcher
from portcullis.settings import Settings
from portcullis.telemetry.instruments import Metrics
from portcullis.telemetry.logs import RequestLog
from portcullis.telemetry.tracing import Tracing


@dataclass(frozen=True)
class Context:
    """One worker, as its routes see it."""

    settings: Settings
    registry: Registry
    changes: Changes
    calibrating: Calibrating
    watcher: Watcher
    source: Source
    drift: DriftReader
    instances: InstanceReader
    access: Access
    metrics: Metrics
    request_log: RequestLog
    expose_metrics: Callable[[], bytes]
    can_answer: Callable[[], bool]
    is_draining: Callable[[], bool]
    review: NoReview = field(default_factory=NoReview)
    """The review queue, or what stands in its place when it is off."""
    tracing: Tracing | None = None

    def check_can_answer(self) -> None:
        """Raise Unavailable while nobody can be answered, with the reason."""
        if not self.can_answer():
            raise Unavailable(self.registry.absence or "not ready: starting or leaving")

    def check_ready(self) -> None:
        """Raise Unavailable while nobody should be sent here; those who come all the same may still be answered."""
        self.check_can_answer()
        if self.is_draining():
            raise Unavailable("not ready: draining")
