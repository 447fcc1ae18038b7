"""Tables of what was measured are those of the results that are kept; none is typed by hand."""

import json

import pytest

from bench import faults, fleet
from bench.marked import with_table
from bench.measured_tables import documents, many_table


@pytest.mark.parametrize("page", documents(), ids=lambda page: page.name)
def test_the_tables_of_a_page_are_the_results(page):
    assert page.read_text() == documents()[page], "python -m bench.measured_tables writes them"


def test_a_page_without_the_place_is_an_error():
    with pytest.raises(ValueError, match="one place marked for the table many"):
        with_table("no marks", "many", "| |")


def test_nothing_is_left_unmeasured():
    kept = json.loads(faults.RESULTS.read_text())
    assert {name for rows in kept.values() for name in rows} == set(faults.FAULTS), "and nothing that is gone is kept"
    assert "not measured" not in faults.table(kept) + fleet.table(json.loads(fleet.RESULTS.read_text()))


def test_runs_stand_side_by_side():
    runs = {"2 directly": {"a change": {"seconds": 0.5}}, "9 directly": {"a change": {"seconds": 12345}}}
    assert many_table(runs).splitlines() == [
        "| | 2 directly | 9 directly |",
        "| --- | --- | --- |",
        "| **a change** | | |",
        "| seconds | 0.5 | 12,345 |",
    ]
