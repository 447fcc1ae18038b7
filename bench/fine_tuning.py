"""`python -m bench.fine_tuning RUN`: what the first steps of fine-tuning do to a frozen network, one thing at a time.

RUN is a run of the recipe `photos` whose head is trained on the frozen backbone. From there a few steps are taken in
different ways, and validation photos asked after them: which part of a recipe is it that makes right answers wrong?
"""

import argparse
import json
import time
from itertools import islice
from pathlib import Path
from typing import Any

from bench.__main__ import RESULTS
from portcullis_training import data
from portcullis_training.commands import host
from portcullis_training.fitting import checkpoint, frozen, tally
from portcullis_training.fitting.distributed import training_process
from portcullis_training.fitting.fit import Fitting, Start
from portcullis_training.runs.directory import Run, open_run

WARMUP_STEPS = 10
AS_IT_WAS = {"keep_norms": False, "fixed_stride": None, "backbone_rate": 0.1}
TRIED: dict[str, dict[str, Any]] = {
    "batch norm's statistics alone, no weight moved": {**AS_IT_WAS, "learning_rate": 1e-30},
    "the backbone at 2e-4": AS_IT_WAS,
    "the same, norms kept": {**AS_IT_WAS, "keep_norms": True},
    "the backbone at 4e-5, norms kept": {**AS_IT_WAS, "keep_norms": True, "backbone_rate": 0.02},
    "the same, first layers fixed": {"keep_norms": True, "fixed_stride": 16, "backbone_rate": 0.02},
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.fine_tuning", description=__doc__)
    parser.add_argument("run", type=Path, help="directory of a run that began frozen")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--out", type=Path, default=RESULTS / "fine_tuning.json")
    arguments = parser.parse_args()
    host.settle()
    run = open_run(arguments.run)
    rows = {name: tried(run, fields, arguments.steps) for name, fields in TRIED.items()}
    arguments.out.write_text(json.dumps(rows, indent=1) + "\n")
    print("\n".join(table(rows)))


def tried(run: Run, fields: dict[str, Any], num_steps: int) -> dict[str, float]:
    """Validation photos answered rightly by the weights after the steps, and the processor time of a training image."""
    config = run.config.model_copy(
        update={**fields, "weight_averaging": None, "precision": "float32", "epochs": 6, "minutes": None}
    )
    with training_process(config) as process:
        splits = data.load(config.data, config)
        start = Start(checkpoint.load(run.at(frozen.STAGE).checkpoint_path).classifier, None)
        warmup = WARMUP_STEPS / (config.epochs * (len(splits.train) // config.batch_size))
        fitting = Fitting(
            Run(Path(), config.model_copy(update={"warmup": min(0.5, warmup)})), process, splits, start, "float32"
        )
        fitting.start_epoch()
        fitting.forward.train()
        seconds = 0.0
        for images, labels in islice(fitting.batches(), num_steps):
            started = time.process_time()
            fitting.train_step(images, labels)
            fitting.step += 1
            seconds += time.process_time() - started
        return {
            "validation_accuracy": fitting.validation_accuracy(splits.validation),
            "training_loss": tally.mean_loss(fitting.tally.sums),
            "seconds_an_image": seconds / (num_steps * fitting.batch_size),
        }


def table(rows: dict[str, dict[str, float]]) -> list[str]:
    """Markdown."""
    return [
        "| | validation photos right | processor time of an image |",
        "| --- | --- | --- |",
        *(
            f"| {name} | {row['validation_accuracy']:.1%} | {1000 * row['seconds_an_image']:.0f} ms |"
            for name, row in rows.items()
        ),
    ]


if __name__ == "__main__":
    main()
