"""Images that come as arrays: npz files, IDX files (the format of MNIST) and scikit-learn's digits."""

from __future__ import annotations

import gzip
import zipfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from portcullis_training.data.image_set import ArrayImages
from portcullis_training.data.sources import (
    ArraySource,
    check_images,
    check_labels,
    from_arrays,
)
from portcullis_training.errors import DataError

_IDX_UINT8 = 0x08
_MAX_IDX_DIMENSIONS = 3


def read_npz(location: str) -> ArraySource:
    """`TRAIN.npz` or `TRAIN.npz,TEST.npz` with arrays images, labels and perhaps class_names."""
    paths = [Path(part) for part in location.split(",")]
    if len(paths) > 2:
        raise DataError(f"npz:{location}: expected a training file and at most one test file")
    train, names = _read_one_npz(paths[0])
    test = None
    if len(paths) == 2:
        test, _ = _read_one_npz(paths[1])
    names = names or tuple(str(index) for index in range(int(train.labels.max()) + 1))
    for path, part in zip(paths, (train, test), strict=False):
        if part is not None:
            check_labels(str(path), part.labels, len(part), len(names))
    return from_arrays(f"npz:{location}", train, test, names)


def _read_one_npz(path: Path) -> tuple[ArrayImages, tuple[str, ...]]:
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    try:
        # Opened here: numpy forgets to close a file that turns out to be no npz.
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
            missing = [name for name in ("images", "labels") if name not in arrays]
            if missing:
                raise DataError(f"{path}: expected arrays images and labels, got {', '.join(arrays) or 'none'}")
            images, labels = check_images(str(path), arrays["images"]), arrays["labels"]
            names = tuple(str(name) for name in arrays["class_names"]) if "class_names" in arrays else ()
    except (OSError, ValueError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"{path}: not a readable npz file: {error}") from None
    return ArrayImages(images, check_labels(str(path), labels, len(images), len(names) or None)), names


def read_idx(location: str) -> ArraySource:
    """A directory with train- and t10k- IDX files, gzipped or not."""
    directory = Path(location)
    if not directory.is_dir():
        raise DataError(f"idx:{location}: no such directory")
    train = _read_idx_pair(directory, "train")
    has_test = any(directory.glob("t10k-images*"))
    names = tuple(str(index) for index in range(int(train.labels.max()) + 1))
    test = _read_idx_pair(directory, "t10k") if has_test else None
    if test is not None:
        check_labels(f"{directory}/t10k", test.labels, len(test), len(names))
    return from_arrays(f"idx:{location}", train, test, names)


def _read_idx_pair(directory: Path, prefix: str) -> ArrayImages:
    images = check_images(f"{directory}/{prefix}-images", _read_idx_file(directory, f"{prefix}-images-idx3-ubyte"))
    labels = _read_idx_file(directory, f"{prefix}-labels-idx1-ubyte")
    return ArrayImages(images, check_labels(f"{directory}/{prefix}-labels", labels, len(images), None))


def _read_idx_file(directory: Path, name: str) -> NDArray[np.uint8]:
    for path, open_file in ((directory / name, open), (directory / f"{name}.gz", gzip.open)):
        if path.is_file():
            try:
                with open_file(path, "rb") as stream:
                    return parse_idx(str(path), stream.read())
            except (OSError, EOFError) as error:
                raise DataError(f"{path}: cannot be read: {error}") from None
    raise DataError(f"{directory}: expected {name} or {name}.gz")


def parse_idx(where: str, content: bytes) -> NDArray[np.uint8]:
    """Two zero bytes, a type byte, the number of dimensions, each as big-endian uint32, then the elements."""
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] != _IDX_UINT8:
        raise DataError(
            f"{where}: expected an IDX file of unsigned bytes, got one that begins with {content[:4].hex()}"
        )
    num_dimensions = content[3]
    start = 4 + 4 * num_dimensions
    if not 1 <= num_dimensions <= _MAX_IDX_DIMENSIONS or len(content) < start:
        raise DataError(f"{where}: expected 1 to {_MAX_IDX_DIMENSIONS} dimensions, got {num_dimensions}")
    shape = tuple(int(size) for size in np.frombuffer(content[4:start], dtype=">u4"))
    expected_bytes = int(np.prod(shape, dtype=np.int64))
    if len(content) - start != expected_bytes:
        raise DataError(f"{where}: expected {expected_bytes} elements {shape}, got {len(content) - start}: cut short?")
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)


def read_digits() -> ArraySource:
    """The 1797 handwritten digits of scikit-learn, 8×8 grey; nothing is downloaded."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = check_images("digits", digits.images / 16.0)  # 17 grey levels, 0 to 16
    labels = check_labels("digits", digits.target, len(images), 10)
    return from_arrays("digits", ArrayImages(images, labels), None, tuple(str(name) for name in range(10)))
