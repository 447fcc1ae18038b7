"""How many epochs of fine-tuning the time allows, by timing a few steps on this machine."""

from __future__ import annotations

import statistics
import time
from itertools import islice

from pydantic import BaseModel, ConfigDict

from portcullis_training import data
from portcullis_training.data.read_later import num_read_later
from portcullis_training.fitting.distributed import training_process
from portcullis_training.fitting.fit import Fitting, Start
from portcullis_training.runs.artefact import Artefact
from portcullis_training.runs.directory import Run

NUM_TIMED_STEPS = 4  # the first warms up
FEWEST_EPOCHS = 3
"""Fewer have not been seen to gain anything over a frozen backbone."""
ENCODING_SHARE = 1 / 3
"""Of the time of a training step: a forward pass alone."""


class Plan(BaseModel):
    """What plan.json holds: decided once, so that a resumed run goes on with it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    epochs: int
    precision: str | None = None
    epoch_seconds: float | None = None
    """Measured here; none where nothing was measured."""
    reason: str


PLAN = Artefact("plan.json", Plan, "fit")


def make_plan(run: Run, splits: data.Splits, start: Start, seconds_spent: float) -> Plan:
    """As many of the config's epochs as its minutes allow; none where too few to be worth it."""
    config = run.config
    if config.epochs == 0:
        return Plan(epochs=0, reason="the config asks for no fine-tuning")
    if config.minutes is None:
        return Plan(epochs=config.epochs, reason="the config sets no limit of time")
    step_seconds, num_steps, precision = _timed(run, splits, start)
    reserve = ENCODING_SHARE * step_seconds * num_read_later(splits, config) / config.batch_size
    return planned(config.epochs, 60 * config.minutes - seconds_spent - reserve, num_steps * step_seconds, precision)


def planned(most_epochs: int, seconds_left: float, epoch_seconds: float, precision: str | None) -> Plan:
    """The decision itself."""
    affordable = int(max(0.0, seconds_left) / epoch_seconds)
    pace = f"an epoch takes {epoch_seconds / 60:.1f} minutes here, and {max(0.0, seconds_left) / 60:.1f} are left"
    if affordable < min(FEWEST_EPOCHS, most_epochs):
        reason = f"{pace}: too few for fine-tuning"
        return Plan(epochs=0, precision=precision, epoch_seconds=epoch_seconds, reason=reason)
    epochs = min(most_epochs, affordable)
    return Plan(epochs=epochs, precision=precision, epoch_seconds=epoch_seconds, reason=pace)


def _timed(run: Run, splits: data.Splits, start: Start) -> tuple[float, int, str]:
    """Seconds of a step, steps of an epoch, and the precision that was chosen; the weights are forgotten."""
    with training_process(run.config) as process:
        fitting = Fitting(run, process, splits, start)
        fitting.start_epoch()
        fitting.forward.train()
        seconds = []
        started = time.perf_counter()
        for images, labels in islice(fitting.batches(), NUM_TIMED_STEPS):
            fitting.train_step(images, labels)
            float(fitting.tally.sums[0])  # waits for the device
            seconds.append(time.perf_counter() - started)
            started = time.perf_counter()
        return statistics.median(seconds[1:] or seconds), fitting.num_epoch_steps, fitting.precision
