"""What a person should know of a folder of photos before anything is trained on it: one page and its contact sheets."""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from portcullis_training.data.contact_sheet import Row, Tile, contact_sheet, of_file
from portcullis_training.data.folder import PhotoFolder
from portcullis_training.data.inspection import Inspection, Photo, count_classes
from portcullis_training.data.promises import promises
from portcullis_training.data.splits import Splits
from portcullis_training.errors import DataError

PAGE_FILE = "data.md"
CLASSES_FILE = "classes.png"
TWINS_FILE = "twins.png"
FEW_PHOTOS = 20
"""A class with fewer can hardly be learned, and its share of the calibration split is a handful."""
PHOTO_SUFFIXES = (".heic", ".heif", ".avif", ".jxl", ".jp2", ".dng", ".cr2", ".cr3", ".nef", ".arw", ".raf", ".orf")
"""What phones and cameras write that is no format of the service."""
MAX_LISTED, MAX_CLASSES_SHOWN, PHOTOS_SHOWN, MAX_GROUPS_SHOWN = 40, 40, 8, 30
SPLITS = ("train", "validation", "calibration", "test")


def summary(folder: PhotoFolder, splits: Splits) -> list[str]:
    """The page in a few lines, for the command line."""
    found = folder.inspection
    counts = _class_counts(folder)
    largest, smallest = max(counts, key=lambda name: counts[name]), min(counts, key=lambda name: counts[name])
    spread = f"from {counts[smallest]} ({smallest}) to {counts[largest]} ({largest})"
    lines = [
        f"{len(found.photos)} photos of {len(counts)} classes, "
        + (spread if counts[smallest] < counts[largest] else f"{counts[smallest]} each"),
        *_left_out(folder),
        "splits: " + ", ".join(f"{len(getattr(splits, name))} {name}" for name in SPLITS),
    ]
    few = [name for name, count in counts.items() if count < FEW_PHOTOS]
    if few:
        lines.append(f"fewer than {FEW_PHOTOS} photos, too few to be learned well: {_listed(few)}")
    return [*lines, *map(str, promises(len(splits.calibration)))]


def render(folder: PhotoFolder, splits: Splits, *, with_pictures: bool = True) -> dict[str, bytes]:
    """The files of the page by name: Markdown, and PNG unless the photos are nobody's business."""
    sheets = _sheets(folder) if with_pictures else {}
    sections = (_head, _classes, _sizes, _problems, _twins, _splits)
    lines = [line for section in sections for line in section(folder, splits)]
    shown = [line for name in sheets for line in (f"![{Path(name).stem}]({name})", "")]
    return {PAGE_FILE: ("\n".join([*lines, *shown]).rstrip() + "\n").encode(), **sheets}


def write(files: dict[str, bytes], output: Path) -> None:
    """Put the page where a person finds it."""
    try:
        output.mkdir(parents=True, exist_ok=True)
        for name in (CLASSES_FILE, TWINS_FILE):
            (output / name).unlink(missing_ok=True)  # of an earlier page, whose pictures may be unwanted by now
        for name, content in files.items():
            (output / name).write_bytes(content)
    except OSError as error:
        raise DataError(f"cannot write the page to {output}: {error.strerror}") from None


def _left_out(folder: PhotoFolder) -> list[str]:
    found = folder.inspection
    told = (
        (len(found.unreadable), "file cannot be read", "files cannot be read"),
        (sum(map(len, found.conflicting)), "", "files are copies under different labels, and left out"),
        (sum(len(group) - 1 for group in found.copies), "copy is left out", "copies are left out"),
        (
            len(found.leaked),
            "photo nearly equals one in a test folder, and is left out",
            "photos nearly equal one in a test folder, and are left out",
        ),
        (sum(map(len, found.twins)), "", "photos have near-duplicates, which stay on one side of the split"),
    )
    lines = [f"{count} {one if count == 1 else many}" for count, one, many in told if count]
    return [*lines, *_unread_photos(folder)]


def _unread_photos(folder: PhotoFolder) -> list[str]:
    """Photos in formats that the service does not take either: a phone's folder may hold nothing else."""
    counts = {suffix: folder.other_files[suffix] for suffix in PHOTO_SUFFIXES if folder.other_files[suffix]}
    if not counts:
        return []
    listed = ", ".join(f"{count} {suffix}" for suffix, count in counts.items())
    return [f"photos in formats that are not read, to be converted to JPEG or PNG first: {listed}"]


def _head(folder: PhotoFolder, splits: Splits) -> list[str]:
    found = folder.inspection
    return [
        f"# Photos in {folder.root.name}",
        "",
        f"{len(found.photos)} photos of {len(folder.class_names)} classes are fit for training."
        + "".join(f" {line[0].upper()}{line[1:]}." for line in _left_out(folder)),
        "",
    ]


def _classes(folder: PhotoFolder, splits: Splits) -> list[str]:
    counts = _class_counts(folder)
    total = sum(counts.values())
    few = [name for name, count in counts.items() if count < FEW_PHOTOS]
    ratio = max(counts.values()) / max(1, min(counts.values()))
    return [
        "## Classes",
        "",
        f"The largest class has {ratio:.1f} times the photos of the smallest."
        + (f" Fewer than {FEW_PHOTOS} photos, too few to be learned well: {_listed(few)}." if few else "")
        + (" Such an imbalance can be weighed against with `--class-balance 0.5`." if ratio >= 5 else ""),
        "",
        "| class | photos | share | " + " | ".join(SPLITS) + " |",
        "| --- | --- | --- |" + " --- |" * len(SPLITS),
        *(
            f"| {name} | {counts[name]} | {counts[name] / total:.1%} | "
            + " | ".join(str(int((getattr(splits, part).labels == label).sum())) for part in SPLITS)
            + " |"
            for label, name in enumerate(folder.class_names)
        ),
        "",
    ]


