"""`pack`: the images of a data spec as one file."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from portcullis_training.commands.flags import count
from portcullis_training.commands.parser import Say, add

EXAMPLES = """\
examples:
  portcullis-train {command} cifar10 data/cifar10_train.npz
  portcullis-train {command} cifar10 data/cifar10_test.npz --part test
  portcullis-train {command} folder:photos data/photos.npz --image-size 64
then: --data npz:data/cifar10_train.npz,data/cifar10_test.npz
"""


def add_command(commands: Any) -> None:
    command = add(commands, "pack", _pack, "write the images of a data spec as one npz file", EXAMPLES)
    command.add_argument(
        "spec", metavar="SPEC", help="a data spec: cifar10, folder:PATH, idx:PATH … (docs/training.md)"
    )
    command.add_argument("output", type=Path, metavar="FILE.npz", help="file to write")
    command.add_argument(
        "--part", choices=("train", "test"), default="train", help="which images (default: %(default)s)"
    )
    size = "bring images to N×N pixels (default: as they are; a folder: 224)"
    command.add_argument("--image-size", type=count, metavar="N", help=size)
    command.add_argument(
        "--interpolation",
        choices=("nearest", "bilinear", "bicubic", "lanczos"),
        default="bilinear",
        help="by which they are brought to it, antialiased but for nearest (default: %(default)s, as the service's)",
    )


def _pack(namespace: argparse.Namespace, say: Say) -> None:
    from portcullis.bundle.manifest import ImageSpec
    from portcullis_training.data.packing import pack

    size = namespace.image_size
    geometry = size and ImageSpec(height=size, width=size, interpolation=namespace.interpolation)
    packed = pack(namespace.spec, namespace.part, geometry, namespace.output)
    num_images, height, width = packed.shape[:3]
    say(f"wrote {namespace.output}: {num_images} images of {width}×{height} pixels, {packed.num_classes} classes")
    say(f"sha256 of the pixels: {packed.pixels_sha256}")
