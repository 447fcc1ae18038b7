"""A device that is not there: time passes as on one, without Python's lock. For benchmarks and tests only.

`simulated:fixed=10:image=0.8:replan=15` takes 10 ms a batch and 0.8 ms an image, and 15 ms more in a session whose last
batch had another size. `memory=48` has no room for more images at once. `answers=kept` lets a session repeat
what it answered to its first batch, where computing them all would take the processor that is to be measured.
"""

import threading
import time
from dataclasses import dataclass
from typing import Any

from portcullis.errors import EngineError

PREFIX = "simulated"
_FIELDS = ("fixed", "image", "replan", "memory", "answers")
_device = threading.Lock()  # of this process, which sees one device: it runs one batch after the other


@dataclass(frozen=True)
class Costs:
    """How the device behaves; times in seconds."""

    fixed: float = 0.0
    image: float = 0.0
    replan: float = 0.0
    memory: int | None = None
    is_real: bool = True


def is_simulated(provider: str) -> bool:
    return provider.partition(":")[0] == PREFIX


def costs_of(provider: str) -> Costs:
    """Read what stands behind the name of the provider."""
    pairs = [part.partition("=")[::2] for part in provider.split(":")[1:] if part]
    values = dict(pairs)
    if unknown := set(values) - set(_FIELDS):
        raise EngineError(f"a simulated device has {', '.join(_FIELDS)}, not {', '.join(sorted(unknown))}")
    seconds = {name: float(values.get(name, 0)) / 1000 for name in ("fixed", "image", "replan")}
    memory = int(values["memory"]) if "memory" in values else None
    return Costs(**seconds, memory=memory, is_real=values.get("answers", "real") == "real")


class SimulatedSession:
    """A session on the CPU whose answers take as long as a device's."""

    def __init__(self, session: Any, costs: Costs) -> None:
        self._session, self._costs = session, costs
        self._last_size: int | None = None
        self._kept: list[Any] | None = None
        self.get_inputs, self.get_outputs = session.get_inputs, session.get_outputs

    def run(self, names: Any, feeds: dict[str, Any]) -> list[Any]:
        [(name, images)] = feeds.items()
        costs, size = self._costs, len(images)
        with _device:
            started = time.monotonic()
            if costs.memory is not None and size > costs.memory:
                raise RuntimeError(f"CUDA failure 2: out of memory; a simulated device with {costs.memory} images")
            answers = self._answers(names, name, images)
            replan = costs.replan if self._last_size not in (None, size) else 0.0
            self._last_size = size
            end = started + costs.fixed + costs.image * size + replan
            time.sleep(max(0.0, end - time.monotonic()))
        return answers

    def _answers(self, names: Any, name: str, images: Any) -> list[Any]:
        if self._costs.is_real:
            return list(self._session.run(names, {name: images}))
        if self._kept is None or len(self._kept[0]) != len(images):
            self._kept = list(self._session.run(names, {name: images}))
        return self._kept
