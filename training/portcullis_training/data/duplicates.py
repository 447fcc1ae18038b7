"""Photos that are nearly the same: re-encoded, resized, shot twice in a row. Arithmetic on thumbnails alone.

A difference hash finds candidates, since comparing it is one XOR: 256 bits say where a grey 17×16 thumbnail gets
brighter from left to right. On plain backgrounds it hears noise (64 bits call a thousand pairs of TrashNet twins), so
that the thumbnails of the candidates must agree in their colours too.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from portcullis_training.data.progress import bar

SIDE = 16
MAX_DIFFERENT_BITS = 36  # of 256
MIN_CORRELATION = 0.95  # of the colours of two thumbnails, each around its mean
ROWS, COLUMNS = 64, 4096  # hashes compared at once, few enough for the cache of a core
_GREY = np.array([0.299, 0.587, 0.114], np.float32)  # ITU-R 601

Pairs = NDArray[np.int64]
Hashes = NDArray[np.uint64]
Thumbnails = NDArray[np.uint8]


def thumbnail(picture: Image.Image) -> bytes:
    """17×16 RGB pixels of a whole picture: one column more than rows, for differences."""
    return picture.resize((SIDE + 1, SIDE), Image.Resampling.BOX).tobytes()


def from_bytes(thumbnails: list[bytes]) -> Thumbnails:
    """(N, 16, 17, 3)."""
    return np.frombuffer(b"".join(thumbnails), np.uint8).reshape(len(thumbnails), SIDE, SIDE + 1, 3)


def near_pairs(thumbnails: Thumbnails) -> Pairs:
    """(P, 2) positions of photos that are nearly the same, in order, the smaller position first."""
    found = [np.zeros((0, 2), np.int64)]
    for candidates in _candidates(difference_hashes(thumbnails)):
        one, other = (_colours(thumbnails[candidates[:, side]]) for side in (0, 1))
        correlation = np.einsum("ij,ij->i", one, other)
        found.append(candidates[correlation >= MIN_CORRELATION])
    pairs = np.concatenate(found)
    return pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]


def _candidates(hashes: Hashes) -> Iterator[Pairs]:
    """Pairs whose hashes are close, a block at a time: every two are compared, by the middle half of their bits first.

    No index of bands that must be equal would help: so many bits may differ that by chance a quarter of all pairs have
    one of 37 bands in common.
    """
    middle, num_photos = np.ascontiguousarray(hashes[:, 1:3].T), len(hashes)  # (2, N)
    blocks = [(row, column) for row in range(0, num_photos, ROWS) for column in range(row, num_photos, COLUMNS)]
    with bar(len(blocks), "comparing", unit=" blocks of photos", delay=1) as progress:
        for row, column in blocks:
            rows, columns = middle[:, row : row + ROWS, None], middle[:, None, column : column + COLUMNS]
            num_different = np.bitwise_count(rows[0] ^ columns[0]) + np.bitwise_count(rows[1] ^ columns[1])  # (R, C)
            close = np.flatnonzero(num_different <= MAX_DIFFERENT_BITS)  # nonzero of two axes takes five times as long
            progress.update()
            if len(close):
                first, second = np.divmod(close, num_different.shape[1])
                pairs = np.stack([first + row, second + column], axis=1)[first + row < second + column]
                num_different = np.bitwise_count(hashes[pairs[:, 0]] ^ hashes[pairs[:, 1]]).sum(axis=1)  # (P,)
                yield pairs[num_different <= MAX_DIFFERENT_BITS]


def difference_hashes(thumbnails: Thumbnails) -> Hashes:
    """(N, 4): 256 bits each, whether a pixel is brighter than the one to its left."""
    grey = thumbnails.astype(np.float32) @ _GREY  # (N, 16, 17)
    bits = grey[:, :, 1:] > grey[:, :, :-1]
    return np.packbits(bits.reshape(len(thumbnails), SIDE * SIDE), axis=1).view(np.uint64)


def groups_of(num_photos: int, pairs: Pairs) -> NDArray[np.int64]:
    """(N,) a number for each photo, the same for all that are connected by pairs."""
    edges = coo_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(num_photos, num_photos))
    return connected_components(edges, directed=False)[1].astype(np.int64)


def _colours(thumbnails: Thumbnails) -> NDArray[np.float32]:
    """Each thumbnail around its mean colour, of length 1: a product of two is their correlation. Plain ones are 0."""
    centred = thumbnails.astype(np.float32) - thumbnails.mean(axis=(1, 2), keepdims=True, dtype=np.float32)
    flat = centred.reshape(len(thumbnails), SIDE * (SIDE + 1) * 3)
    lengths = np.linalg.norm(flat, axis=1, keepdims=True)
    return np.divide(flat, lengths, out=np.zeros_like(flat), where=lengths > 1)
