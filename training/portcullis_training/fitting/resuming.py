"""The state of a run that is being trained, as a checkpoint, and back from one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from portcullis_training.errors import CheckpointError
from portcullis_training.fitting.checkpoint import Checkpoint

if TYPE_CHECKING:
    from portcullis_training.fitting.fit import Fitting


def state_of(fitting: Fitting, generators: list[Tensor]) -> Checkpoint:
    """Everything needed to go on; `generators` are those of all processes."""
    return Checkpoint(
        epoch=fitting.epoch,
        step=fitting.step,
        classifier=fitting.classifier.state_dict(),
        averaged=None if fitting.average is None else fitting.average.state_dict(),
        optimizer=fitting.updating.optimizer.state_dict(),
        scaler=fitting.updating.scaler.state_dict(),
        precision=fitting.precision,
        augmentation_generator=fitting.augmentation_generator.get_state(),
        generators=generators,
        sums=fitting.tally.sums,
        epoch_seconds=fitting.epoch_seconds,
        history=fitting.history,
        class_names=list(fitting.splits.class_names),
        mean=list(fitting.statistics.mean),
        std=list(fitting.statistics.std),
        fingerprints=fitting.splits.fingerprints,
        image_spec=fitting.splits.image_spec.model_dump(),
    )


def restore(fitting: Fitting, saved: Checkpoint) -> None:
    """Go back to where a checkpoint was written."""
    if saved.fingerprints != fitting.splits.fingerprints:
        raise CheckpointError(
            f"the images of {fitting.config.data} are not those that {fitting.run.checkpoint_path} saw"
        )
    if len(saved.generators) != fitting.process.count:
        raise CheckpointError(
            f"the run was started with {len(saved.generators)} processes, now {fitting.process.count}"
        )
    fitting.classifier.load_state_dict(saved.classifier)
    if fitting.average is not None and saved.averaged is not None:
        fitting.average.load_state_dict(saved.averaged)
    fitting.updating.optimizer.load_state_dict(saved.optimizer)
    fitting.updating.scaler.load_state_dict(saved.scaler)
    fitting.augmentation_generator.set_state(saved.augmentation_generator)
    fitting.process.restore_generator(saved.generators)
    fitting.tally.sums.copy_(saved.sums)
    fitting.epoch, fitting.step, fitting.epoch_seconds = saved.epoch, saved.step, saved.epoch_seconds
    fitting.history = [dict(row) for row in saved.history]
    if fitting.history and "validation_accuracy" not in fitting.history[-1]:  # it stopped between epoch and validation
        fitting.validate()
