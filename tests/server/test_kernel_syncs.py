"""Syncs that the kernel does by itself: all are told, none on another thread, and a no is never a loss."""

import asyncio
import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvloop

from penstock.server import kernel_syncs
from penstock.server.kernel_syncs import AT_ONCE_MAX, LATE_S, PAUSE_S_MAX, PAUSE_S_MIN, KernelSyncs
from penstock.server.world import LoopWorld
from penstock.vfs import RealDisk


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = uvloop.new_event_loop()
    yield loop
    loop.close()


class Clock:
    """Stands still, unless a test moves it."""

    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def syncs(loop: asyncio.AbstractEventLoop, clock: Clock) -> Iterator[KernelSyncs]:
    try:
        made = KernelSyncs(loop, clock=clock)
    except OSError as error:
        pytest.skip(f"this system has none: {error}")
    yield made
    made.close()


@pytest.fixture
def descriptor(tmp_path: Path) -> Iterator[int]:
    opened = os.open(tmp_path / "log", os.O_RDWR | os.O_CREAT)
    yield opened
    os.close(opened)


class Told:
    """What came of syncs; the loop stops with the last."""

    def __init__(self, loop: asyncio.AbstractEventLoop, expected: int = 1) -> None:
        self.errors: list[OSError | None] = []
        self.threads: set[threading.Thread] = set()
        self._loop = loop
        self._expected = expected

    def __call__(self, error: OSError | None) -> None:
        self.errors.append(error)
        self.threads.add(threading.current_thread())
        if len(self.errors) == self._expected:
            self._loop.stop()


def test_a_sync_is_reported_on_the_loops_thread_and_not_before_it_turns(
    loop: asyncio.AbstractEventLoop, syncs: KernelSyncs, descriptor: int
) -> None:
    told = Told(loop)
    os.pwrite(descriptor, b"records", 0)
    assert syncs.sync(descriptor, told)
    assert told.errors == []
    loop.run_forever()
    assert told.errors == [None]
    assert told.threads == {threading.current_thread()}


def test_syncs_come_one_after_the_other_without_end(
    loop: asyncio.AbstractEventLoop, syncs: KernelSyncs, descriptor: int
) -> None:
    for number in range(3 * AT_ONCE_MAX):
        told = Told(loop)
        os.pwrite(descriptor, b"records", number * 7)
        assert syncs.sync(descriptor, told)
        loop.run_forever()
        assert told.errors == [None]


def test_what_is_too_much_at_once_is_refused_and_the_rest_is_done(
    loop: asyncio.AbstractEventLoop, syncs: KernelSyncs, descriptor: int
) -> None:
    told = Told(loop, AT_ONCE_MAX)
    answers = [syncs.sync(descriptor, told) for _ in range(AT_ONCE_MAX + 3)]
    assert answers == [True] * AT_ONCE_MAX + [False] * 3
    loop.run_forever()
    assert told.errors == [None] * AT_ONCE_MAX
    assert syncs.sync(descriptor, Told(loop))


def test_a_worker_that_does_not_come_is_not_asked_again_for_a_while(
    loop: asyncio.AbstractEventLoop, syncs: KernelSyncs, descriptor: int, clock: Clock
) -> None:
    """Where a processor is never idle its worker may wait for seconds: threads go where there is room."""
    told = Told(loop)
    assert syncs.sync(descriptor, told)
    clock.now_s += LATE_S / 2
    fine = Told(loop)
    assert syncs.sync(descriptor, fine)
    clock.now_s += LATE_S
    assert not syncs.sync(descriptor, Told(loop)), "the first is late"
    while not (told.errors and fine.errors):
        loop.run_forever()
    assert (told.errors, fine.errors) == ([None], [None]), "late is not lost"
    clock.now_s += PAUSE_S_MIN / 2
    assert not syncs.sync(descriptor, Told(loop))
    clock.now_s += PAUSE_S_MIN / 2
    assert syncs.sync(descriptor, Told(loop))


def test_the_pauses_grow_while_each_is_followed_by_another_late_one(
    loop: asyncio.AbstractEventLoop, syncs: KernelSyncs, descriptor: int, clock: Clock
) -> None:
    def late() -> float:
        """How long the pause is after one that is told late."""
        told = Told(loop)
        assert syncs.sync(descriptor, told)
        clock.now_s += 2 * LATE_S
        loop.run_forever()
        began_s = clock.now_s
        while not syncs.sync(descriptor, again := Told(loop)):
            clock.now_s += 1.0
        loop.run_forever()
        assert (told.errors, again.errors) == ([None], [None])
        return round(clock.now_s - began_s)

    assert [late() for _ in range(4)] == [PAUSE_S_MIN, 2 * PAUSE_S_MIN, 4 * PAUSE_S_MIN, 8 * PAUSE_S_MIN]
    assert max(late() for _ in range(6)) == PAUSE_S_MAX
    clock.now_s += 2 * PAUSE_S_MAX
    assert late() == PAUSE_S_MIN, "it was good for long"


def test_a_file_may_be_closed_while_it_is_synced(
    loop: asyncio.AbstractEventLoop, syncs: KernelSyncs, tmp_path: Path
) -> None:
    told = Told(loop)
    opened = os.open(tmp_path / "log", os.O_RDWR | os.O_CREAT)
    os.pwrite(opened, b"records", 0)
    assert syncs.sync(opened, told)
    os.close(opened)
    loop.run_forever()
    assert told.errors == [None]


def test_what_is_no_file_that_can_be_synced_is_refused(
    loop: asyncio.AbstractEventLoop, syncs: KernelSyncs, descriptor: int
) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    assert not syncs.sync(writes, Told(loop))
    os.close(writes)
    assert not syncs.sync(writes, Told(loop)), "its number belongs to nobody now"
    told = Told(loop)
    assert syncs.sync(descriptor, told)
    loop.run_forever()
    assert told.errors == [None]


def test_a_failed_sync_reports_its_reason_and_the_others_are_reported_too(
    loop: asyncio.AbstractEventLoop, syncs: KernelSyncs, descriptor: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    get = syncs._getevents

    def fail_first(*arguments: object) -> int:
        count = get(*arguments)
        for each in syncs._answers[:count]:
            if each.data == 1:
                each.result = -errno.EIO
        return count

    monkeypatch.setattr(syncs, "_getevents", fail_first)
    failed, fine = Told(loop), Told(loop)
    assert syncs.sync(descriptor, failed)
    assert syncs.sync(descriptor, fine)
    while not (failed.errors and fine.errors):
        loop.run_forever()
    [error] = failed.errors
    assert error is not None
    assert error.errno == errno.EIO
    assert fine.errors == [None]


def test_the_end_waits_for_what_is_under_way_and_tells_nobody(
    loop: asyncio.AbstractEventLoop, descriptor: int
) -> None:
    world, told = LoopWorld(loop), Told(loop)
    file = RealDisk().open(f"/proc/self/fd/{descriptor}", write=True)
    world.sync_file(file, told)
    world.close()
    loop.call_soon(loop.stop)
    loop.run_forever()
    assert told.errors == []
    assert not world.sync_file(file, told), "nothing begins after the end"


def test_where_the_kernel_does_not_do_it_a_thread_must(
    loop: asyncio.AbstractEventLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_syncs, "_CALLS", {})
    world = LoopWorld(loop)
    file = RealDisk().open(str(tmp_path / "log"), write=True, create=True)
    assert not world.sync_file(file, Told(loop))
    assert not world.sync_file(file, Told(loop))
    world.close()
