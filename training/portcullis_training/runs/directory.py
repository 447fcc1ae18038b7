"""The run directory: where a run keeps its config, checkpoint, history and, later, its figures."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

from portcullis_training.config import RunConfig, make_config
from portcullis_training.errors import ConfigError
from portcullis_training.runs import atomic


@dataclass(frozen=True)
class Run:
    """One run: its directory and the config that describes it."""

    directory: Path
    config: RunConfig
    stage: str | None = None
    """Of a run that is trained in stages: which of them this is; None: what the stages came to."""

    @property
    def checkpoint_path(self) -> Path:
        """Weights and everything needed to resume."""
        return self.directory / f"{self.stage or 'checkpoint'}.pt"

    @property
    def history_path(self) -> Path:
        """One row of figures an epoch."""
        return self.directory / f"{self.stage or 'fit'}.json"

    def at(self, stage: str) -> Run:
        """The same run in one of its stages, which keeps files of its own."""
        return replace(self, stage=stage)


def create_run(runs_directory: Path, config: RunConfig, *, overwrite: bool = False) -> Run:
    """Make runs/<name>/ and save the config in it; a run of the same name that has another config is refused."""
    run = Run(runs_directory / config.name, config)
    path = run.directory / "config.json"
    if overwrite:
        for left in run.directory.glob("*.pt"):  # of all stages
            left.unlink()
    elif run.checkpoint_path.exists() and (changed := _difference(read_config(path), config)):
        raise ConfigError(
            f"{run.directory} holds another run ({changed}); give this one another --name, or --overwrite that one"
        )
    try:
        run.directory.mkdir(parents=True, exist_ok=True)
        atomic.write_text(path, config.model_dump_json(indent=2) + "\n")
    except OSError as error:
        raise ConfigError(f"cannot write the run directory {run.directory}: {error}") from None
    return run


def open_run(directory: Path) -> Run:
    """An earlier run, by its directory."""
    if not (directory / "config.json").is_file():
        raise ConfigError(f"no run at {directory}: expected a config.json there, as `fit` writes it")
    return Run(directory, read_config(directory / "config.json"))


def measured_against(run: Run, outside: tuple[str, ...]) -> Run:
    """The same run with other outside sets, saved: they have a say in nothing but its figures."""
    changed = Run(run.directory, run.config.model_copy(update={"outside": outside}))
    atomic.write_text(run.directory / "config.json", changed.config.model_dump_json(indent=2) + "\n")
    return changed


def read_config(path: Path) -> RunConfig:
    """A saved config; an unknown field in it is refused."""
    try:
        fields = json.loads(path.read_text())
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"{path} is not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise ConfigError(f"{path}: expected a JSON object with the fields of a run")
    return make_config(fields)


def _difference(old: RunConfig, new: RunConfig) -> str:
    """The first field that differs, in words; empty for equal configs."""
    for name in RunConfig.model_fields:
        if getattr(old, name) != getattr(new, name):
            return f"{name} was {getattr(old, name)!r}, now {getattr(new, name)!r}"
    return ""
