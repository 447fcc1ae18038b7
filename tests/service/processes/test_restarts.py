from portcullis.processes.restarts import BROKEN_SETTLED_SECONDS, MAX_PAUSE_SECONDS, SETTLED_SECONDS, Restarts

LONG, SHORT, NEVER = SETTLED_SECONDS, SETTLED_SECONDS / 2, None


def pauses(*lives):
    restarts = Restarts()
    return [restarts.pause_seconds(life) for life in lives]


def test_after_a_long_life_the_next_begins_at_once_however_many_there_were():
    assert pauses(*[LONG] * 5) == [0.0] * 5


def test_after_short_lives_the_next_begins_later_and_later():
    growing = pauses(*[NEVER] * 10)
    assert growing[:4] == [0.2, 0.4, 0.8, 1.6]
    assert set(growing[6:]) == {MAX_PAUSE_SECONDS}
    assert pauses(SHORT, NEVER, SHORT) == growing[:3]


def test_a_long_life_makes_up_for_the_short_ones_before():
    assert pauses(NEVER, NEVER, NEVER, LONG, NEVER) == [0.2, 0.4, 0.8, 0.0, 0.2]


def test_a_worker_whose_engine_broke_must_have_been_ready_for_longer():
    restarts = Restarts()
    lives = [LONG, LONG, LONG, BROKEN_SETTLED_SECONDS, LONG]
    assert [restarts.pause_seconds(life, is_broken=True) for life in lives] == [0.2, 0.4, 0.8, 0.0, 0.2]
