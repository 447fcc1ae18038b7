"""A bundle on disk, `models/<name>/<version>/`: read, written and verified. Knows digests and files, no arithmetic."""

import errno
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from portcullis.bundle.manifest import Manifest
from portcullis.errors import BundleError

MANIFEST_FILE = "manifest.json"
MODEL_FILE = "model.onnx"
SIGNATURE_FILE = "manifest.sig"
DEFAULT_FILE = "default"
MAX_MANIFEST_BYTES = 64 * 1024 * 1024


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


def load_bundle(path: Path, check: Callable[[Path, bytes], None] = lambda path, manifest: None) -> Bundle:
    """Read and verify the bundle at `path`: schema, digests, completeness. The graph is for the engine to check.

    `check` sees the bytes of the manifest before they are believed; a service loads bundles by whom it trusts
    (signatures.py), never by this function alone.
    """
    content = read_manifest(path)
    check(path, content)
    manifest = parse_manifest(content, path.name)
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
    digests = {file: hashlib.sha256(content).hexdigest() for file, content in files.items()}
    manifest = manifest.model_copy(update={"files": digests})
    draft: Path | None = None
    try:
        folders = _make_folders(target.parent)
        draft = Path(tempfile.mkdtemp(prefix=f".{manifest.version}-", dir=target.parent))
        for file, content in files.items():
            _write_durably(draft / file, content)
        _write_durably(draft / MANIFEST_FILE, (manifest.model_dump_json(indent=1) + "\n").encode())
        check(load_bundle(draft))
        draft.chmod(0o755)  # mkdtemp made it private; the service may run as another user
        _sync_names(*(path for path in draft.rglob("*") if path.is_dir()), draft)
        draft.rename(target)
        _sync_names(*folders)
    except BaseException as error:
        if draft is not None:
            shutil.rmtree(draft, ignore_errors=True)
        if isinstance(error, OSError) and error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            raise BundleError(
                f"bundle {manifest.name}/{manifest.version} was written by somebody else just now; try again"
            ) from error
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


def default_name(models: Path) -> str | None:
    """The name that answers when a request names none, where the file `default` of a models directory says one."""
    try:
        return (models / DEFAULT_FILE).read_text().strip() or None
    except (OSError, UnicodeDecodeError):  # it may be a bundle of that name, or not there
        return None


def laid_out(models: Path, place: Path) -> Path:
    """A models directory as it is. One bundle that lies there directly gets its place, <name>/<version>, by a link.

    So it is where a platform has put the one bundle that it was asked to serve (KServe: /mnt/models).
    """
    if not (models / MANIFEST_FILE).is_file():
        return models
    manifest = parse_manifest(read_manifest(models), models.name)
    shutil.rmtree(place, ignore_errors=True)
    (place / manifest.name).mkdir(parents=True)
    (place / manifest.name / str(manifest.version)).symlink_to(models.resolve(), target_is_directory=True)
    return place


def read_manifest(path: Path) -> bytes:
    """The manifest of the bundle at `path` as it stands there, if it is no larger than any sensible one."""
    try:
        with (path / MANIFEST_FILE).open("rb") as stream:
            content = stream.read(MAX_MANIFEST_BYTES + 1)
    except OSError as error:
        raise BundleError(f"bundle {path.name}: cannot read {MANIFEST_FILE}: {error.strerror}") from error
    if len(content) > MAX_MANIFEST_BYTES:
        raise BundleError(f"bundle {path.name}: {MANIFEST_FILE} is larger than {MAX_MANIFEST_BYTES} bytes")
    return content


def parse_manifest(content: bytes, name: str) -> Manifest:
    """A manifest that keeps to its schema; `name` is for the error."""
    try:
        return Manifest.model_validate_json(content)
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'manifest'}: {e['msg']}" for e in error.errors()[:5])
        raise BundleError(f"bundle {name}: {MANIFEST_FILE} is not valid: {problems}") from error


def _make_folders(path: Path) -> list[Path]:
    """Make a directory and those above it; gives the ones to sync once something has got a name in it."""
    new = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    return [path, *(folder.parent for folder in new)]


def _sync_names(*directories: Path) -> None:
    """A file's name is kept in its directory, which a sync of the file leaves out."""
    for directory in directories:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _write_durably(file: Path, content: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
