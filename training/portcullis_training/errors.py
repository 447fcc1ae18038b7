"""The errors of the training line: each prints as one clear line, without a traceback, and exits with 1."""

from portcullis.errors import PortcullisError


class TrainingError(PortcullisError):
    """Something the person at the command line can put right; the message says what."""


class ConfigError(TrainingError):
    """A recipe, flag or saved config that does not describe a run."""


class DataError(TrainingError):
    """Images or labels that cannot be trained on."""


class CheckpointError(TrainingError):
    """A checkpoint that cannot be written or read."""


class FitError(TrainingError):
    """Training that went wrong and was stopped."""
