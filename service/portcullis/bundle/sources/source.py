"""What the service asks of a source, and the source that needs no fetching: a directory of this machine."""

from pathlib import Path
from typing import Protocol

from portcullis.bundle import files
from portcullis.bundle.files import MANIFEST_FILE, MODEL_FILE, Bundle
from portcullis.bundle.signatures import SIGNATURE_FILE, Trust
from portcullis.bundle.sources.listing import Entry, Listing, gather
from portcullis.errors import BundleError

UNSIGNED = "bundles have to be signed, and the service holds no private key; use `portcullis calibrate`, then sign"


class Source(Protocol):
    """Bundles by name and version, wherever they lie."""

    @property
    def place(self) -> str:
        """Where that is, for people."""

    @property
    def read_only(self) -> str | None:
        """Why the service can write no bundle here; None where it can."""

    def look(self) -> Listing:
        """What is there now; raises SourceAway."""

    def listing(self, max_age_seconds: float = 0.0) -> Listing:
        """What is there, as it was so long ago at the most; where that is away, what can be loaded all the same."""

    def at_hand(self) -> Listing:
        """What is known to be there; asks nobody."""

    def load(self, name: str, version: int) -> Bundle:
        """A bundle on this machine: fetched where it is not, verified, signed where that is wanted."""

    def renew(self, name: str, version: int) -> None:
        """Let a version that was refused be fetched again, where it has changed at its source."""


class DirectorySource:
    """`<name>/<version>/` in a directory of this machine."""

    def __init__(self, models: Path, trust: Trust | None = None) -> None:
        self._models, self._trust = models, trust or Trust()
        self.read_only = UNSIGNED if self._trust.is_demanded else None

    @property
    def place(self) -> str:
        return str(self._models)

    def look(self) -> Listing:
        models = self._models
        found = [
            (name, str(version), _entry(models / name / str(version)))
            for name in files.names(models)
            for version in files.versions(models, name)
        ]
        return gather(found, files.default_name(models))

    def listing(self, max_age_seconds: float = 0.0) -> Listing:
        return self.look()

    def at_hand(self) -> Listing:
        return self.look()

    def load(self, name: str, version: int) -> Bundle:
        path = self._models / name / str(version)
        if not path.is_dir():
            raise BundleError(f"no bundle {name}/{version} lies in the models directory")
        return load_as(self._trust, path, name, version)

    def renew(self, name: str, version: int) -> None:
        """It is read where it lies."""


def load_as(trust: Trust, path: Path, name: str, version: int) -> Bundle:
    """A bundle that is what its place says: a stranger must not pass off one version, though signed, as another."""
    bundle = trust.load(path)
    if (bundle.manifest.name, bundle.manifest.version) != (name, version):
        raise BundleError(f"bundle {bundle.label} lies where {name}/{version} is expected")
    return bundle


def _entry(path: Path) -> Entry:
    return Entry(str(path), "-".join(_stamp(path / file) for file in (MANIFEST_FILE, MODEL_FILE, SIGNATURE_FILE)))


def _stamp(file: Path) -> str:
    try:
        status = file.stat()
    except OSError:
        return "none"
    return f"{status.st_mtime_ns}.{status.st_size}.{status.st_ino}"
