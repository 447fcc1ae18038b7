"""What a fault cost, as a row of the table."""

from typing import Any

from tests.hammer import Hammer

Figures = dict[str, Any]


def tally(hammer: Hammer) -> Figures:
    """The answers, all of them checked."""
    others = {status: count for status, count in hammer.statuses.items() if status != 200}
    return {"answers": hammer.num_answers, "wrong": len(hammer.wrong), "other than 200": others or 0}
