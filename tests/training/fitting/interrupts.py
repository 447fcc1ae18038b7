"""Ctrl-C at a chosen moment of training."""

import os
import signal

from portcullis_training.fitting import fit


def interrupt_after(monkeypatch, num_steps: int) -> None:
    """Ctrl-C, as the kernel delivers it, in the middle of a given step."""
    original, steps = fit.Fitting.train_step, []

    def train_step(self, images, labels):
        original(self, images, labels)
        steps.append(1)
        if len(steps) == num_steps:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(fit.Fitting, "train_step", train_step)
