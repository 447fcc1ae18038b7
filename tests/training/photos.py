"""Small folders of made photographs and a small pretrained network, for tests of the line that trains on photos."""

from pathlib import Path

import numpy as np
import torch
from PIL import Image

from portcullis_training.config import RunConfig, make_config
from portcullis_training.recipes import RECIPES

BACKBONE = "timm:test_efficientnet"  # timm's own, for tests: 0.4 M parameters


def write_photos(
    root: Path, per_class: int = 40, classes: tuple[str, ...] = ("brick", "grass", "sky"), seed: int = 0
) -> Path:
    """Classes that differ in colour and texture, as far as a network knows without training; no two photos alike."""
    random = np.random.default_rng(seed)
    for label, name in enumerate(classes):
        (root / name).mkdir(parents=True, exist_ok=True)
        for index in range(per_class):
            cells = random.integers(0, 256, (7, 9, 3))
            tint = np.zeros(3)
            tint[label % 3] = 120
            pixels = np.clip(0.6 * cells + tint, 0, 255).astype(np.uint8)
            size = (int(random.integers(60, 120)), int(random.integers(60, 120)))
            Image.fromarray(pixels).resize(size, Image.Resampling.BICUBIC).save(
                root / name / f"{index:03}.jpg", quality=92
            )
    return root


def write_weights(path: Path) -> Path:
    """Weights of the small network, as chance has them: enough to be loaded and to tell colours apart."""
    from portcullis_training import torchvision_ops  # noqa: F401
    import timm  # isort: skip

    torch.manual_seed(0)
    torch.save(timm.create_model(BACKBONE.partition(":")[2]).state_dict(), path)
    return path


def photos_config(folder: Path, weights: Path, **fields) -> RunConfig:
    """The recipe for photos with a network of a toy's size."""
    small = {
        "data": f"folder:{folder}", "backbone": BACKBONE, "pretrained_weights": str(weights), "image_size": 32,
        "resize_shorter_side": 36, "num_workers": 0, "epochs": 0, "minutes": None, "batch_size": 16, "device": "cpu",
        "precision": "float32", "outside": ("shuffled",), "rand_augment": 1, "name": "small-photos",
    }  # fmt: skip
    return make_config({**RECIPES["photos"].model_dump(), **small, **fields})
