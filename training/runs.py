"""The run directory: where a run keeps its config, checkpoint, history and, later, its figures."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from training.errors import ConfigError
from training.recipes import RunConfig, make_config


@dataclass(frozen=True)
class Run:
    """One run: its directory and the config that describes it."""

    directory: Path
    config: RunConfig

    @property
    def checkpoint_path(self) -> Path:
        """Weights and everything needed to resume."""
        return self.directory / "checkpoint.pt"

    @property
    def history_path(self) -> Path:
        """One row of figures an epoch."""
        return self.directory / "fit.json"


def create_run(runs_directory: Path, config: RunConfig) -> Run:
    """Make runs/<name>/ and save the config in it."""
    directory = runs_directory / config.name
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(config.model_dump_json(indent=2) + "\n")
    return Run(directory, config)


def open_run(directory: Path) -> Run:
    """An earlier run, by its directory."""
    path = directory / "config.json"
    if not path.is_file():
        raise ConfigError(f"no run at {directory}: expected a config.json there, as `fit` writes it")
    try:
        fields = json.loads(path.read_text())
    except ValueError as error:
        raise ConfigError(f"{path} is not JSON: {error}") from None
    return Run(directory, make_config(fields))
