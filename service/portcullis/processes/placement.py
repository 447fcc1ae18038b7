"""What this machine will run on, found out before the first worker starts: provider, devices, and what did not start.

The supervisor sizes everything by the answer, so it cannot be left to a worker. A process of its own opens the bundles
on a device, tests them and ends: whatever a driver does to it, the supervisor lives, and the device's memory is free.
"""

import contextlib
import dataclasses
import json
import logging
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from portcullis.bundle import devices
from portcullis.bundle.providers import AUTO, CPU, EngineOptions, device_environment, order
from portcullis.bundle.simulated import is_simulated
from portcullis.environment import child_environment, visible_devices
from portcullis.errors import EngineError
from portcullis.settings import Settings

logger = logging.getLogger(__name__)

PROBE_SECONDS = 3600.0
"""TensorRT may build for many minutes; a driver that hangs is found by the start-up probe of whoever started us."""
TENSORRT_DIRECTORY = "tensorrt"
OPTIONS = TypeAdapter(EngineOptions)
SIMULATED = ("simulated",)
"""What a simulated device is called where no name is given."""


@dataclasses.dataclass(frozen=True)
class Placement:
    """Where the engines of this machine run."""

    provider: str = CPU
    devices: tuple[str, ...] = ()
    """As CUDA_VISIBLE_DEVICES names them; none on the CPU."""
    refusals: tuple[str, ...] = ()
    """What was preferred and did not start, with the reason."""

    @staticmethod
    def from_json(fields: dict[str, Any]) -> "Placement":
        return Placement(fields["provider"], tuple(fields["devices"]), tuple(fields["refusals"]))


def max_batch_of(settings: Settings, on_gpu: bool) -> int:
    """On a CPU larger batches gain little and make everybody wait."""
    return settings.max_batch or (64 if on_gpu else 8)


def engine_options(settings: Settings) -> EngineOptions:
    """The engine's part of the settings, as a person asked for it."""
    return EngineOptions(
        providers=settings.providers,
        allow_fallback=settings.allow_fallback,
        threads=settings.engine_threads,
        max_batch=max_batch_of(settings, on_gpu=True),
        gpu_memory_limit_bytes=settings.gpu_memory_limit_bytes,
        gpu_tf32=settings.gpu_tf32,
        gpu_cuda_graphs=settings.gpu_cuda_graphs,
        gpu_fp16=settings.gpu_fp16,
        tensorrt_fp16=settings.tensorrt_fp16,
        tensorrt_cache=settings.tensorrt_cache or settings.runtime_directory / TENSORRT_DIRECTORY,
    )


def placed_options(settings: Settings, placement: Placement) -> EngineOptions:
    """The same for a worker: on the provider that was found to work, and on no other."""
    return dataclasses.replace(
        engine_options(settings),
        providers=(placement.provider,),
        allow_fallback=False,
        asked=settings.providers,
        refusals=placement.refusals,
    )


def place(settings: Settings, bundles: Sequence[Path]) -> Placement:
    """Try what is asked for on every device; the CPU needs no trial. Raises where nothing that may be used starts."""
    options = engine_options(settings)
    if order(options, devices.has_gpu_build()) == (CPU,):
        _mention_idle_gpus(settings)
        return Placement()
    names = settings.device_ids or (SIMULATED if is_simulated(settings.providers[0]) else _visible())
    trials = _try_all(names or ("",), options, bundles, settings.trusted_keys)
    found = merge(names, trials, order(options, has_gpu_build=True))
    for refusal in found.refusals:
        logger.warning("%s; running on %s", refusal, found.provider)
    return found


def worker_engines(settings: Settings, placement: Placement, num_cores: int) -> list[int | None]:
    """For each worker the device whose engine process it is a front of, by its place in the list; on a CPU none, since
    the engine is in the worker. One worker a core unless settings say else, and on a device at least one for each."""
    count = settings.workers or num_cores
    if not placement.devices:
        return [None] * count
    return [number % len(placement.devices) for number in range(max(count, len(placement.devices)))]


@dataclasses.dataclass(frozen=True)
class Trial:
    """What came of one device."""

    provider: str
    refusals: tuple[str, ...]


def merge(names: Sequence[str], trials: Sequence[Trial], preferred: Sequence[str]) -> Placement:
    """The best provider that any device reached, on those that reached it; the others are left out, with the reason."""
    best = min((trial.provider for trial in trials), key=preferred.index)
    used = [name for name, trial in zip(names, trials, strict=False) if trial.provider == best]
    refusals = dict.fromkeys(
        refusal if len(names) < 2 else f"device {name}: {refusal}"
        for name, trial in zip(names or ("",), trials, strict=True)
        for refusal in trial.refusals
    )
    return Placement(best, () if best == CPU else tuple(used), tuple(refusals))


def _visible() -> tuple[str, ...]:
    """All that the driver shows, by the names that hide none of them from a child."""
    driver = devices.driver()
    count = driver.num_gpus if driver else 0
    inherited = visible_devices()
    return tuple(inherited[:count]) if inherited is not None else tuple(map(str, range(count)))


def _try_all(
    names: Sequence[str], options: EngineOptions, bundles: Sequence[Path], trusted_keys: Sequence[str]
) -> list[Trial]:
    """All devices at once; whatever ends the wait ends the trials."""
    processes = [_begin(name, options, bundles, trusted_keys) for name in names]
    try:
        return [_read(*_outcome(process), options) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def _begin(
    device: str, options: EngineOptions, bundles: Sequence[Path], trusted_keys: Sequence[str]
) -> "subprocess.Popen[bytes]":
    task = {
        "options": OPTIONS.dump_python(options, mode="json"),
        "bundles": [str(path.resolve()) for path in bundles],
        "trusted_keys": list(trusted_keys),
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "portcullis.processes.probe"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=child_environment(device_environment(device or None, options.gpu_tf32)),
    )
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # it has died already: its status tells
        process.stdin.write(json.dumps(task).encode() + b"\n")
        process.stdin.flush()
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()
    process.stdin = None
    return process


def _outcome(process: "subprocess.Popen[bytes]") -> tuple[bytes, int]:
    try:
        said, _ = process.communicate(timeout=PROBE_SECONDS)
    except subprocess.TimeoutExpired:
        return b"", -1
    return said, process.returncode


def _read(said: bytes, status: int, options: EngineOptions) -> Trial:
    """A trial that died says nothing; where the CPU may stand in, that is a reason like any other."""
    report = json.loads(said) if said else {"error": f"the trial ended with status {status} and said nothing"}
    if "error" not in report:
        return Trial(report["provider"], tuple(report["refusals"]))
    tried = order(options, has_gpu_build=True)
    if said or tried[-1] != CPU:
        raise EngineError(report["error"])
    return Trial(CPU, (f"{', '.join(tried[:-1])}: {report['error']}",))


def _mention_idle_gpus(settings: Settings) -> None:
    driver = devices.driver() if settings.providers == (AUTO,) else None
    if driver is not None and driver.num_gpus:
        logger.warning(
            "a GPU is here, and onnxruntime's build for CPUs; install portcullis with the extra gpu to use it"
        )
