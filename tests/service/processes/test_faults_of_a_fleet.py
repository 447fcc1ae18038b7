"""Faults of disks, processes and the database where the state is in PostgreSQL: `python -m bench.faults`, but short.

On SQLite: test_faults.py. What each fault does waits for the service to be whole again, and fails without.
"""

import pytest

from bench.fault_figures import Ground
from bench.store_faults import full_disk, killed_changes, killed_database
from tests import sabotage

pytestmark = pytest.mark.slow

PATIENT = ("--overload-wait-seconds", "30")
"""A machine that stands still for a moment must not look like a flood."""


@pytest.fixture
def ground(tmp_path, cluster):
    sabotage.write_versions(tmp_path / "models")
    return Ground(tmp_path, 0.1, cluster, cluster.new_database(), PATIENT)


def test_a_kill_of_everything_in_the_middle_of_changes_keeps_what_was_answered(ground):
    figures = killed_changes(ground)
    assert figures["starts with what was answered last"] == figures["kills"] > 0


def test_a_crash_of_the_database_in_the_middle_of_changes_loses_nothing_that_was_answered(ground):
    figures = killed_database(ground)
    assert figures["times that what was answered last was served and agreed on afterwards"] == figures["kills"] > 0
    assert figures["status of a swap without it"] == [503]
    assert (figures["wrong"], figures["other than 200"], figures["lost"]) == (0, 0, 0)


def test_an_instance_whose_disk_is_full_never_says_that_it_has_followed(ground):
    try:
        figures = full_disk(ground)
    except PermissionError as error:
        pytest.skip(str(error))
    assert set(figures["status of a swap meanwhile"]) <= {202, 503}  # 503: a machine that stood still
    assert (figures["wrong"], figures["other than 200"]) == (0, 0)
    assert figures["not answered"] <= 4 * figures["kills"]  # what a killed worker had in flight
