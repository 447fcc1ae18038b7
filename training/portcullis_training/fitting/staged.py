"""Train a run: in one go, or frozen first and then as a whole. READ `train` FIRST.

A run that begins frozen has a usable checkpoint as soon as its head is trained. Fine-tuning keeps files of its own, and
takes the checkpoint's place at the end only if it answers more validation images rightly.
"""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from portcullis_training import data, methods
from portcullis_training.errors import CheckpointError, ConfigError
from portcullis_training.fitting import checkpoint, frozen
from portcullis_training.fitting.distributed import choose_device
from portcullis_training.fitting.fit import History, Start, fit
from portcullis_training.fitting.members import train_members
from portcullis_training.fitting.plan import PLAN, Plan, make_plan
from portcullis_training.fitting.preparation import refuse_what_the_method_cannot
from portcullis_training.runs.artefact import Artefact, Origins
from portcullis_training.runs.directory import Run
from portcullis_training.runs.exclusive import alone

FINE_TUNED = "fine-tuned"

logger = logging.getLogger(__name__)


class Stages(BaseModel):
    """What stages.json holds: how a run that began frozen ended."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kept: str
    frozen_validation_accuracy: float
    fine_tuned_validation_accuracy: float | None = None
    """None where there was no fine-tuning."""
    epochs: int
    reason: str
    """Why so many epochs."""
    encoding_seconds: float
    frozen_seconds: float
    fine_tuning_seconds: float = 0.0


STAGES = Artefact("stages.json", Stages, "fit")


def is_trained(run: Run) -> bool:
    """Whether a run is at its end."""
    if not run.checkpoint_path.exists():
        return False
    if not run.config.frozen:
        return checkpoint.load(run.checkpoint_path).epoch >= run.config.epochs
    try:
        STAGES.read(run, _origins(run))
    except ConfigError:
        return False
    return True


def train(run: Run, *, show_progress: bool = True, members: Sequence[Run] = (), seconds_before: float = 0.0) -> History:
    """Train a run to its end, from wherever it is; one row of figures an epoch.

    `members`: the runs that an ensemble is made of, where they are shared with others; by default it has its own.
    `seconds_before`: what the command has spent of the run's minutes already.
    """
    if run.config.members > 1:
        return train_members(run, members, show_progress=show_progress)
    if not run.config.frozen:
        return fit(run, resume=run.checkpoint_path.exists(), show_progress=show_progress)
    refuse_what_the_method_cannot(methods.find(run.config.method), run.config)
    started = time.perf_counter()
    splits = data.load(run.config.data, run.config)
    history = [_frozen_row(run, splits)]
    plan = _plan(run, splits, seconds_before + time.perf_counter() - started)
    logger.info("fine-tuning: %s (%s)", f"{plan.epochs} epochs" if plan.epochs else "none", plan.reason)
    if plan.epochs:
        history += _fine_tune(run, plan, show_progress)
    _finish(run, plan, history)
    return history


def _frozen_row(run: Run, splits: data.Splits) -> dict[str, float]:
    """The history of the first stage, which is done now unless it is done; of several processes one does it."""
    stage = run.at(frozen.STAGE)
    with alone(stage.checkpoint_path):
        if not stage.checkpoint_path.exists():
            row = frozen.fit_frozen(
                stage, splits, choose_device(run.config.device, int(os.environ.get("LOCAL_RANK", "0")))
            )
            logger.info(
                "frozen backbone: %.2f %% of validation images right after %.0f s, %.0f of them for encoding",
                100 * row["validation_accuracy"], row["seconds"], row["encoding_seconds"],
            )  # fmt: skip
        saved = checkpoint.load(stage.checkpoint_path)
        if saved.fingerprints != splits.fingerprints:
            raise CheckpointError(f"the images of {run.config.data} are not those that {stage.checkpoint_path} saw")
        if not run.checkpoint_path.exists():
            _put_in_place(stage, run)
    return saved.history[0]


def _plan(run: Run, splits: data.Splits, seconds_spent: float) -> Plan:
    origins = {"config": run.config.model_dump_json(include={"epochs", "minutes", "batch_size", "seed"})}
    with alone(PLAN.path(run)):
        try:
            return PLAN.read(run, origins)
        except ConfigError:  # not yet, or for other minutes
            plan = make_plan(run.at(FINE_TUNED), splits, _start(run, None), seconds_spent)
            PLAN.write(run, plan, origins)
            return plan


def _start(run: Run, precision: str | None) -> Start:
    return Start(checkpoint.load(run.at(frozen.STAGE).checkpoint_path).classifier, precision)


def _fine_tune(run: Run, plan: Plan, show_progress: bool) -> History:
    config = run.config.model_copy(update={"epochs": plan.epochs})
    stage = Run(run.directory, config, FINE_TUNED)
    is_resumed = stage.checkpoint_path.exists()
    return fit(stage, resume=is_resumed, show_progress=show_progress, start=_start(run, plan.precision))


def _finish(run: Run, plan: Plan, history: History) -> None:
    """Keep the better of the two, and say which."""
    first, last = history[0], history[-1]
    is_better = plan.epochs > 0 and last["validation_accuracy"] > first["validation_accuracy"]
    kept = FINE_TUNED if is_better else frozen.STAGE
    with alone(run.checkpoint_path):
        _put_in_place(run.at(kept), run)
        stages = Stages(
            kept=kept,
            frozen_validation_accuracy=first["validation_accuracy"],
            fine_tuned_validation_accuracy=last["validation_accuracy"] if plan.epochs else None,
            epochs=plan.epochs,
            reason=plan.reason,
            encoding_seconds=first["encoding_seconds"],
            frozen_seconds=first["seconds"],
            fine_tuning_seconds=sum(row["seconds"] for row in history[1:]),
        )
        STAGES.write(run, stages, _origins(run))
    if plan.epochs:
        logger.info(
            "kept: %s; validation images right: frozen %.2f %%, fine-tuned %.2f %%",
            kept, 100 * first["validation_accuracy"], 100 * last["validation_accuracy"],
        )  # fmt: skip


def _put_in_place(stage: Run, run: Run) -> None:
    """A stage's checkpoint becomes the run's: whole or not at all."""
    temporary = run.checkpoint_path.with_suffix(".tmp")
    shutil.copyfile(stage.checkpoint_path, temporary)
    temporary.replace(run.checkpoint_path)


def _origins(run: Run) -> Origins:
    config = run.config.model_dump_json(include={"epochs", "minutes"})
    return {"weights": checkpoint.digest(run.checkpoint_path), "config": config}
