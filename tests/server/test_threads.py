"""Threads for work beside the loop: all of it is done, and by no more of them than it takes."""

import threading
from queue import SimpleQueue

from penstock.server.threads import Threads

SECONDS_MAX = 30


def test_all_work_is_done_by_as_many_threads_as_there_may_be() -> None:
    threads = Threads("test", 3)
    done: SimpleQueue[tuple[int, str]] = SimpleQueue()
    gate = threading.Event()

    def work(number: int) -> None:
        assert gate.wait(SECONDS_MAX)
        done.put((number, threading.current_thread().name))

    for number in range(50):
        threads.run(lambda number=number: work(number))  # type: ignore[misc]
    gate.set()
    told = [done.get(timeout=SECONDS_MAX) for _ in range(50)]
    threads.close()
    assert sorted(number for number, _ in told) == list(range(50))
    assert {name for _, name in told} <= {"test-0", "test-1", "test-2"}


def test_one_thread_is_enough_for_one_piece_at_a_time() -> None:
    threads = Threads("test", 16)
    names = []
    for _ in range(100):
        done: SimpleQueue[str] = SimpleQueue()
        threads.run(lambda done=done: done.put(threading.current_thread().name))  # type: ignore[misc]
        names.append(done.get(timeout=SECONDS_MAX))
        while not threads._idle:  # it says that it is free a moment after its work says that it is done
            pass
    threads.close()
    assert set(names) == {"test-0"}


def test_the_end_waits_for_what_is_being_done_and_not_for_what_waits() -> None:
    threads = Threads("test", 1)
    began, gate = threading.Event(), threading.Event()
    done: list[str] = []

    def first() -> None:
        began.set()
        assert gate.wait(SECONDS_MAX)
        done.append("first")

    threads.run(first)
    threads.run(lambda: done.append("second"))
    assert began.wait(SECONDS_MAX)
    closing = threading.Thread(target=threads.close)
    closing.start()
    while not threads._is_closed:
        pass
    gate.set()
    closing.join(SECONDS_MAX)
    assert done == ["first"]
