"""How a worker shares out the machine: batches, threads, memory."""

from service.admission import Limits
from service.assignment import Assignment
from service.engine import EngineOptions
from service.pipeline import Load
from service.settings import Settings


def load_of(settings: Settings, on_gpu: bool) -> Load:
    """How a pipeline shares out the machine; on a CPU larger batches gain little and make everybody wait."""
    inline = settings.inline_decode_bytes
    if inline is None:
        inline = 0 if on_gpu else 65536
    return Load(
        limits=Limits(
            max_batch=settings.max_batch or (64 if on_gpu else 8),
            queue_capacity=settings.queue_capacity,
            overload_wait_seconds=settings.overload_wait_seconds,
        ),
        max_pixels=settings.max_pixels,
        inline_decode_bytes=inline,
    )


def engine_options(assignment: Assignment) -> EngineOptions:
    """The engine's part of the settings."""
    settings = assignment.settings
    return EngineOptions(
        providers=settings.providers,
        allow_fallback=settings.allow_fallback,
        device_id=assignment.device_id or 0,
        threads=settings.engine_threads,
        tensorrt_cache=settings.tensorrt_cache,
        gpu_memory_limit_bytes=settings.gpu_memory_limit_bytes,
    )


def decode_threads(assignment: Assignment) -> int:
    """Threads for images too large to decode on the engine's own thread."""
    return assignment.settings.decode_threads or (1 if assignment.device_id is None else 4)
