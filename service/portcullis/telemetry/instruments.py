"""Every Prometheus instrument of the service, declared once. The only user of prometheus_client.

Workers write to memory-mapped files in the runtime directory; any worker's `/metrics` adds them up. The file of a
worker belongs to its slot, not to its process id: a replaced worker goes on counting where the dead one stopped.
"""

from bisect import bisect_left
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from portcullis.bundle.gate import P_VALUE_BUCKETS

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
DIRECTORY_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"  # prometheus_client reads it when it is imported
STAGES = ("decode_wait", "decode", "queue", "inference", "total")
SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
PROBABILITIES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)
BATCH_SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)
_MODEL = ("model", "version")


class Metrics:
    """The instruments; call sites cannot misspell them."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self.http_requests = self._counter("http_requests", "HTTP requests answered", "route", "method", "status")
        self.errors = self._counter("errors", "Errors answered, by code", "code")
        self.shed = self._counter("shed", "Work refused or dropped before it cost an engine run", "reason")
        self.predictions = self._counter("predictions", "Images answered, by verdict", *_MODEL, "verdict")
        self.rejections = self._counter("rejections", "Images rejected, by the rule that did it", *_MODEL, "reason")
        self.predicted_labels = self._counter(
            "predicted_labels", "Images answered, by predicted label", *_MODEL, "label"
        )
        self.score_p_value = self._histogram(
            "score_p_value", "Conformal p-value of the score; uniform while nothing drifts", P_VALUE_BUCKETS, *_MODEL
        )
        self.probability = self._histogram(
            "probability", "Calibrated probability of the answered class", PROBABILITIES, *_MODEL
        )
        self.stage_seconds = self._histogram("stage_seconds", "Time of one image in a stage", SECONDS, "stage")
        self.batch_size = self._histogram("batch_size", "Images in one engine run", BATCH_SIZES, *_MODEL)
        self.max_batch = self._gauge("max_batch", "Images in one engine run at the most", "livemax")
        self.engines = self._gauge("engines", "Engines' threads that can run a batch at the same time", "livesum")
        self.engine_busy_seconds = self._counter("engine_busy_seconds", "Time in which an engine ran a batch", *_MODEL)
        self.out_of_memory = self._counter(
            "out_of_memory", "Batches that did not fit into the memory of the device and were run in parts", *_MODEL
        )
        self.queue_depth = self._gauge("queue_depth", "Images that wait for the engine", "livesum", *_MODEL)
        self.queue_capacity = self._gauge("queue_capacity", "Images that may wait for the engine", "livesum", *_MODEL)
        self.connections = self._gauge("connections", "Open client connections", "livesum")
        self.model_swaps = self._counter("model_swaps", "Changes of what is served, by result", "model", "result")
        self.source_failures = self._counter(
            "source_failures", "Questions to the source of bundles that it did not answer"
        )
        self.source_fetches = self._counter("source_fetches", "Bundles fetched into the cache")
        self.source_fetched_bytes = self._counter("source_fetched_bytes", "Bytes of bundles fetched into the cache")
        self.shadow = self._counter("shadow", "Shadowed images, by how the candidate compared", *_MODEL, "result")
        self.shadow_seconds = self._histogram("shadow_seconds", "Engine time of a shadowed image", SECONDS, *_MODEL)
        self.broken_engines = self._counter(
            "broken_engines", "Engines that failed or hung while serving; their process was replaced", *_MODEL
        )
        self.workers_ready = self._gauge("workers_ready", "Workers that can answer", "livesum")
        self.build_info = self._gauge("build_info", "1, with the version of the service", "livemax", "version")
        self.review_items = self._counter("review_items", "Images offered to the review queue, by result", "result")
        self.review_failed = self._gauge(
            "review_failed", "1 while the review queue cannot keep images: a full disk or a broken store", "livemax"
        )

    def no_queue(self, name: str, version: int) -> None:
        """A version has left, and its queue with it."""
        self.queue_depth.labels(name, str(version)).set(0)
        self.queue_capacity.labels(name, str(version)).set(0)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, namespace="portcullis", registry=self.registry)

    def _gauge(self, name: str, text: str, mode: str, *labels: str) -> Gauge:
        return Gauge(
            name,
            text,
            labels,
            namespace="portcullis",
            registry=self.registry,
            multiprocess_mode=mode,  # type: ignore[arg-type]
        )

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(name, text, labels, namespace="portcullis", registry=self.registry, buckets=buckets)


def observer(histogram: Histogram) -> Callable[[float], None]:
    """`observe` of one labelled histogram for the path of a request: finds its bucket by halves, not one by one.

    NaN is left out: it belongs to no bucket, and one would make the sum NaN for ever.
    """
    bounds, add = histogram._upper_bounds, histogram._sum.inc
    count = [bucket.inc for bucket in histogram._buckets]

    def observe(amount: float) -> None:
        if amount == amount:
            add(amount)
            count[bisect_left(bounds, amount)](1)

    return observe
