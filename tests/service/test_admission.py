"""Who may join a queue, told with a clock of its own: 128 places, 1 ms an item."""

import pytest

from service.admission import HALF_LIFE_SECONDS, Admission, Limits

LIMITS = Limits(max_batch=4, queue_capacity=128, overload_wait_seconds=0.005)
ITEM_SECONDS = 0.001


class Queue:
    """A queue that is served one item a millisecond, by a clock that only it moves."""

    def __init__(self, limits=LIMITS):
        self.now, self.waiting, self.longest_wait = 0.0, 0, 0
        self.admission = Admission(limits, self.now)
        self.admission.served(1, ITEM_SECONDS)

    def offer(self):
        is_admitted = self.admission.offer(self.waiting, self.now)
        self.waiting += is_admitted
        return is_admitted

    def pass_time(self, milliseconds=1):
        for _ in range(milliseconds):
            self.now += ITEM_SECONDS
            if self.waiting:
                self.waiting -= 1
                self.admission.served(1, ITEM_SECONDS)

    def flood(self, milliseconds, offers_per_millisecond=4):
        """The share that was admitted, and the longest queue behind which one was."""
        num_admitted = longest = 0
        for _ in range(milliseconds):
            for _ in range(offers_per_millisecond):
                before = self.waiting
                if self.offer():
                    num_admitted += 1
                    longest = max(longest, before)
            self.pass_time()
        return num_admitted / (milliseconds * offers_per_millisecond), longest


def test_a_full_queue_takes_nobody():
    queue = Queue()
    assert all(queue.offer() for _ in range(128))
    assert not queue.offer()


@pytest.mark.parametrize("offers_per_millisecond", [2, 4, 10])
def test_in_a_flood_only_what_is_answered_soon_is_admitted_and_the_engine_stays_busy(offers_per_millisecond):
    queue = Queue()
    queue.flood(500, offers_per_millisecond)  # notices the flood, works off what came before
    share, longest = queue.flood(1000, offers_per_millisecond)
    assert longest <= 5
    assert share == pytest.approx(1 / offers_per_millisecond, rel=0.02)


def test_many_clients_that_wait_for_their_answers_are_no_flood():
    """A hundred of them keep the queue far longer than a flood may, for as long as they like."""
    queue = Queue()
    assert all(queue.offer() for _ in range(100))
    for _ in range(5000):
        queue.pass_time()
        assert queue.offer()


def test_a_flood_that_has_ended_is_forgotten_however_long_it_was():
    queue = Queue()
    queue.flood(20_000)
    queue.pass_time(round(1000 * 5 * HALF_LIFE_SECONDS))
    assert all(queue.offer() for _ in range(100))


def test_after_a_flood_a_short_queue_is_open_at_once():
    queue = Queue()
    queue.flood(1000)
    queue.pass_time(6)
    assert queue.offer()


def test_what_would_be_refused_is_known_before_it_is_offered():
    queue = Queue()
    assert not queue.admission.is_hopeless(100, queue.now)
    queue.flood(1000)
    assert queue.admission.is_hopeless(6, queue.now)
    assert not queue.admission.is_hopeless(5, queue.now)
    assert not queue.admission.is_hopeless(6, queue.now + 3 * HALF_LIFE_SECONDS)
