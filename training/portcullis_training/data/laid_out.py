"""Sets of photographs that nobody may pass on, by name: where their files go, said by whoever misses them."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from portcullis_training.data.named import data_directory
from portcullis_training.errors import DataError


class Layout(NamedTuple):
    """How the files of a set lie."""

    outside: str
    """The folder, below the set's own, that holds its images as an outside set."""
    words: str
    inside: tuple[str, ...] = ()
    """Folders that it has as inside images; a set without any has no classes."""
    to_move: tuple[str, ...] = ()
    """Folders of its archive whose files are elsewhere when it is laid out."""


LAYOUTS = {
    "tinyimagenet": Layout(
        "val",
        "unpack tiny-imagenet-200.zip there, move each file of val/images into val/CLASS as val/val_annotations.txt "
        "says, and remove test, which has no labels: train/CLASS/images/*.JPEG and val/CLASS/*.JPEG are left",
        inside=("train", "val"),
        to_move=("val/images", "test"),
    ),
    "lsun": Layout(".", "put the 10,000 pictures of LSUN's test set there, in any folders"),
    "imagenet-o": Layout(".", "unpack imagenet-o.tar there, its 200 folders of 2,000 pictures"),
}


def folder_of(spec: str, *, is_outside: bool) -> str | None:
    """The folder of a set of this name, none where the name is another; one that is not there is said how to fill."""
    layout = LAYOUTS.get(spec)
    if layout is None:
        return None
    if not is_outside and not layout.inside:
        raise DataError(f"{spec} has no classes to be trained on; it is an out-of-distribution set")
    root = data_directory() / spec
    wanted = root / layout.outside if is_outside else root
    if not wanted.is_dir():
        raise DataError(f"{spec}: expected its pictures in {root}, which PORTCULLIS_DATA moves; {layout.words}")
    if not is_outside and (wrong := _wrong(root, layout)):
        raise DataError(f"{spec}: {root} {wrong}; {layout.words}")
    return str(wanted)


def _wrong(root: Path, layout: Layout) -> str | None:
    """What of the archive is not where it should be, none where all of it is."""
    missing = [name for name in layout.inside if not (root / name).is_dir()]
    if missing:
        return f"has no {missing[0]}"
    left = [name for name in layout.to_move if (root / name).is_dir() and any((root / name).iterdir())]
    return f"still has files in {left[0]}" if left else None
