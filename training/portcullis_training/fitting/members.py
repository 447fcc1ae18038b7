"""Train an ensemble: its members as runs of their own, then one checkpoint of all of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from portcullis_training import methods
from portcullis_training.config import RunConfig
from portcullis_training.errors import CheckpointError
from portcullis_training.fitting import checkpoint
from portcullis_training.fitting.ensemble import together
from portcullis_training.fitting.fit import History, fit
from portcullis_training.fitting.preparation import refuse_what_the_method_cannot
from portcullis_training.runs.directory import Run, create_run
from portcullis_training.runs.exclusive import alone

DIRECTORY = "members"


def member_seeds(config: RunConfig) -> range:
    """Seeds that follow one another, from the run's own on."""
    return range(config.seed, config.seed + config.members)


def member_config(config: RunConfig, seed: int) -> RunConfig:
    """One member: a seed of its own for everything but the splits, so that no member sees another's held-out images."""
    split_seed = config.seed if config.split_seed is None else config.split_seed
    fields = {"name": f"{config.name}-member-seed{seed}", "members": 1, "seed": seed, "split_seed": split_seed}
    return config.model_copy(update=fields)


def train_members(run: Run, members: Sequence[Run], *, show_progress: bool) -> History:
    """Train what is not yet trained of `members`, or of members below the run's directory, and put them together."""
    refuse_what_the_method_cannot(methods.find(run.config.method), run.config)
    chosen = members or [
        create_run(run.directory / DIRECTORY, member_config(run.config, seed)) for seed in member_seeds(run.config)
    ]
    history: History = []
    for member in chosen:
        history += fit(member, resume=member.checkpoint_path.exists(), show_progress=show_progress)
    with alone(run.checkpoint_path):  # under torchrun all processes come here, and write the same
        _assemble(run, chosen, history)
    return history


def _assemble(run: Run, members: Sequence[Run], history: History) -> None:
    saved = [checkpoint.load(member.checkpoint_path) for member in members]
    first = saved[0]
    for other in saved[1:]:
        if (other.fingerprints, other.mean, other.std) != (first.fingerprints, first.mean, first.std):
            raise CheckpointError(f"the members of {run.directory} were not trained on the same split; train them anew")
    classifier = together([checkpoint.load_classifier(member) for member in members])
    whole = dataclasses.replace(
        first, epoch=run.config.epochs, step=0, classifier=classifier.state_dict(), averaged=None, optimizer={},
        scaler={}, history=history,
    )  # fmt: skip
    checkpoint.save(run.checkpoint_path, whole)
