"""What the routes need, passed in rather than kept in globals."""

from collections.abc import Callable
from dataclasses import dataclass, field

from service.changes import Changes
from service.drift_reader import DriftReader
from service.keys import Access
from service.logs import RequestLog
from service.metrics import Metrics
from service.registry import Registry
from service.review import NoReview
from service.settings import Settings
from service.state import StateStore
from service.tracing import Tracing
from service.watch import Watcher


@dataclass(frozen=True)
class Context:
    """One worker, as its routes see it."""

    settings: Settings
    registry: Registry
    store: StateStore
    changes: Changes
    watcher: Watcher
    drift: DriftReader
    access: Access
    metrics: Metrics
    request_log: RequestLog
    expose_metrics: Callable[[], bytes]
    is_ready: Callable[[], bool]
    review: NoReview = field(default_factory=NoReview)
    """The review queue, or what stands in its place when it is off."""
    tracing: Tracing | None = None
