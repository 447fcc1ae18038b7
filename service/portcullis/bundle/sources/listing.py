"""Which bundles a source has: names, versions, and how each is told from an earlier one. What is found is not trusted.

A name or version becomes part of a path on this machine, so whatever is not spelled like one is passed over.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pydantic import TypeAdapter

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_VERSION = re.compile(r"[1-9][0-9]{0,8}")


@dataclass(frozen=True)
class Entry:
    """One version at its source."""

    place: str
    """Where its files are, in the words of the source."""
    stamp: str
    """What they looked like: it changes when they do."""


@dataclass(frozen=True)
class Listing:
    """What one look found."""

    entries: Mapping[str, Mapping[int, Entry]] = field(default_factory=dict)
    default_name: str | None = None
    """The name that answers when a request names none, where the source says one."""

    def names(self) -> list[str]:
        """Names with at least one version."""
        return sorted(name for name, versions in self.entries.items() if versions)

    def versions(self, name: str) -> list[int]:
        """Versions of a name, oldest first."""
        return sorted(self.entries.get(name, {}))

    def find(self, name: str, version: int) -> Entry | None:
        return self.entries.get(name, {}).get(version)

    def stamp(self, name: str, version: int) -> str:
        entry = self.find(name, version)
        return entry.stamp if entry is not None else "none"


LISTING = TypeAdapter(Listing)


def is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None


def is_version(text: str) -> bool:
    return _VERSION.fullmatch(text) is not None


def gather(found: Iterable[tuple[str, str, Entry]], default_name: str | None = None) -> Listing:
    """A listing of what is spelled like a name and a version."""
    entries: dict[str, dict[int, Entry]] = {}
    for name, version, entry in found:
        if is_name(name) and is_version(version):
            entries.setdefault(name, {})[int(version)] = entry
    return Listing(entries, default_name if default_name is not None and is_name(default_name) else None)
