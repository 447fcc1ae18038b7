"""The bar that is shown while many images are gone through."""

from __future__ import annotations

import sys
from typing import Any

from tqdm import tqdm

BAR_SECONDS = 0.2 if sys.stderr.isatty() else 20.0  # a log file needs no more


def bar(total: int, doing: str, **options: Any) -> tqdm[Any]:
    """Of so many images; it goes away when they are done."""
    return tqdm(total=total, desc=doing, leave=False, mininterval=BAR_SECONDS, **{"unit": " images", **options})
