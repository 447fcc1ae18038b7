"""`python -m bench.left_out PHOTOS`: near strangers, by leaving classes out of training entirely.

Each seed draws classes to leave out of a folder with train and test folders, trains DisMax and its SoftMax twin on the
others with the recipe `photos`, frozen, and measures how well each score tells the test photos of the classes left out
from those of the others. Photos that were encoded before are not encoded again.
"""

import argparse
import json
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from portcullis_training.cli import host
from portcullis_training.comparing.compare import Variant, twin_config
from portcullis_training.fitting.pretraining import with_geometry
from portcullis_training.fitting.staged import train
from portcullis_training.measuring.calibration import calibrate
from portcullis_training.measuring.evaluation import Evaluation, evaluate
from portcullis_training.recipes import RECIPES, RunConfig
from portcullis_training.runs.directory import create_run

OUTSIDE = "left-out"
GATED_BY = {"dismax": "fitted", "softmax": "own"}
SCORES = {
    "DisMax, MMLES": ("dismax", "mmles"),
    "DisMax, MPS": ("dismax", "max_probability"),
    "DisMax, fitted score": ("dismax", "fitted"),
    "SoftMax, Energy": ("softmax", "energy"),
    "SoftMax, MPS": ("softmax", "max_probability"),
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.left_out", description=__doc__)
    parser.add_argument("photos", type=Path, help="a folder with train/CLASS and test/CLASS")
    parser.add_argument("--classes", type=int, default=7, help="how many are left out (default: %(default)s)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--out", type=Path, default=Path("docs/results/left-out.json"))
    arguments = parser.parse_args()
    host.settle()
    with tempfile.TemporaryDirectory() as directory:
        seeds = [_measure(arguments.photos, arguments.classes, seed, Path(directory)) for seed in arguments.seeds]
    found = {"photos": arguments.photos.name, "seeds": seeds}
    arguments.out.write_text(json.dumps(found, indent=1) + "\n")
    print("\n".join(table(seeds)))


def table(seeds: Sequence[dict]) -> list[str]:
    """Markdown: AUROC in %, mean and spread over the seeds, and each seed's."""
    lines = [
        "| score | AUROC, mean ± deviation | " + " | ".join(f"seed {one['seed']}" for one in seeds) + " |",
        "| --- | --- |" + " --- |" * len(seeds),
    ]
    for title in SCORES:
        values = [100 * one["auroc"][title] for one in seeds]
        spread = statistics.stdev(values) if len(values) > 1 else 0.0
        shown = " | ".join(f"{value:.1f}" for value in values)
        lines.append(f"| {title} | {statistics.mean(values):.1f} ± {spread:.1f} | {shown} |")
    return lines


def _measure(photos: Path, num_classes: int, seed: int, directory: Path) -> dict:
    root = directory / f"seed{seed}"
    names = sorted(path.name for path in (photos / "train").iterdir() if path.is_dir())
    left_out = sorted(np.random.default_rng(seed).choice(names, num_classes, replace=False).tolist())
    _lay_out(photos, root, left_out)
    config = RECIPES["photos"].model_copy(
        update={
            "name": "inside", "data": f"folder:{root / 'inside'}", "outside": (f"folder:{root / OUTSIDE}",),
            "epochs": 0, "minutes": None,
        }
    )  # fmt: skip
    evaluations = {method: _evaluation(with_geometry(config), method, seed, root) for method in GATED_BY}
    figures = {name: evaluation.outside[OUTSIDE] for name, evaluation in evaluations.items()}
    return {
        "seed": seed,
        "left_out": left_out,
        "num_inside": evaluations["dismax"].inside.num_images,
        "num_outside": figures["dismax"].num_images,
        "accuracy": {name: evaluation.inside.accuracy for name, evaluation in evaluations.items()},
        "auroc": {
            title: figures[variant].by_score[score].auroc_inside_positive for title, (variant, score) in SCORES.items()
        },
    }


def _evaluation(base: RunConfig, method: str, seed: int, root: Path) -> Evaluation:
    config = twin_config(base, Variant(method), seed)
    run = create_run(root / "runs", config.model_copy(update={"score": GATED_BY[method]}))
    print(f"seed {seed}: {method}", flush=True)
    train(run, show_progress=False)
    calibrate(run)
    return evaluate(run, time_cost=False)


def _lay_out(photos: Path, root: Path, left_out: Sequence[str]) -> None:
    """Links to the photos: those left out lie in a folder of their own, of which only the test photos matter."""
    for part in ("train", "test"):
        for folder in sorted((photos / part).iterdir()):
            is_left_out = folder.name in left_out
            if is_left_out and part == "train":
                continue
            place = root / OUTSIDE / folder.name if is_left_out else root / "inside" / part / folder.name
            place.mkdir(parents=True)
            for photo in folder.iterdir():
                (place / photo.name).symlink_to(photo.resolve())


if __name__ == "__main__":
    main()
