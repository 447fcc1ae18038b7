"""`calibrate`: fit the temperature, the score and the gate of a trained run."""

from __future__ import annotations

import argparse
import time
from typing import Any

from portcullis_training.commands.flags import add_run
from portcullis_training.commands.parser import Say, add
from portcullis_training.runs.directory import Run, open_run

EXAMPLES = """\
The temperature comes from validation images. So does the score: its parts (the method's own, norm x gap, Mahalanobis of
features and of a middle block, neighbours) are weighed by what tells validation images from strangers made of them.
Only then are the calibration images looked at, and set the gate. Which score, a run says when it is made:
  portcullis-train run --recipe digits                        the fitted score
  portcullis-train run --recipe digits --score own            the method's own score alone: MMLES of dismax
example:
  portcullis-train {command} runs/digits
"""


def add_command(commands: Any) -> None:
    text = "fit the temperature, the score and the gate of a trained run"
    add_run(add(commands, "calibrate", _calibrate, text, EXAMPLES))


def _calibrate(namespace: argparse.Namespace, say: Say) -> None:
    calibrate_run(open_run(namespace.run), say)
    say(f"next: portcullis-train evaluate {namespace.run}")


def calibrate_run(run: Run, say: Say) -> None:
    """Calibrate, and say how."""
    from portcullis_training.measuring.calibration import calibrate

    started = time.monotonic()
    say(f"calibrating {run.config.name}: temperature, score ({run.config.score}) and gate")
    calibration = calibrate(run)
    points = ", ".join(f"{point.name} at {point.threshold:.4f}" for point in calibration.operating_points)
    num_images = calibration.scores.num_images
    score = calibration.score
    weights = ", ".join(f"{part} {weight:.2f}" for part, weight in zip(score.parts, score.weights, strict=True))
    say(f"calibrated in {time.monotonic() - started:.0f} s: temperature {calibration.temperature:.4f}, "
        f"{num_images} calibration images")  # fmt: skip
    say(f"  score {score.name}, by weight: {weights}")
    say(f"  operating points: {points or 'none, for so few images can promise nothing'}")
