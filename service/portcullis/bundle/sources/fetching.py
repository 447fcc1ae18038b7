"""Fetches one bundle: manifest and signature first, then only what the manifest lists, each file by its digest."""

import contextlib
import hashlib
import os
from pathlib import Path

from portcullis.bundle.files import (
    MANIFEST_FILE,
    MAX_MANIFEST_BYTES,
    MODEL_FILE,
    SIGNATURE_FILE,
    parse_manifest,
    read_manifest,
)
from portcullis.bundle.manifest import Manifest
from portcullis.bundle.signatures import Trust
from portcullis.bundle.sources.remote import Remote
from portcullis.errors import BundleError

MAX_FILES = 1000
_MAX_SIGNATURE_BYTES = 65536


def fetch(remote: Remote, place: str, draft: Path, trust: Trust, max_bytes: int) -> Manifest:
    """Write the bundle at `place` into an empty directory. Nothing else is written, whatever the place says."""
    size = remote.download(place, MANIFEST_FILE, draft / MANIFEST_FILE, min(MAX_MANIFEST_BYTES, max_bytes))
    with contextlib.suppress(FileNotFoundError):
        remote.download(place, SIGNATURE_FILE, draft / SIGNATURE_FILE, _MAX_SIGNATURE_BYTES)
    content = read_manifest(draft)
    trust.check(draft, content)  # before a byte more is fetched
    manifest = parse_manifest(content, draft.name)
    _check_files(manifest)
    for file, digest in sorted(manifest.files.items()):
        size += _fetch_file(remote, place, file, draft, digest, max_bytes - size)
    return manifest


def _check_files(manifest: Manifest) -> None:
    """Names are checked by the manifest's schema, which lets none lead out of the directory."""
    if MODEL_FILE not in manifest.files:
        raise BundleError(f"bundle {manifest.name}/{manifest.version}: the manifest lists no {MODEL_FILE}")
    if len(manifest.files) > MAX_FILES or {MANIFEST_FILE, SIGNATURE_FILE} & manifest.files.keys():
        raise BundleError(f"bundle {manifest.name}/{manifest.version}: the manifest lists files that a bundle has not")


def _fetch_file(remote: Remote, place: str, file: str, draft: Path, digest: str, max_bytes: int) -> int:
    target = draft / file
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        size = remote.download(place, file, target, max_bytes)
    except FileNotFoundError:
        raise BundleError(f"{file} is not there, and the manifest lists it") from None
    with target.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
        os.fsync(stream.fileno())
    if found != digest:
        raise BundleError(
            f"{file} has digest {found[:12]}…, the manifest says {digest[:12]}…; it was changed or cut short"
        )
    return size
