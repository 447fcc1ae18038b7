"""Portcullis: an image-classification server that knows when not to answer.

No imports here, so that `service.bundle` stays light for the training line.
"""

__version__ = "0.1.0"
