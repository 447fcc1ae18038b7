"""Scores of real images by a bundle, through the service's own code: what bench.drift and the tests draw from.

python -m bench.drift_scores models/NAME/VERSION --inside cifar10_test.npz --outside svhn_test.npz …

Each .npz has `images`, uint8, [N, H, W, 3] or grey [N, H, W]; none may have been trained or calibrated on. The file
that is written holds `inside`, `calibration` (the manifest's own scores) and `outside_<name>`, in float32, and the name
and version of the `bundle`.
"""

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from portcullis.bundle.engine import Engine
from portcullis.bundle.files import load_bundle
from portcullis.bundle.preprocess import prepare

SCORES = Path(__file__).parent / "results" / "drift_scores.npz"
BATCH_IMAGES = 16
MAX_OUTSIDE = 2500  # evenly spaced over the file; enough to draw from, and the repository stays small


def score_images(bundle_path: Path, images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """One score an image, as the service would answer."""
    bundle = load_bundle(bundle_path)
    engine, spec = Engine(bundle), bundle.manifest.image
    batches = (images[start : start + BATCH_IMAGES] for start in range(0, len(images), BATCH_IMAGES))
    prepared = (np.stack([prepare(pixels, spec) for pixels in batch]) for batch in batches)
    return np.concatenate([engine.run(batch).scores for batch in prepared])


def write(bundle_path: Path, inside: Path, outside: list[Path], out: Path) -> None:
    manifest = load_bundle(bundle_path).manifest
    arrays = {
        "bundle": np.array(f"{manifest.name}/{manifest.version}"),
        "calibration": np.array(manifest.calibration.scores, np.float32),
        "inside": score_images(bundle_path, _images(inside)),
    }
    for file in outside:
        images = _images(file)
        chosen = np.linspace(0, len(images) - 1, min(MAX_OUTSIDE, len(images))).astype(int)
        arrays[f"outside_{file.stem}"] = score_images(bundle_path, images[chosen])
    np.savez_compressed(out, **arrays)


def _images(file: Path) -> NDArray[np.uint8]:
    with np.load(file) as content:
        images: NDArray[np.uint8] = content["images"]
        return images


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path, help="such as models/cifar10-whitened/2")
    parser.add_argument("--inside", type=Path, required=True)
    parser.add_argument("--outside", type=Path, required=True, nargs="+")
    parser.add_argument("--out", type=Path, default=SCORES)
    arguments = parser.parse_args()
    write(arguments.bundle, arguments.inside, arguments.outside, arguments.out)


if __name__ == "__main__":
    main()
