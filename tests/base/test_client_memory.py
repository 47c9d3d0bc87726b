"""The bound on what all clients together can make the node keep."""

import logging

import pytest
from tests.worlds import StillWorld

from penstock.base.client_memory import LOOK_MS, MOVED_BYTES_MIN, TRIM_MS, ClientMemory

MB = 1 << 20


class Client:
    def __init__(self, memory: ClientMemory, name: str = "10.0.0.1:4711") -> None:
        self.memory = memory
        self.peer = name
        self.moved = 0
        self.kept = 0
        self.grown = 0
        self.is_closed = False

    def keep(self, kept: int) -> None:
        self.kept = kept
        self.memory.keeps(self, kept)

    def grow(self, more: int) -> bool:
        if self.memory.admits(self):
            self.keep(self.kept + more)
            return True
        return False

    def moved_bytes(self) -> int:
        return self.moved

    def may_grow(self) -> None:
        if self.grow(10 * MB):
            self.grown += 1

    def abort(self) -> None:
        self.is_closed = True
        self.keep(0)


@pytest.fixture
def world() -> StillWorld:
    return StillWorld()


@pytest.fixture
def memory(world: StillWorld) -> ClientMemory:
    return ClientMemory(world, 128 * MB)


def test_steps_are_small_while_much_is_kept(memory: ClientMemory) -> None:
    clients = [Client(memory) for _ in range(40)]
    steps = []
    for client in clients:
        client.keep(MB)
        steps.append(memory.step)
    assert steps == [MB] * 32 + [64 * 1024] * 8
    for client in clients:
        client.keep(0)
    assert memory.total == 0
    assert memory.step == MB
    assert not memory.is_pressed


def test_what_is_kept_is_counted_once(memory: ClientMemory) -> None:
    client = Client(memory)
    for kept in (5, 5, 7, 3, 0, 0):
        client.keep(kept)
        assert memory.total == kept


def test_fetches_that_come_together_read_little_ahead_after_the_first(memory: ClientMemory) -> None:
    assert memory.read_ahead() == MB
    memory.ahead_left = 0
    assert memory.read_ahead() == 64 * 1024


def test_a_client_that_moves_nothing_is_closed_when_the_memory_is_full(
    world: StillWorld, memory: ClientMemory, caplog: pytest.LogCaptureFixture
) -> None:
    """The largest first, and no more of them than is needed."""
    small, busy = Client(memory, "small"), Client(memory, "busy")
    large = Client(memory, "large")
    small.keep(20 * MB)
    busy.keep(50 * MB)
    busy.moved = MOVED_BYTES_MIN
    large.keep(60 * MB)
    with caplog.at_level(logging.WARNING):
        world.advance(LOOK_MS + 1)
    assert (small.is_closed, busy.is_closed, large.is_closed) == (False, False, True)
    assert memory.closed == 1
    assert memory.total == 70 * MB
    assert "closed 1 connections, including that of large" in caplog.text
    assert "client.buffers.max.bytes, 134217728" in caplog.text
    world.run_until_idle()


def test_no_connection_is_closed_while_there_is_room(world: StillWorld, memory: ClientMemory) -> None:
    idle = [Client(memory) for _ in range(100)]
    for client in idle:
        client.keep(MB)
    world.advance(10 * LOOK_MS)
    assert not any(client.is_closed for client in idle)


def test_it_is_looked_until_there_is_room(world: StillWorld, memory: ClientMemory) -> None:
    clients = [Client(memory) for _ in range(3)]
    for client in clients:
        client.keep(60 * MB)
        client.moved = MOVED_BYTES_MIN
    world.advance(5 * LOOK_MS)
    assert not any(client.is_closed for client in clients)
    clients[1].moved = MOVED_BYTES_MIN - 1
    world.advance(LOOK_MS)
    assert [client.is_closed for client in clients] == [False, True, False]
    world.run_until_idle()


def test_requests_that_are_too_large_together_grow_one_after_the_other(memory: ClientMemory) -> None:
    clients = [Client(memory, str(number)) for number in range(20)]
    for client in clients:
        client.keep(10 * MB)
    assert memory.total > memory.bytes_max
    assert [client.grow(10 * MB) for client in clients] == [True] + [False] * 19
    assert clients[0].grow(10 * MB), "until it is finished"
    clients[0].keep(0)
    assert [client.grown for client in clients] == [0, 1] + [0] * 18
    clients[1].keep(0)
    assert [client.grown for client in clients] == [0, 1, 1] + [0] * 17


def test_a_request_that_waits_and_is_given_up_is_not_waited_for(memory: ClientMemory) -> None:
    first, second, third = (Client(memory, str(number)) for number in range(3))
    for client in (first, second, third):
        client.keep(50 * MB)
    assert [client.grow(MB) for client in (first, second, third)] == [True, False, False]
    second.abort()
    assert third.grown == 1, "there is room now"


def test_one_that_grows_and_stalls_is_closed_and_the_next_goes_on(
    world: StillWorld, memory: ClientMemory
) -> None:
    first, second = Client(memory, "first"), Client(memory, "second")
    first.keep(100 * MB)
    second.keep(80 * MB)
    second.moved = MOVED_BYTES_MIN
    assert first.grow(MB)
    assert not second.grow(MB)
    world.advance(LOOK_MS + 1)
    assert first.is_closed
    assert second.grown == 1
    world.run_until_idle()


def test_memory_is_given_back_after_much_of_it_was_kept(world: StillWorld, memory: ClientMemory) -> None:
    given_back = []
    memory.trim = lambda: given_back.append(world.now_ms())
    client = Client(memory)
    client.keep(31 * MB)
    client.keep(0)
    world.advance(2 * TRIM_MS)
    assert not given_back, "little was kept"
    client.keep(40 * MB)
    client.keep(0)
    client.keep(40 * MB)
    world.advance(TRIM_MS + 100)
    assert not given_back, "it is needed again"
    client.keep(0)
    world.advance(TRIM_MS + 100)
    assert len(given_back) == 1