def _sizes(folder: PhotoFolder, splits: Splits) -> list[str]:
    shorter = sorted(min(photo.facts.width, photo.facts.height) for photo in folder.inspection.photos)
    spec = folder.image_spec
    needed = spec.resize_shorter_side or max(spec.height, spec.width)
    num_enlarged = int(np.searchsorted(shorter, needed))
    return [
        "## Sizes",
        "",
        f"Shorter sides from {shorter[0]} to {shorter[-1]} pixels, median {statistics.median_low(shorter)}. The "
        f"classifier sees {spec.width}×{spec.height}; {num_enlarged} photos ({num_enlarged / len(shorter):.1%}) are "
        f"smaller than the {needed} pixels that this asks for, and are enlarged.",
        "",
    ]


def _problems(folder: PhotoFolder, splits: Splits) -> list[str]:
    found = folder.inspection
    broken = [f"{_name(folder, path)}: {fault}" for path, fault in found.unreadable]
    conflicting = [" = ".join(_name(folder, photo.path) for photo in group) for group in found.conflicting]
    copies = [" = ".join(_name(folder, photo.path) for photo in group) for group in found.copies]
    leaked = [f"{_name(folder, lost.path)} ≈ {_name(folder, kept.path)}" for lost, kept in found.leaked]
    others = [f"{suffix or 'without extension'}: {count}" for suffix, count in folder.other_files.most_common()]
    return [
        *_section("Files that cannot be read", "Left out; `--strict` stops at them instead.", broken),
        *_section(
            "Copies under different labels",
            "The same file in two classes: at least one label is wrong. All are left out until you delete one.",
            conflicting,
        ),
        *_section("Copies", "The first of each is kept.", copies),
        *_section(
            "Photos that nearly equal one in a test folder",
            "Left out on the training side: figures and promises need test photos that training has not seen.",
            leaked,
        ),
        *_section("Files of other kinds", "Not read.", others),
    ]


def _twins(folder: PhotoFolder, splits: Splits) -> list[str]:
    groups = [" ≈ ".join(_name(folder, photo.path) for photo in group) for group in _twins_by_doubt(folder.inspection)]
    return _section(
        "Near-duplicates",
        "Kept on one side of the split: a twin in the calibration split would make the gate's promise too bold. Twins "
        "under different labels come first: one of them may be wrong.",
        groups,
    )


def _splits(folder: PhotoFolder, splits: Splits) -> list[str]:
    return [
        "## What can be promised",
        "",
        f"{len(splits.calibration)} calibration photos:",
        "",
        *(f"- {promise}" for promise in promises(len(splits.calibration))),
        "",
    ]


def _section(title: str, text: str, items: Sequence[str]) -> list[str]:
    if not items:
        return []
    more = [f"- and {len(items) - MAX_LISTED} more"] if len(items) > MAX_LISTED else []
    return [f"## {title}", "", text, "", *(f"- {item}" for item in items[:MAX_LISTED]), *more, ""]


def _sheets(folder: PhotoFolder) -> dict[str, bytes]:
    photos = folder.inspection.photos
    rows = []
    for label, name in list(enumerate(folder.class_names))[:MAX_CLASSES_SHOWN]:
        own = [photo for photo in photos if photo.label == label]
        chosen = [own[index] for index in np.linspace(0, len(own) - 1, min(PHOTOS_SHOWN, len(own))).astype(int)]
        rows.append(Row(f"{name}, {len(own)} photos", [of_file(photo.path, photo.path.name) for photo in chosen]))
    sheets = {CLASSES_FILE: contact_sheet(rows)}
    doubtful = [("copies under different labels", group) for group in folder.inspection.conflicting]
    doubtful += [("near-duplicates", group) for group in _twins_by_doubt(folder.inspection)]
    if doubtful:
        sheets[TWINS_FILE] = contact_sheet(
            [Row(title, _captioned(group, folder)) for title, group in doubtful[:MAX_GROUPS_SHOWN]]
        )
    return sheets


def _captioned(group: Iterable[Photo], folder: PhotoFolder) -> list[Tile]:
    return [of_file(photo.path, f"{folder.class_names[photo.label]}/{photo.path.name}") for photo in group]


def _twins_by_doubt(found: Inspection) -> list[tuple[Photo, ...]]:
    return sorted(found.twins, key=lambda group: len({photo.label for photo in group}) == 1)


def _class_counts(folder: PhotoFolder) -> dict[str, int]:
    counts = count_classes(folder.inspection.photos)
    return {name: counts[label] for label, name in enumerate(folder.class_names)}


def _name(folder: PhotoFolder, path: Path) -> str:
    return os.path.relpath(path, folder.root)


def _listed(names: list[str], num_shown: int = 10) -> str:
    more = f" and {len(names) - num_shown} more" if len(names) > num_shown else ""
    return ", ".join(names[:num_shown]) + more
