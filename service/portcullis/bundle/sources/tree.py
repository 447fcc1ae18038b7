"""Bundles in an object store, on a web server or on the Hugging Face Hub: `<name>/<version>/` below a URL, or the files
of one bundle at the URL itself. The only user of fsspec, whose implementations find credentials by their platform's
usual means.
"""

import contextlib
import io
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from portcullis.bundle.files import (
    DEFAULT_FILE,
    MANIFEST_FILE,
    MAX_MANIFEST_BYTES,
    MODEL_FILE,
    SIGNATURE_FILE,
    parse_manifest,
)
from portcullis.bundle.sources.listing import Entry, Listing, gather, is_name, is_version
from portcullis.bundle.sources.remote import copy
from portcullis.errors import BundleError, SettingsError

EXTRAS = {
    "s3": "s3",
    "gs": "gcs",
    "az": "azure",
    "abfs": "azure",
    "abfss": "azure",
    "https": "https",
    "http": "https",
    "hf": "hub",
}
"""By scheme, the extra that brings what fsspec needs for it."""
_TIME_FIELDS = ("LastModified", "last_modified", "mtime", "updated", "created")
_STAMP_FIELDS = (
    *("ETag", "etag", "md5Hash", "blob_id"),
    *("Last-Modified", "LastModified", "last_modified", "mtime", "created", "size"),
)
"""What implementations of fsspec call the digest of a file, its time and its size."""
_MAX_DEFAULT_BYTES = 256
_OPTIONS: dict[str, dict[str, Any]] = {
    # s3fs tries again by itself; botocore beneath it would do so five times for each of these
    "s3": {"config_kwargs": {"connect_timeout": 5, "read_timeout": 30, "retries": {"total_max_attempts": 1}}},
}

Info = Mapping[str, Any]


class Tree:
    """One URL."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        scheme = url.partition(":")[0]
        self._is_web, self._is_hub = scheme in ("http", "https"), scheme == "hf"
        self._opening = {"block_size": 0} if self._is_web or self._is_hub else {}  # one stream, no ranges
        self._files, self._root = open_tree(self.url)
        self._read_before: dict[str, tuple[str, bytes]] = {}

    def look(self) -> Listing:
        self._files.invalidate_cache()
        found = dict(self._walk_web() if self._is_web else self._walk())
        if MANIFEST_FILE in found:
            return gather([self._single(found)])
        whole = [path.split("/")[:2] for path in found if path.count("/") == 2 and path.endswith(f"/{MANIFEST_FILE}")]
        entries = [(name, version, self._entry(f"{name}/{version}", found)) for name, version in whole]
        return gather(entries, self._default(found.get(DEFAULT_FILE)))

    def download(self, place: str, file: str, target: Path, max_bytes: int) -> int:
        if self._is_hub:  # opening says what is not there in words of its own
            self._files.info(f"{place}/{file}")
        with self._files.open(f"{place}/{file}", "rb", **self._opening) as stream:
            return copy(stream.read, target, max_bytes)

    def upload(self, directory: Path, name: str, version: int, files: list[str]) -> None:
        if self._is_web:
            raise BundleError(f"{self.url}: a web server takes no bundles; put the files there as it wants them")
        for file in files:
            self._files.put_file(str(directory / file), f"{self._root}/{name}/{version}/{file}")

    # -- what is there -----------------------------------------------------------------------------------------------

    def _walk(self) -> Iterable[tuple[str, Info]]:
        """Every file below, in as few questions as the store allows, by its path from the root."""
        for path, info in self._files.find(self._root, detail=True).items():
            yield path.removeprefix(f"{self._root}/"), info

    def _walk_web(self) -> Iterable[tuple[str, Info]]:
        """One bundle, or what pages of links name: no deeper than bundles lie, and nothing not spelled like one."""
        if single := list(self._info("", MANIFEST_FILE)):
            yield from [*single, *self._info("", MODEL_FILE, SIGNATURE_FILE)]
            return
        top = self._links(self._root)
        if DEFAULT_FILE in top:
            yield from self._info("", DEFAULT_FILE)
        for name in sorted(filter(is_name, top - {DEFAULT_FILE})):
            for version in sorted(filter(is_version, self._links(f"{self._root}/{name}"))):
                yield from self._info(f"{name}/{version}/", MANIFEST_FILE, MODEL_FILE, SIGNATURE_FILE)

    def _links(self, page: str) -> set[str]:
        try:
            return {path.rstrip("/").rpartition("/")[2] for path in self._files.ls(f"{page}/", detail=False)}
        except FileNotFoundError:
            if page == self._root:
                raise
            return set()

    def _info(self, prefix: str, *files: str) -> Iterable[tuple[str, Info]]:
        for file in files:
            with contextlib.suppress(FileNotFoundError):
                yield f"{prefix}{file}", self._files.info(f"{self._root}/{prefix}{file}")

    def _entry(self, prefix: str, found: Mapping[str, Info]) -> Entry:
        files = [f"{prefix}/{file}".removeprefix("/") for file in (MANIFEST_FILE, MODEL_FILE, SIGNATURE_FILE)]
        place = f"{self._root}/{prefix}".rstrip("/")
        return Entry(place, "-".join(_stamp(found[file]) if file in found else "none" for file in files))

    def _single(self, found: Mapping[str, Info]) -> tuple[str, str, Entry]:
        """One bundle, whose manifest says what it is."""
        content = self._read_if_new(MANIFEST_FILE, found[MANIFEST_FILE], MAX_MANIFEST_BYTES)
        manifest = parse_manifest(content, self.url.rpartition("/")[2])
        return manifest.name, str(manifest.version), self._entry("", found)

    def _default(self, info: Info | None) -> str | None:
        if info is None or info.get("type") == "directory":
            return None
        return self._read_if_new(DEFAULT_FILE, info, _MAX_DEFAULT_BYTES).decode(errors="replace").strip() or None

    def _read_if_new(self, file: str, info: Info, max_bytes: int) -> bytes:
        stamp = _stamp(info)
        if file not in self._read_before or self._read_before[file][0] != stamp:
            with self._files.open(f"{self._root}/{file}", "rb", **self._opening) as stream:
                content = io.BytesIO(stream.read(max_bytes + 1)).getvalue()
            if len(content) > max_bytes:
                raise BundleError(f"{self.url}/{file} has more than {max_bytes} bytes")
            self._read_before[file] = stamp, content
        return self._read_before[file][1]


def _stamp(info: Info) -> str:
    return ".".join(str(info[field]).strip('"') for field in _STAMP_FIELDS if info.get(field) is not None)


def age_seconds(info: Info, now: float) -> float:
    """How long ago a file was written, where its store says so; otherwise none at all."""
    written = next((info[field] for field in _TIME_FIELDS if isinstance(info.get(field), datetime)), None)
    return 0.0 if written is None else now - written.timestamp()


def open_tree(url: str) -> tuple[Any, str]:
    """What reads and writes below a URL, and the path of the URL in it."""
    scheme = url.partition(":")[0]
    try:
        import fsspec

        files, root = fsspec.core.url_to_fs(url, use_listings_cache=False, **_OPTIONS.get(scheme, {}))
    except ImportError as error:
        extra = EXTRAS.get(scheme, "s3")
        raise SettingsError(
            f"{scheme}:// needs more packages; install portcullis with the extra {extra} ({str(error).splitlines()[0]})"
        ) from None
    return files, root.rstrip("/")
