"""Where a bundle came from: data, seed, commit and libraries, so that it can be made again."""

import importlib.metadata
import subprocess
from pathlib import Path

from portcullis.bundle.manifest import Provenance
from portcullis_training.config import RunConfig
from portcullis_training.measuring.trained import Trained

LIBRARIES = ("portcullis", "torch", "torchvision", "numpy", "onnx", "onnxscript", "onnxruntime")
CONFIG_FILE = "config.json"
"""The run's config inside the bundle: `portcullis-train run --recipe config.json --data …` makes it again."""


def provenance_of(trained: Trained) -> Provenance:
    """Of a trained run, without any path of this machine."""
    config = portable_config(trained.run.config)
    return Provenance(
        data=config.data,
        data_fingerprint=trained.splits.fingerprint,
        seed=config.seed,
        commit=current_commit(Path(__file__).parent),
        libraries=library_versions(),
        recipe=CONFIG_FILE,
    )


def portable_config(config: RunConfig) -> RunConfig:
    """The config with its files named but not located."""
    weights = config.pretrained_weights
    return config.model_copy(
        update={
            "data": _without_directories(config.data),
            "outside": tuple(_without_directories(spec) for spec in config.outside),
            "pretrained_weights": None if weights is None else Path(weights).name,
        }
    )


def library_versions() -> dict[str, str]:
    """Versions of the libraries that shape the result, those that are installed."""
    versions = {}
    for name in LIBRARIES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def current_commit(directory: Path) -> str:
    """The commit of the code, marked where files differ from it; `unknown` outside a repository."""
    commit = _git(directory, "rev-parse", "HEAD")
    if commit is None:
        return "unknown"
    return f"{commit}+changes" if _git(directory, "status", "--porcelain", "--", ".") else commit


def _git(directory: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=directory, capture_output=True, text=True, check=True, timeout=10
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _without_directories(spec: str) -> str:
    kind, _, location = spec.partition(":")
    if kind == "grey":
        return f"grey:{_without_directories(location)}"
    if kind not in ("folder", "idx", "npz"):
        return spec
    return f"{kind}:" + ",".join(Path(part).name for part in location.split(","))
