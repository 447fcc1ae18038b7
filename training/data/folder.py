"""A folder of images of any size, a class a sub-folder, with or without train and test folders."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from service.bundle import ImageSpec
from training.data.file_check import readable_files
from training.data.image_set import FileImages
from training.data.sources import Source
from training.errors import DataError
from training.recipes import RunConfig

EXTENSIONS = {".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".tif", ".tiff"}
TEST_FOLDERS = ("test", "val", "validation")
DEFAULT_SIZE = 224


def folder_spec(config: RunConfig) -> ImageSpec:
    """The geometry that the config asks for."""
    size = config.image_size or DEFAULT_SIZE
    return ImageSpec(height=size, width=size, resize_shorter_side=config.resize_shorter_side)


def read_folder(location: str, config: RunConfig) -> Source:
    """`PATH/CLASS/*.jpg`, or `PATH/train/CLASS/*.jpg` with `PATH/test` (or val) beside it."""
    root, spec = _existing(location), folder_spec(config)
    train_root, test_root = _split_folders(root)
    class_names = _class_names(train_root)
    train = _read_classes(train_root, class_names, spec, config)
    test = None if test_root is None else _read_classes(test_root, class_names, spec, config)
    return Source(train, test, class_names, spec)


def read_strangers(location: str, spec: ImageSpec, config: RunConfig) -> FileImages:
    """Every image below a folder, whatever its sub-folders are called: an outside set needs no classes."""
    root = _existing(location)
    return _checked(root, [(path, 0) for path in _image_files(root)], spec, config)


def _existing(location: str) -> Path:
    root = Path(location)
    if not root.is_dir():
        raise DataError(f"folder:{location}: no such folder")
    return root


def _split_folders(root: Path) -> tuple[Path, Path | None]:
    """train and test only where nothing else is there: `train` may also be a class, beside `bus`."""
    names = set(_folder_names(root))
    if "train" not in names or not names <= {"train", *TEST_FOLDERS}:
        return root, None
    return root / "train", next((root / name for name in TEST_FOLDERS if name in names), None)


def _folder_names(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))


def _class_names(root: Path) -> tuple[str, ...]:
    names = tuple(_folder_names(root))
    if not names:
        raise DataError(f"folder:{root}: is empty; expected a sub-folder for each class")
    if len(names) < 2:
        raise DataError(f"folder:{root}: expected at least two classes, a sub-folder each, got only {names[0]!r}")
    return names


def _read_classes(root: Path, class_names: tuple[str, ...], spec: ImageSpec, config: RunConfig) -> FileImages:
    unknown = [name for name in _folder_names(root) if name not in class_names]
    if unknown:
        raise DataError(
            f"folder:{root}: class {unknown[0]!r} is not among the training classes {', '.join(class_names)}"
        )
    found = [(path, label) for label, name in enumerate(class_names) for path in _image_files(root / name)]
    return _checked(root, found, spec, config)


def _image_files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.rglob("*") if path.suffix.lower() in EXTENSIONS and path.is_file())


def _checked(root: Path, found: list[tuple[Path, int]], spec: ImageSpec, config: RunConfig) -> FileImages:
    """The files that can be read; broken ones are reported by name, or fatal if strict."""
    if not found:
        raise DataError(f"folder:{root}: holds no images; expected files like {', '.join(sorted(EXTENSIONS))}")
    paths = [path for path, _ in found]
    digests = readable_files(root, paths, spec, is_strict=config.strict, num_workers=config.num_workers)
    kept = [index for index, path in enumerate(paths) if path in digests]
    if not kept:
        raise DataError(f"folder:{root}: none of {len(paths)} files is a readable image; the first is {paths[0]}")
    return FileImages(
        tuple(paths[index] for index in kept),
        np.array([found[index][1] for index in kept], dtype=np.int64),
        tuple(digests[paths[index]] for index in kept),
        spec,
    )
