"""The constants of a fitted score, in score.npz beside its run; calibration.json has their digest and meaning."""

import hashlib
import io
from typing import BinaryIO

import numpy as np
import torch

from portcullis.bundle.manifest import ScoreInfo
from portcullis_training.errors import ConfigError
from portcullis_training.graph.score import Score
from portcullis_training.graph.score_parts import Constants, OwnScore
from portcullis_training.runs import atomic
from portcullis_training.runs.directory import Run

SCORE_FILE = "score.npz"
_SEPARATOR = "/"


def keep(run: Run, score: Score) -> None:
    """Write the constants of every part."""
    atomic.write(run.directory / SCORE_FILE, lambda file: _write(file, score))


def digest(score: Score) -> str:
    """sha256 of what `keep` writes: the same for the same constants, for NumPy's archives carry no date."""
    stream = io.BytesIO()
    _write(stream, score)
    return hashlib.sha256(stream.getvalue()).hexdigest()


def load(run: Run, info: ScoreInfo, own: OwnScore, digest: str) -> Score:
    """The score again; constants other than those that the calibration knows are refused."""
    path = run.directory / SCORE_FILE
    content = path.read_bytes() if path.is_file() else b""
    if hashlib.sha256(content).hexdigest() != digest:
        raise ConfigError(f"{path} is missing or not the score that the run was calibrated with; calibrate again")
    constants: dict[str, Constants] = {part: {} for part in info.parts[1:]}
    with np.load(io.BytesIO(content)) as stored:
        for key in stored.files:
            part, _, name = key.partition(_SEPARATOR)
            constants[part][name] = torch.from_numpy(stored[key])
    return Score(info, own, constants)


def _write(stream: BinaryIO, score: Score) -> None:
    arrays = {
        f"{part}{_SEPARATOR}{name}": tensor.numpy()
        for part, constants in score.constants.items()
        for name, tensor in constants.items()
    }
    np.savez(stream, **arrays)  # type: ignore[arg-type]
