"""A folder of images of any size, a class a sub-folder, with or without train, val and test folders."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from portcullis.bundle.manifest import ImageSpec
from portcullis_training.config import RunConfig
from portcullis_training.data.image_set import FileImages
from portcullis_training.data.inspection import Found, Inspection, inspect, only_readable, warn
from portcullis_training.data.sources import Source
from portcullis_training.errors import DataError

EXTENSIONS = {".png", ".jpg", ".jpeg", ".jfif", ".webp", ".gif", ".bmp", ".tif", ".tiff"}
_NO_IMAGES = f"folder:{{}}: holds no images; expected files like {', '.join(sorted(EXTENSIONS))}"
VALIDATION_FOLDERS = ("val", "valid", "validation")
DEFAULT_SIZE = 224


@dataclass(frozen=True, eq=False)
class PhotoFolder:
    """A folder, looked at: its classes, its photos, and the files that are no photos."""

    root: Path
    class_names: tuple[str, ...]
    image_spec: ImageSpec
    inspection: Inspection
    other_files: Counter[str]
    """Files by an extension that is not read."""

    def images(self, part: str) -> FileImages:
        """The photos of train, validation or test."""
        photos = [self.inspection.photos[index] for index in self.inspection.of_part(part)]
        return FileImages(
            tuple(photo.path for photo in photos),
            np.array([photo.label for photo in photos], dtype=np.int64),
            tuple(photo.facts.digest for photo in photos),
            self.image_spec,
        )


def folder_spec(config: RunConfig) -> ImageSpec:
    """The geometry that the config asks for."""
    size = config.image_size or DEFAULT_SIZE
    return ImageSpec(
        height=size,
        width=size,
        resize_shorter_side=config.resize_shorter_side,
        interpolation=config.interpolation,
    )


def read_folder(location: str, config: RunConfig) -> Source:
    """`PATH/CLASS/*.jpg`, or `PATH/train/CLASS/*.jpg` with `PATH/test` beside it, and `PATH/val`."""
    folder = look_into(location, config)
    inspection = folder.inspection
    _report(inspection, config)
    parts = {part: folder.images(part) for part in ("train", "validation", "test")}
    return Source(
        parts["train"],
        parts["test"] if len(parts["test"]) else None,
        folder.class_names,
        folder.image_spec,
        validation=parts["validation"] if len(parts["validation"]) else None,
        groups=inspection.groups[inspection.of_part("train")],
    )


def look_into(location: str, config: RunConfig) -> PhotoFolder:
    """Look at every file of a folder with a class a sub-folder."""
    root, spec = _existing(location), folder_spec(config)
    folders = _split_folders(root)
    class_names = _class_names(folders["train"])
    found = [one for part, folder in folders.items() for one in _class_files(folder, class_names, part)]
    _refuse_unread_classes(folders["train"], class_names, found)
    inspection = _seen(root, found, inspect(root, found, spec, config.num_workers))
    others = Counter(path.suffix.lower() for path in root.rglob("*") if path.is_file() and not _is_image(path))
    return PhotoFolder(root, class_names, spec, inspection, others)


def read_strangers(location: str, spec: ImageSpec, config: RunConfig) -> FileImages:
    """Every image below a folder, whatever its sub-folders are called: an outside set needs no classes."""
    root = _existing(location)
    found: list[Found] = [(path, 0, "train") for path in _image_files(root)]
    inspection = _seen(root, found, only_readable(root, found, spec, config.num_workers))
    _report(inspection, config)
    return PhotoFolder(root, (), spec, inspection, Counter()).images("train")


def refuse_without_images(location: str) -> None:
    """Look no further than to the first image: this is asked before anything is trained."""
    if not any(_is_image(path) for path in _existing(location).rglob("*")):
        raise DataError(_NO_IMAGES.format(location))


def _existing(location: str) -> Path:
    root = Path(location)
    if not root.is_dir():
        raise DataError(f"folder:{location}: no such folder")
    return root


def _split_folders(root: Path) -> dict[str, Path]:
    """train, val and test only where nothing else is there: `train` may also be a class, beside `bus`.

    A val folder without a test folder is the test set, as ImageNet has it.
    """
    names = set(_folder_names(root))
    if "train" not in names or not names <= {"train", "test", *VALIDATION_FOLDERS}:
        return {"train": root}
    folders = {"train": root / "train"}
    validation = next((root / name for name in VALIDATION_FOLDERS if name in names), None)
    if "test" in names:
        folders |= {} if validation is None else {"validation": validation}
        folders["test"] = root / "test"
    elif validation is not None:
        folders["test"] = validation
    return folders


def _folder_names(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))


def _class_names(root: Path) -> tuple[str, ...]:
    names = tuple(_folder_names(root))
    if not names:
        raise DataError(f"folder:{root}: is empty; expected a sub-folder for each class")
    if len(names) < 2:
        raise DataError(f"folder:{root}: expected at least two classes, a sub-folder each, got only {names[0]!r}")
    return names


def _class_files(root: Path, class_names: tuple[str, ...], part: str) -> list[Found]:
    unknown = [name for name in _folder_names(root) if name not in class_names]
    if unknown:
        raise DataError(
            f"folder:{root}: class {unknown[0]!r} is not among the training classes {', '.join(class_names)}"
        )
    return [(path, label, part) for label, name in enumerate(class_names) for path in _image_files(root / name)]


def _refuse_unread_classes(root: Path, class_names: tuple[str, ...], found: list[Found]) -> None:
    """A class without a single image is an oversight, most often of photos in a format that is not read."""
    seen = {label for _, label, part in found if part == "train"}
    for label, name in enumerate(class_names):
        others = Counter(path.suffix.lower() for path in (root / name).rglob("*") if path.is_file())
        if found and label not in seen and others:
            held = ", ".join(f"{count} {suffix or 'without extension'}" for suffix, count in others.most_common(3))
            raise DataError(
                f"folder:{root}: no training image of class {name!r}, whose folder holds {held}; "
                f"expected files like {', '.join(sorted(EXTENSIONS))}"
            )


def _image_files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.rglob("*") if _is_image(path) and path.is_file())


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in EXTENSIONS


def _report(inspection: Inspection, config: RunConfig) -> None:
    if inspection.unreadable and config.strict:
        path, fault = inspection.unreadable[0]
        raise DataError(f"{path}: {fault} ({len(inspection.unreadable)} broken files; --no-strict leaves them out)")
    warn(inspection)


def _seen(root: Path, found: list[Found], inspection: Inspection) -> Inspection:
    """Refuse a folder in which there is nothing to be seen."""
    if not found:
        raise DataError(_NO_IMAGES.format(root))
    if not inspection.photos:
        raise DataError(f"folder:{root}: none of {len(found)} files is a readable image; the first is {found[0][0]}")
    return inspection
