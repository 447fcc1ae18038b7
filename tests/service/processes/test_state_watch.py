"""The thread that looks at the desired state: a real database, a real event loop."""

import asyncio

import pytest

from portcullis.processes.state_watch import StateWatch
from portcullis.processes.stores import open_local
from portcullis.store.state import DesiredState, StateStore


def state(revision):
    return DesiredState(revision=revision, configured_gate="accept95", models={})


class Follower:
    """Takes up what it is told, unless it is to fail."""

    def __init__(self, store, seconds=0.001):
        self.told: asyncio.Queue[int] = asyncio.Queue()
        self.revision, self.failures = -1, 0
        self.watch = StateWatch(store.at_hand, lambda: self.revision, self.follow, seconds)

    def follow(self, state):
        self.told.put_nowait(state.revision)
        if self.failures:
            self.failures -= 1
            raise RuntimeError("not now")
        self.revision = state.revision

    async def until(self, revision):
        while await asyncio.wait_for(self.told.get(), 60) != revision or self.revision != revision:
            pass


@pytest.fixture
def store(local):
    store = StateStore(local)
    store.write(state(1))
    return store


async def test_a_change_is_told_on_the_event_loop_and_again_until_it_is_followed(store):
    follower = Follower(store)
    await follower.until(1)
    follower.failures = 3
    store.write(state(2))
    await follower.until(2)
    assert follower.failures == 0
    await follower.watch.stop()


async def test_what_cannot_be_read_is_told_once_it_can(store, local):
    follower = Follower(store)
    await follower.until(1)
    local.set_aside()
    while not follower.told.empty():
        follower.told.get_nowait()
    open_local(local)
    store.write(state(2))
    await follower.until(2)
    await follower.watch.stop()


async def test_the_same_state_is_told_again_now_and_then_and_never_after_the_end(store):
    follower = Follower(store)
    for _ in range(3):
        await follower.until(1)
    await follower.watch.stop()
    while not follower.told.empty():
        follower.told.get_nowait()
    store.write(state(2))
    follower.watch._pass_on(state(2))  # one that was on its way
    assert follower.told.empty() and not follower.watch._thread.is_alive()
