"""How this machine is shared out: batches, threads, memory; by the settings, and by what it runs on."""

from portcullis.answering.admission import Limits
from portcullis.answering.pipeline import Load
from portcullis.processes.assignment import Assignment
from portcullis.processes.placement import max_batch_of
from portcullis.settings import Settings

LEAST_PATIENCE_SECONDS = 5.0


def load_of(settings: Settings, on_gpu: bool) -> Load:
    """How a pipeline shares out the machine; on a CPU larger batches gain little and make everybody wait."""
    inline = settings.inline_decode_bytes
    if inline is None:
        inline = 0 if on_gpu else 65536
    return Load(
        limits=Limits(
            max_batch=max_batch_of(settings, on_gpu),
            queue_capacity=settings.queue_capacity,
            overload_wait_seconds=settings.overload_wait_seconds,
        ),
        max_pixels=settings.max_pixels,
        inline_decode_bytes=inline,
        patience_seconds=max(settings.deadline_seconds, LEAST_PATIENCE_SECONDS),
    )


def decode_threads(assignment: Assignment) -> int:
    """Threads for images too large to decode on the engine's own thread."""
    return assignment.settings.decode_threads or (1 if assignment.device is None else 4)
