"""How this machine is shared out: batches, threads, memory; by the settings, and by what it runs on."""

from portcullis.answering.admission import Limits
from portcullis.answering.served_engine import Load
from portcullis.bundle.batches import NUM_IN_FLIGHT
from portcullis.processes.placement import max_batch_of
from portcullis.settings import Settings

LEAST_PATIENCE_SECONDS = 5.0
MAX_PIXELS_ON_EVENT_LOOP = 256 * 256  # under a millisecond; a thread beside it would take turns on the same core


def load_of(settings: Settings, on_gpu: bool) -> Load:
    """How a pipeline shares out the machine; on a CPU larger batches gain little and make everybody wait."""
    return Load(
        limits=Limits(
            max_batch=max_batch_of(settings, on_gpu),
            queue_capacity=settings.queue_capacity,
            overload_wait_seconds=settings.overload_wait_seconds,
        ),
        max_pixels=settings.max_pixels,
        inline_decode_bytes=settings.inline_decode_bytes,
        inline_decode_pixels=MAX_PIXELS_ON_EVENT_LOOP if on_gpu else None,
        patience_seconds=patience_seconds(settings),
    )


def patience_seconds(settings: Settings) -> float:
    """How long a batch may run before its engine is suspect."""
    return max(settings.deadline_seconds, LEAST_PATIENCE_SECONDS)


def decode_threads(settings: Settings) -> int:
    """Threads of one worker for images that are decoded by a pool: there is a worker a core already."""
    return settings.decode_threads or 1


def num_slots(load: Load) -> int:
    """Images of one version that a front may have under way: all that may wait before the device, and all that run."""
    return load.limits.queue_capacity + NUM_IN_FLIGHT * load.limits.max_batch
