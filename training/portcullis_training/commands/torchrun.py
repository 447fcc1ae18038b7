"""Which of the processes that torchrun started this is."""

import os


def is_main() -> bool:
    """Whether this process speaks for all, and alone does what is done once."""
    return os.environ.get("RANK", "0") == "0"
