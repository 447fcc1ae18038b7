"""What the routes need, passed in rather than kept in globals."""

from collections.abc import Callable
from dataclasses import dataclass

from service.keys import Access
from service.logs import RequestLog
from service.metrics import Metrics
from service.registry import Registry
from service.settings import Settings
from service.state import StateStore


@dataclass(frozen=True)
class Context:
    """One worker, as its routes see it."""

    settings: Settings
    registry: Registry
    store: StateStore
    access: Access
    metrics: Metrics
    request_log: RequestLog
    expose_metrics: Callable[[], bytes]
    is_ready: Callable[[], bool]
