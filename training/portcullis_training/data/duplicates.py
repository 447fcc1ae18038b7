"""Photos that are nearly the same: re-encoded, resized, shot twice in a row. Arithmetic on thumbnails alone.

A difference hash finds candidates, since comparing it is one XOR: 256 bits say where a grey 17×16 thumbnail gets
brighter from left to right. On plain backgrounds it hears noise (64 bits call a thousand pairs of TrashNet twins), so
that the thumbnails of the candidates must agree in their colours too.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

SIDE = 16
MAX_DIFFERENT_BITS = 36  # of 256
MIN_CORRELATION = 0.95  # of the colours of two thumbnails, each around its mean
PAIRS_AT_ONCE = 2**21
_GREY = np.array([0.299, 0.587, 0.114], np.float32)  # ITU-R 601

Pairs = NDArray[np.int64]
Thumbnails = NDArray[np.uint8]


def thumbnail(picture: Image.Image) -> bytes:
    """17×16 RGB pixels of a whole picture: one column more than rows, for differences."""
    return picture.resize((SIDE + 1, SIDE), Image.Resampling.BOX).tobytes()


def from_bytes(thumbnails: list[bytes]) -> Thumbnails:
    """(N, 16, 17, 3)."""
    return np.frombuffer(b"".join(thumbnails), np.uint8).reshape(len(thumbnails), SIDE, SIDE + 1, 3)


def near_pairs(thumbnails: Thumbnails) -> Pairs:
    """(P, 2) positions of photos that are nearly the same, the smaller position first."""
    hashes = difference_hashes(thumbnails)
    num_rows = max(1, PAIRS_AT_ONCE // max(len(hashes), 1))
    found = [np.zeros((0, 2), np.int64)]
    for start in range(0, len(hashes), num_rows):
        rows = hashes[start : start + num_rows, None]  # (R, 1, 4)
        num_different = np.bitwise_count(rows ^ hashes[None, start:]).sum(axis=2, dtype=np.uint16)  # (R, N - start)
        first, second = np.nonzero(num_different <= MAX_DIFFERENT_BITS)
        candidates = np.stack([first, second], axis=1)[first < second] + start
        one, other = (_colours(thumbnails[candidates[:, side]]) for side in (0, 1))
        correlation = np.einsum("ij,ij->i", one, other)
        found.append(candidates[correlation >= MIN_CORRELATION])
    return np.concatenate(found)


def difference_hashes(thumbnails: Thumbnails) -> NDArray[np.uint64]:
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
