"""From the setting `models` to a source: a path, or a URL by its scheme."""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from portcullis.bundle.signatures import Trust
from portcullis.bundle.sources.cache import Cache, Key
from portcullis.bundle.sources.cached import CachedSource, Events
from portcullis.bundle.sources.remote import Remote
from portcullis.bundle.sources.source import DirectorySource, Source
from portcullis.bundle.sources.tree import EXTRAS, Tree
from portcullis.errors import SettingsError

MLFLOW = "models"
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")


@dataclass(frozen=True)
class Keeping:
    """How fetched bundles are kept, and what a source may cost."""

    directory: Path
    max_bytes: int = 20 * 1024**3
    max_bundle_bytes: int = 4 * 1024**3
    timeout_seconds: float = 15.0


def is_url(models: str) -> bool:
    """Whether it is fetched from elsewhere; `C:/…` and the like are none of ours."""
    return _URL.match(models) is not None


def source_of(
    models: str,
    keeping: Keeping,
    trust: Trust,
    in_use: Callable[[], Collection[Key]] = tuple,
    events: Events | None = None,
) -> Source:
    """The source that a setting names. Nothing is asked of it, and no library loaded, until something is wanted."""
    if not is_url(models):
        return DirectorySource(Path(models), trust)
    check_url(models)
    try:
        cache = Cache(keeping.directory, models, keeping.max_bytes)
    except OSError as error:
        raise SettingsError(f"cannot use the cache of bundles {keeping.directory}: {error.strerror}") from None
    return CachedSource(
        lambda: remote_of(models),
        models,
        cache,
        trust,
        max_bundle_bytes=keeping.max_bundle_bytes,
        timeout_seconds=keeping.timeout_seconds,
        in_use=in_use,
        events=events,
    )


def remote_of(url: str) -> Remote:
    """The place that a URL names; raises where its library is missing."""
    check_url(url)
    if url.startswith(f"{MLFLOW}:"):
        from portcullis.bundle.sources.mlflow_registry import MlflowRegistry

        return MlflowRegistry(url)
    return Tree(url)


def check_url(url: str) -> None:
    """Refuse a scheme that is none of ours, and credentials, which whoever sees a log or a process list would see."""
    parts = urlsplit(url)
    if parts.scheme not in (*EXTRAS, MLFLOW):
        known = ", ".join(f"{scheme}://" for scheme in ("s3", "gs", "az", "https", "hf"))
        raise SettingsError(f"models is a path or a URL of {known} or {MLFLOW}:/, not {parts.scheme}:")
    has_userinfo = "@" in parts.netloc and (":" in parts.netloc.partition("@")[0] or parts.scheme.startswith("http"))
    if has_userinfo or parts.query or parts.fragment:
        raise SettingsError(
            "a URL of models holds no credentials and no query; they come by the platform's usual means"
        )
