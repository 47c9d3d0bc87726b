"""The real world: timers, threads and children on a loop."""

import asyncio
import operator
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import uvloop

from penstock.server.child import Child, ChildFailed
from penstock.server.world import LoopWorld
from penstock.storage.errors import CorruptLog


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = uvloop.new_event_loop()
    yield loop
    loop.close()


@pytest.fixture
def world(loop: asyncio.AbstractEventLoop) -> Iterator[LoopWorld]:
    world = LoopWorld(loop)
    yield world
    world.close()


class Answer:
    """What was called back, and on which thread; the loop stops when it comes."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.given: list[tuple[Any, Exception | None]] = []

    def __call__(self, result: Any, error: Exception | None) -> None:
        self.given.append((result, error))
        self.thread = threading.current_thread()
        self.loop.stop()

    def wait(self) -> tuple[Any, Exception | None]:
        self.loop.run_forever()
        [given] = self.given
        return given


def test_time_is_the_wall_clocks(world: LoopWorld) -> None:
    first = world.now_ms()
    assert first > 1_700_000_000_000
    assert world.now_ms() >= first


def test_a_machine_that_was_not_restarted_has_the_same_boot_id(
    world: LoopWorld, loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "boot_id"
    monkeypatch.setattr("penstock.server.world.BOOT_ID", file)
    assert world.boot_id() is None, "no Linux"
    for content, boot_id in ((b"d7b5e9e6-0f6e\n", "d7b5e9e6-0f6e"), (b"\n", None), (b"\xff", None)):
        file.write_bytes(content)
        assert world.boot_id() == LoopWorld(loop).boot_id() == boot_id


def test_two_worlds_draw_different_numbers(loop: asyncio.AbstractEventLoop) -> None:
    assert LoopWorld(loop).rng.getrandbits(128) != LoopWorld(loop).rng.getrandbits(128)


def test_a_timer_fires_after_what_comes_sooner_and_a_cancelled_one_never(
    world: LoopWorld, loop: asyncio.AbstractEventLoop
) -> None:
    happened: list[str] = []
    world.call_later(20, loop.stop)
    world.call_later(10, lambda: happened.append("later"))
    world.call_later(5, lambda: happened.append("never")).cancel()
    world.call_soon(lambda: happened.append("soon"))
    loop.run_forever()
    assert happened == ["soon", "later"]


def test_work_runs_on_another_thread_and_is_answered_on_the_loops(
    world: LoopWorld, loop: asyncio.AbstractEventLoop
) -> None:
    answer = Answer(loop)
    world.beside(threading.current_thread, answer)
    worker, error = answer.wait()
    assert error is None
    assert worker is not threading.current_thread()
    assert answer.thread is threading.current_thread()


def test_what_work_raises_is_handed_over(world: LoopWorld, loop: asyncio.AbstractEventLoop) -> None:
    answer = Answer(loop)
    world.beside(partial(operator.truediv, 1, 0), answer)
    result, error = answer.wait()
    assert result is None
    assert isinstance(error, ZeroDivisionError)


def test_works_run_at_the_same_time(loop: asyncio.AbstractEventLoop) -> None:
    """Partitions are synced in parallel: each of these waits for the others."""
    world = LoopWorld(loop, threads_max=3)
    barrier = threading.Barrier(3, timeout=30)
    answers: list[Any] = []

    def done(result: Any, error: Exception | None) -> None:
        answers.append(error)
        if len(answers) == 3:
            loop.stop()

    for _ in range(3):
        world.beside(barrier.wait, done)
    loop.run_forever()
    world.close()
    assert answers == [None, None, None]


def test_after_the_end_nothing_is_called_back(world: LoopWorld, loop: asyncio.AbstractEventLoop) -> None:
    answer, started, go_on = Answer(loop), threading.Event(), threading.Event()
    workers: list[threading.Thread] = []

    def work() -> None:
        workers.append(threading.current_thread())
        started.set()
        go_on.wait(30)

    world.beside(work, answer)
    assert started.wait(30)
    before = set(threading.enumerate())
    threading.Timer(0, go_on.set).start()
    world.close()
    world.beside(work, answer)
    world.in_child(os.getpid, answer)
    loop.call_soon(loop.stop)
    loop.run_forever()
    assert answer.given == []
    assert not any(each.is_alive() for each in workers)
    assert not [each for each in set(threading.enumerate()) - before if each.name.startswith("penstock-")]


def test_a_child_works_in_another_process_with_low_priority(
    world: LoopWorld, loop: asyncio.AbstractEventLoop
) -> None:
    answer = Answer(loop)
    world.in_child(partial(os.getpriority, os.PRIO_PROCESS, 0), answer)
    priority, error = answer.wait()
    assert error is None
    assert priority >= min(19, os.getpriority(os.PRIO_PROCESS, 0) + 10)
    answer = Answer(loop)
    world.in_child(os.getppid, answer)
    assert answer.wait() == (os.getpid(), None)


def test_what_a_child_raises_is_handed_over(world: LoopWorld, loop: asyncio.AbstractEventLoop) -> None:
    answer = Answer(loop)
    world.in_child(partial(operator.truediv, 1, 0), answer)
    result, error = answer.wait()
    assert result is None
    assert isinstance(error, ZeroDivisionError)


def test_a_corrupt_log_is_the_same_error_here_and_in_a_child() -> None:
    with pytest.raises(CorruptLog, match=r"a\.log at position 7: torn") as caught:
        Child(partial(_throw, CorruptLog("a.log", 7, "torn"))).run()
    assert (caught.value.path, caught.value.position) == ("a.log", 7)


def test_a_child_that_dies_is_an_error() -> None:
    with pytest.raises(ChildFailed, match="exited with status 3 before it answered"):
        Child(partial(os._exit, 3)).run()


def test_what_a_child_prints_does_not_get_into_its_answer(capfd: pytest.CaptureFixture[str]) -> None:
    assert Child(partial(print, "hello")).run() is None
    assert capfd.readouterr() == ("", "hello\n")


def test_work_that_cannot_be_pickled_is_the_callers_mistake(world: LoopWorld) -> None:
    with pytest.raises(Exception, match="pickle"):
        world.in_child(lambda: 1, lambda _result, _error: None)


def test_closing_kills_a_child_at_work(
    world: LoopWorld, loop: asyncio.AbstractEventLoop, tmp_path: Path
) -> None:
    answer, fifo = Answer(loop), tmp_path / "fifo"
    os.mkfifo(fifo)
    code = f"import time; file = open({str(fifo)!r}, 'wb', 0); file.write(b'x'); time.sleep(600)"
    world.in_child(partial(exec, code), answer)
    with fifo.open("rb", 0) as reader:
        assert reader.read(1) == b"x"
        world.close()
        assert reader.read(1) == b""
    loop.call_soon(loop.stop)
    loop.run_forever()
    assert answer.given == []


def test_a_child_ends_when_its_parent_is_killed() -> None:
    """Otherwise it would write files behind the back of the node that starts next."""
    code = (
        "from functools import partial\n"
        "from penstock.server.child import Child\n"
        "Child(partial(exec, 'import os, time; os.write(2, b\"at work\\\\n\"); time.sleep(600)')).run()\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE) as parent:
        assert parent.stderr is not None
        assert parent.stderr.readline() == b"at work\n"
        parent.kill()
        # Both have standard error open: it ends when the child does.
        assert parent.stderr.read() == b""


def _throw(error: Exception) -> None:
    raise error


def test_a_helper_stays_for_the_next_piece_of_work(world: LoopWorld, loop: asyncio.AbstractEventLoop) -> None:
    processes = []
    for _ in range(2):
        answer = Answer(loop)
        world.in_helper(os.getpid, answer)
        processes.append(answer.wait()[0])
        assert answer.thread is threading.current_thread()
    assert processes[0] == processes[1] != os.getpid()


def test_what_a_helper_raises_is_handed_over_and_it_goes_on(
    world: LoopWorld, loop: asyncio.AbstractEventLoop
) -> None:
    answer = Answer(loop)
    world.in_helper(partial(operator.truediv, 1, 0), answer)
    assert isinstance(answer.wait()[1], ZeroDivisionError)
    answer = Answer(loop)
    world.in_helper(partial(operator.add, 1, 2), answer)
    assert answer.wait() == (3, None)


def test_a_helper_that_dies_is_an_error_and_another_takes_its_place(
    world: LoopWorld, loop: asyncio.AbstractEventLoop
) -> None:
    answer = Answer(loop)
    world.in_helper(partial(os._exit, 3), answer)
    assert isinstance(answer.wait()[1], ChildFailed)
    answer = Answer(loop)
    world.in_helper(partial(print, "not an answer"), answer)
    assert answer.wait() == (None, None)


def test_closing_kills_a_helper_at_work(world: LoopWorld, loop: asyncio.AbstractEventLoop) -> None:
    read, write = os.pipe()
    answer = Answer(loop)
    world.in_helper(os.getpid, answer)
    pid, _ = answer.wait()
    world.in_helper(partial(exec, f"open('/proc/{os.getpid()}/fd/{write}', 'w').write('x'); input()"), answer)
    assert os.read(read, 1) == b"x"
    world.close()
    os.close(read)
    os.close(write)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_an_idle_helper_process_is_ended(
    world: LoopWorld, loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.server.helper_lane.HELPER_IDLE_MS", 1)
    answer = Answer(loop)
    world.in_helper(os.getpid, answer)
    pid, _ = answer.wait()
    loop.call_later(0.05, loop.stop)
    loop.run_forever()
    answer = Answer(loop)
    world.in_helper(os.getpid, answer)
    assert answer.wait()[0] != pid


def test_a_timer_that_is_set_after_the_end_never_fires(loop: asyncio.AbstractEventLoop) -> None:
    """What a node abandons may set one when it is collected, with the loop closed."""
    world = LoopWorld(loop)
    world.close()
    fired: list[int] = []
    world.call_later(0, lambda: fired.append(1)).cancel()
    world.call_later(0, lambda: fired.append(2))
    loop.call_soon(loop.stop)
    loop.run_forever()
    assert fired == []
