"""Takes a bundle to a URL, or from there to a directory: whole, verified, and never over another of its name."""

import contextlib
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from portcullis.bundle.files import MANIFEST_FILE, MAX_MANIFEST_BYTES, SIGNATURE_FILE, load_bundle
from portcullis.bundle.signatures import Trust
from portcullis.bundle.sources.fetching import fetch
from portcullis.bundle.sources.listing import Entry, Listing
from portcullis.bundle.sources.opening import remote_of
from portcullis.bundle.sources.remote import Remote
from portcullis.errors import BundleError, PortcullisError

MAX_BYTES = 64 * 1024**3


def push(path: Path, url: str) -> tuple[str, bool]:
    """Put the bundle at `path` below a URL; its label, and whether it was not there already, signature and all."""
    bundle = load_bundle(path)
    manifest, remote = bundle.manifest, remote_of(url)
    with _one_line(url):
        entry = _look(remote).find(manifest.name, manifest.version)
        if entry is not None and _is_there(remote, entry, path, bundle.label):
            return bundle.label, False
        signature = [SIGNATURE_FILE] if (path / SIGNATURE_FILE).is_file() else []
        files = [*sorted(manifest.files), *signature, MANIFEST_FILE]
        remote.upload(path, manifest.name, manifest.version, files)
    return bundle.label, True


def pull(url: str, wanted: Sequence[str], models: Path, trust: Trust) -> list[str]:
    """Fetch `name` or `name@version`, or the newest of every name, into a models directory; the labels of what came."""
    remote = remote_of(url)
    with _one_line(url):
        listing = remote.look()
        chosen = [_choose(listing, text, url) for text in wanted or listing.names()]
        if not chosen:
            raise BundleError(f"no bundle lies in {url}")
        return [_pull_one(remote, listing, key, models, trust) for key in chosen]


def _look(remote: Remote) -> Listing:
    """What is there; nothing where the place itself is still to be made."""
    try:
        return remote.look()
    except FileNotFoundError:
        return Listing()


def _is_there(remote: Remote, entry: Entry, path: Path, label: str) -> bool:
    """Whether the same lies there. Another manifest under that name is refused; another signature takes its place."""
    with tempfile.TemporaryDirectory() as directory:
        there = Path(directory)
        remote.download(entry.place, MANIFEST_FILE, there / MANIFEST_FILE, MAX_MANIFEST_BYTES)
        with contextlib.suppress(FileNotFoundError):
            remote.download(entry.place, SIGNATURE_FILE, there / SIGNATURE_FILE, MAX_MANIFEST_BYTES)
        if _read(there, MANIFEST_FILE) != _read(path, MANIFEST_FILE):
            raise BundleError(f"another bundle {label} is there already, and a version is immutable")
        return not _read(path, SIGNATURE_FILE) or _read(there, SIGNATURE_FILE) == _read(path, SIGNATURE_FILE)


def _read(directory: Path, file: str) -> bytes:
    path = directory / file
    return path.read_bytes() if path.is_file() else b""


def _choose(listing: Listing, text: str, url: str) -> tuple[str, int]:
    name, _, version = text.partition("@")
    known = listing.versions(name)
    if not known or (version and version not in map(str, known)):
        found = ", ".join(f"{n}@{v}" for n in listing.names() for v in listing.versions(n))
        raise BundleError(f"no bundle {text} in {url}; there are: {found or 'none'}")
    return name, int(version) if version else known[-1]


def _pull_one(remote: Remote, listing: Listing, key: tuple[str, int], models: Path, trust: Trust) -> str:
    name, version = key
    target, entry = models / name / str(version), listing.find(*key)
    assert entry is not None
    if target.exists():
        raise BundleError(f"{target} exists already, and a version is immutable")
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{version}-", dir=target.parent))
    draft = scratch / str(version)
    draft.mkdir()
    try:
        manifest = fetch(remote, entry.place, draft, trust, MAX_BYTES)
        if (manifest.name, manifest.version) != key:
            raise BundleError(f"{manifest.name}/{manifest.version} lies there")
        draft.rename(target)
    except BundleError as error:  # of several that are pulled, which
        raise BundleError(f"{name}/{version} in {remote.url}: {error}") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return f"{name}/{version}"


@contextlib.contextmanager
def _one_line(url: str) -> Iterator[None]:
    """Whatever a library raises, as one line for a person."""
    try:
        yield
    except PortcullisError:
        raise
    except Exception as error:
        raise PortcullisError(f"{url}: {type(error).__name__}: {' '.join(str(error).split())[:300]}") from error
