"""A batcher and its engine on a clock of their own: events in order, no threads, nothing that waits.

Offers come at random (a Poisson process with a seed). The engine takes whatever waits, up to a batch, as soon as it is
free, and runs it for as long as `seconds_of` says; `work_of` says it by the engine's own clock, where that is another.
"""

import random
from dataclasses import dataclass, field

from portcullis.answering.admission import Admission, Line


@dataclass
class Phase:
    """What came of the offers of some seconds."""

    seconds: float
    num_offered: int = 0
    num_served: int = 0
    num_refused: int = 0
    sizes: list[int] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    """From offer to answer."""

    @property
    def served_per_second(self):
        return self.num_served / self.seconds

    def wait_at(self, share):
        return sorted(self.waits)[min(len(self.waits) - 1, int(share * len(self.waits)))]


class Simulation:
    """One engine; phases follow one another, and what waits at the end of one is served in the next."""

    def __init__(self, limits, seconds_of, work_of=None, seed=0):
        self.limits, self.seconds_of, self.work_of = limits, seconds_of, work_of
        self.random = random.Random(seed)
        self.now = 0.0
        self.admission = Admission(limits, self.now)
        self.waiting, self.running = [], []
        self.running_since, self.free_at = 0.0, float("inf")

    @property
    def line(self):
        return Line(len(self.waiting), len(self.running), self.running_since)

    def run(self, offers_per_second, seconds):
        """Offer at random for some seconds."""
        phase, end = Phase(seconds), self.now + seconds
        offer_at = self.now + self.random.expovariate(offers_per_second)
        while min(offer_at, self.free_at) < end:
            if self.free_at <= offer_at:
                self._finish(phase)
            else:
                self.now = offer_at
                self.offer(phase)
                offer_at = self.now + self.random.expovariate(offers_per_second)
        self.now = end
        return phase

    def run_in_turn(self, num_clients, seconds):
        """So many clients, each of which offers again as soon as it has its answer."""
        phase, end = Phase(seconds), self.now + seconds
        for _ in range(num_clients):
            self.offer(phase)
        while self.free_at < end:
            for _ in range(self._finish(phase)):
                self.offer(phase)
        self.now = end
        return phase

    def offer(self, phase):
        phase.num_offered += 1
        if self.admission.offer(self.line, self.now):
            self.waiting.append(self.now)
            self._begin()
        else:
            phase.num_refused += 1

    def rest(self, seconds):
        """Time in which nobody comes."""
        phase, end = Phase(seconds), self.now + seconds
        while self.free_at < end:
            self._finish(phase)
        self.now = end

    def _begin(self):
        if self.running or not self.waiting:
            return
        count = self.limits.max_batch
        self.running, self.waiting = self.waiting[:count], self.waiting[count:]
        self.running_since, self.free_at = self.now, self.now + self.seconds_of(len(self.running))

    def _finish(self, phase):
        self.now, count = self.free_at, len(self.running)
        work = self.work_of(count) if self.work_of else None
        self.admission.served(count, count, self.now - self.running_since, work)
        phase.num_served += count
        phase.sizes.append(count)
        phase.waits += [self.now - offered for offered in self.running]
        self.running, self.free_at = [], float("inf")
        self._begin()
        return count
