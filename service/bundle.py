"""The bundle: what training hands to the service. Reads, writes and verifies `models/<name>/<version>/`.

Both lines use this module, so it knows the standard library and pydantic, nothing else. docs/bundle.md is its prose.
"""

import hashlib
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from service.errors import BundleError

FORMAT_VERSION = 1
MANIFEST_FILE = "manifest.json"
MODEL_FILE = "model.onnx"
MAX_MANIFEST_BYTES = 64 * 1024 * 1024

Share = Annotated[float, Field(ge=0, le=1)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
FileName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*$")]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class _Frozen(BaseModel):
    """What is unknown is refused: a manifest is never half understood."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class ImageSpec(_Frozen):
    """How any picture becomes the graph's input."""

    height: int = Field(ge=1, le=4096)
    width: int = Field(ge=1, le=4096)
    resize_shorter_side: int | None = Field(None, ge=1, le=4096)
    """Scale the shorter side to this, then crop the centre; none: stretch to height × width."""
    interpolation: Literal["nearest", "bilinear", "bicubic", "lanczos"] = "bilinear"

    @model_validator(mode="after")
    def _crop_fits(self) -> "ImageSpec":
        if self.resize_shorter_side is not None and self.resize_shorter_side < max(self.height, self.width):
            raise ValueError(
                f"resize_shorter_side {self.resize_shorter_side} is less than the crop {self.height}x{self.width}"
            )
        return self


class MethodInfo(_Frozen):
    """What was trained, and what `score` means."""

    name: str
    backbone: str
    fractional_regulariser: bool
    score: str
    """Name of the score in the graph: `mmles` for DisMax; higher is more familiar."""
    score_temperature: float = Field(gt=0)
    """Temperature of the logits inside the score (not of the probabilities)."""


class CalibrationScores(_Frozen):
    """The sorted scores of held-out inside images, all of them or some order statistics with their ranks."""

    num_images: int = Field(ge=1)
    scores: tuple[float, ...]
    ranks: tuple[int, ...] | None = None
    """Rank (1 = smallest) of each score among all images; none: every score is here."""

    @model_validator(mode="after")
    def _sorted_and_complete(self) -> "CalibrationScores":
        if any(later < earlier for earlier, later in zip(self.scores, self.scores[1:], strict=False)):
            raise ValueError("calibration scores must be sorted, smallest first")
        ranks = self.ranks if self.ranks is not None else tuple(range(1, self.num_images + 1))
        if len(ranks) != len(self.scores):
            raise ValueError(f"expected {len(ranks)} calibration scores, got {len(self.scores)}")
        if list(ranks) != sorted(set(ranks)) or ranks[0] != 1 or ranks[-1] != self.num_images:
            raise ValueError("ranks must rise strictly from 1 to num_images")
        return self


class OperatingPoint(_Frozen):
    """A named threshold with its promise about familiar images (docs/bundle.md)."""

    name: Name
    alpha: float = Field(gt=0, lt=1)
    """At most this share of familiar images is rejected, on average over calibration sets."""
    threshold: float
    """Scores at or above it are accepted."""
    rejected_share_bound: Share
    """The share of familiar images that this calibration set does not exceed, with 95 % confidence."""


class OutsideFigures(_Frozen):
    """How well the score tells one outside set from the inside test images (inside = positive unless named)."""

    num_images: int = Field(ge=1)
    auroc: Share
    aupr_inside: Share
    aupr_outside: Share
    tnr_at_tpr95: Share
    """Share of outside images rejected at the threshold that keeps 95 % of inside ones."""
    caught: dict[str, Share] = {}
    """Share of this set rejected at each operating point."""
    score_quantiles: tuple[float, ...] = ()
    """Evenly spaced quantiles of this set's scores, smallest first: what any threshold would catch."""


class Figures(_Frozen):
    """Measured on test images that neither training nor calibration saw."""

    num_images: int = Field(ge=1)
    accuracy: Share
    ece: Share
    nll: float
    brier: float
    rejected: dict[str, Share] = {}
    """Share of inside test images rejected at each operating point."""
    outside: dict[str, OutsideFigures] = {}


class Provenance(_Frozen):
    """Where it came from, so that it can be made again."""

    data: str
    data_fingerprint: str
    seed: int
    commit: str
    libraries: dict[str, str]
    recipe: str = ""


class SelfTest(_Frozen):
    """What the graph answered on the engine's built-in test images when it was exported."""

    probabilities: tuple[tuple[float, ...], ...]
    scores: tuple[float, ...]


class Manifest(_Frozen):
    """Everything about the graph that is not arithmetic."""

    format_version: Literal[1] = 1
    name: Name
    version: int = Field(ge=1)
    created: datetime
    labels: tuple[str, ...] = Field(min_length=2)
    image: ImageSpec
    method: MethodInfo
    temperature: float = Field(gt=0)
    calibration: CalibrationScores
    operating_points: tuple[OperatingPoint, ...]
    class_mix: tuple[Share, ...]
    """Share of each predicted class among the calibration images: the reference for drift."""
    figures: Figures
    provenance: Provenance
    self_test: SelfTest
    files: dict[FileName, Digest] = {}
    """sha256 of every file of the bundle but the manifest itself."""

    @model_validator(mode="after")
    def _lengths_agree(self) -> "Manifest":
        if len(set(self.labels)) != len(self.labels):
            raise ValueError("labels must differ from one another")
        if len(self.class_mix) != len(self.labels):
            raise ValueError(f"class_mix has {len(self.class_mix)} shares for {len(self.labels)} labels")
        if not math.isclose(sum(self.class_mix), 1, abs_tol=1e-3):
            raise ValueError(f"class_mix must add up to 1, got {sum(self.class_mix):.4f}")
        names = [point.name for point in self.operating_points]
        if len(set(names)) != len(names):
            raise ValueError(f"operating points must have different names, got {names}")
        return self


@dataclass(frozen=True)
class Bundle:
    """A verified bundle on disk."""

    path: Path
    manifest: Manifest

    def read(self, file: str) -> bytes:
        """The bytes of one file, checked against its digest at this very read."""
        if file not in self.manifest.files:
            raise BundleError(f"bundle {self.label}: the manifest lists no file {file!r}")
        try:
            content = (self.path / file).read_bytes()
        except OSError as error:
            raise BundleError(f"bundle {self.label}: cannot read {file}: {error.strerror}") from error
        digest = hashlib.sha256(content).hexdigest()
        if digest != self.manifest.files[file]:
            raise BundleError(
                f"bundle {self.label}: {file} has digest {digest[:12]}…, the manifest says "
                f"{self.manifest.files[file][:12]}…; the file was changed or cut short after export"
            )
        return content

    @property
    def label(self) -> str:
        return f"{self.manifest.name}/{self.manifest.version}"


def load_bundle(path: Path) -> Bundle:
    """Read and verify the bundle at `path`: schema, digests, completeness. The graph is for the engine to check."""
    manifest = _read_manifest(path)
    if MODEL_FILE not in manifest.files:
        raise BundleError(f"bundle {path.name}: the manifest lists no {MODEL_FILE}")
    bundle = Bundle(path, manifest)
    for file in manifest.files:
        bundle.read(file)
    return bundle


def write_bundle(
    models: Path, manifest: Manifest, files: Mapping[str, bytes], check: Callable[[Bundle], None] = lambda bundle: None
) -> Bundle:
    """Write `models/<name>/<version>/` whole or not at all; `check` sees the written bundle before it gets its name."""
    target = models / manifest.name / str(manifest.version)
    if target.exists():
        raise BundleError(f"bundle {manifest.name}/{manifest.version} exists already, and a version is immutable")
    target.parent.mkdir(parents=True, exist_ok=True)
    digests = {file: hashlib.sha256(content).hexdigest() for file, content in files.items()}
    manifest = manifest.model_copy(update={"files": digests})
    draft = Path(tempfile.mkdtemp(prefix=f".{manifest.version}-", dir=target.parent))
    try:
        for file, content in files.items():
            _write_durably(draft / file, content)
        _write_durably(draft / MANIFEST_FILE, (manifest.model_dump_json(indent=1) + "\n").encode())
        check(load_bundle(draft))
        draft.chmod(0o755)  # mkdtemp made it private; the service may run as another user
        draft.rename(target)
    except BaseException as error:
        shutil.rmtree(draft, ignore_errors=True)
        if isinstance(error, OSError):
            reason = error.strerror or str(error)
            raise BundleError(f"cannot write bundle {manifest.name}/{manifest.version}: {reason}") from error
        raise
    return Bundle(target, manifest)


def versions(models: Path, name: str) -> list[int]:
    """Versions of a name that lie in a models directory, oldest first."""
    directory = models / name
    if not directory.is_dir():
        return []
    return sorted(
        int(path.name) for path in directory.iterdir() if path.name.isdecimal() and (path / MANIFEST_FILE).is_file()
    )


def names(models: Path) -> list[str]:
    """Names with at least one version in a models directory."""
    if not models.is_dir():
        return []
    return sorted(path.name for path in models.iterdir() if path.is_dir() and versions(models, path.name))


def _read_manifest(path: Path) -> Manifest:
    file = path / MANIFEST_FILE
    try:
        if file.stat().st_size > MAX_MANIFEST_BYTES:
            raise BundleError(f"bundle {path.name}: {MANIFEST_FILE} is larger than {MAX_MANIFEST_BYTES} bytes")
        text = file.read_bytes()
    except OSError as error:
        raise BundleError(f"bundle {path.name}: cannot read {MANIFEST_FILE}: {error.strerror}") from error
    try:
        return Manifest.model_validate_json(text)
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'manifest'}: {e['msg']}" for e in error.errors()[:5])
        raise BundleError(f"bundle {path.name}: {MANIFEST_FILE} is not valid: {problems}") from error


def _write_durably(file: Path, content: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
