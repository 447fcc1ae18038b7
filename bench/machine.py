"""What is measured on: the CPU with one engine a core, or GPUs with one engine each; and which sizes suit it."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from portcullis.bundle.buckets import bucket_sizes
from portcullis.bundle.providers import CPU, device_environment
from portcullis.processes.placement import Placement, place
from portcullis.settings import Settings

CPU_CONNECTIONS = (1, 8, 32, 64)


@dataclass(frozen=True)
class Machine:
    """One process of the raw engine has one of `environments`."""

    provider: str
    cards: tuple[str, ...]
    """Names of the GPUs with their driver, where there are any."""
    environments: tuple[dict[str, str], ...]
    batches: tuple[int, ...]
    connections: tuple[int, ...]
    """A device takes 64 images at once, so fewer clients cannot fill it."""

    @property
    def num_processes(self) -> int:
        return len(self.environments)


def found(bundles: Sequence[Path]) -> Machine:
    """What the service would run on here, by the service's own trial."""
    with tempfile.TemporaryDirectory() as runtime:
        placement = place(Settings(runtime_directory=Path(runtime)), bundles)
    return machine_of(placement, len(os.sched_getaffinity(0)))


def machine_of(placement: Placement, num_cores: int) -> Machine:
    if placement.provider == CPU:
        return Machine(CPU, (), ({},) * num_cores, (1, 2, 4, 8, 16), CPU_CONNECTIONS)
    environments = tuple(device_environment(device, gpu_tf32=False) for device in placement.devices)
    return Machine(placement.provider, _cards(), environments, bucket_sizes(64), (1, 8, 64, 256))


def _cards() -> tuple[str, ...]:
    if shutil.which("nvidia-smi") is None:
        return ()
    asked = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    done = subprocess.run(asked, check=False, capture_output=True, text=True)
    return tuple(done.stdout.strip().splitlines())
