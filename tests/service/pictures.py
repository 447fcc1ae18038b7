"""Encoded pictures for tests: familiar ones are plain colours, strange ones are noise."""

import io

import numpy as np
from PIL import Image

from tests import tiny


def encode(pixels, format="PNG"):
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, format)
    return stream.getvalue()


RED = encode(np.full((tiny.SIZE, tiny.SIZE, 3), (230, 20, 20), np.uint8))
STRANGE = encode(np.random.default_rng(5).integers(0, 256, (tiny.SIZE, tiny.SIZE, 3), dtype=np.uint8))
BROKEN = RED[:40]
