"""The short form of `python -m bench.fleet`: three instances in network namespaces behind HAProxy, one PostgreSQL."""

import pytest

from bench.fleet_drift import strangers_in_a_third
from bench.fleet_trials import cut_off_instance, gate_changes, killed_instance, restarted_database, swaps
from tests.real_fleet import RealFleet, lack

pytestmark = pytest.mark.slow

PATIENT = ("--overload-wait-seconds", "30", "--deadline-seconds", "60")
"""A machine that stands still for a moment must not look like a flood."""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    if missing := lack():
        pytest.skip(missing)
    with RealFleet(tmp_path_factory.mktemp("fleet"), ("a", "b", "c"), *PATIENT) as fleet:
        yield fleet


def is_clean(figures):
    """Every answer was checked: none wrong, none refused, none lost."""
    return [figures[name] for name in ("wrong", "other than 200", "lost", "refused")] == [0, 0, 0, 0]


def test_gates_and_versions_change_through_the_balancer_and_nothing_wrong_is_answered(fleet):
    changed, swapped = gate_changes(fleet, 3), swaps(fleet, 4)
    assert changed["answered 200, all having followed"] + changed["answered 202"] == 3
    assert swapped["answered 200, all having swapped"] + swapped["answered 202"] == 4
    assert is_clean(changed) and is_clean(swapped)


def test_an_instance_that_is_killed_comes_back_with_what_was_changed_meanwhile(fleet):
    figures = killed_instance(fleet, 1)  # which waits for that, and fails without
    assert (figures["kills"], figures["wrong"]) == (1, 0)


def test_an_instance_that_is_cut_off_serves_on_and_catches_up(fleet):
    figures = cut_off_instance(fleet, 1)
    assert figures["status of a change at another, which names it"] == {"202": 1}
    assert is_clean(figures)


def test_all_outlive_a_restart_of_the_database(fleet):
    figures = restarted_database(fleet, 1)
    assert figures["status of a change meanwhile"] == {"503": 1}
    assert is_clean(figures)


def test_strange_images_in_a_third_of_the_traffic_raise_the_fleets_alarm(fleet):
    figures = strangers_in_a_third(fleet, 300)
    assert figures["images before, all familiar"] >= 300
    assert figures["images from the first drifted one to the fleet's alarm"] > 0
