"""Virtual time, and what one process of a node is given of it."""

import gc
import weakref

import pytest

from penstock.sim.checkers.violation import Violation
from penstock.sim.world.process_world import Clock, NodeRaised, SimWorld
from penstock.sim.world.schedule import START_MS, Schedule


def run_all(schedule: Schedule) -> None:
    while schedule.step():
        pass


def test_events_come_by_time_and_then_in_the_order_they_were_planned() -> None:
    schedule, seen = Schedule(1), []
    schedule.later(20, lambda: seen.append("c"))
    schedule.later(10, lambda: seen.append("a"))
    schedule.later(10, lambda: seen.append("b"))
    run_all(schedule)
    assert seen == ["a", "b", "c"]
    assert schedule.now_us == 20


def test_what_is_called_soon_comes_after_all_that_is_due_now() -> None:
    schedule, seen = Schedule(1), []
    world = SimWorld(schedule, 1)

    def first() -> None:
        world.call_soon(lambda: seen.append("end of the turn"))

    schedule.later(10, first)
    schedule.later(10, lambda: seen.append("arrived in the same turn"))
    run_all(schedule)
    assert seen == ["arrived in the same turn", "end of the turn"]


def test_a_cancelled_event_does_not_happen_and_takes_no_time() -> None:
    schedule = Schedule(1)
    world = SimWorld(schedule, 1)
    world.call_later(5, lambda: pytest.fail("it was cancelled")).cancel()
    assert not schedule.step()
    assert schedule.now_us == 0


def test_what_has_happened_is_let_go_of_without_a_search_for_garbage() -> None:
    """A run plans hundreds of thousands of things, each of which holds requests and buffers."""
    schedule = Schedule(1)
    world = SimWorld(schedule, 1)

    class Work:
        def __call__(self) -> None: ...

    soon, held, cancelled = Work(), Work(), Work()
    left = [weakref.ref(each) for each in (soon, held, cancelled)]
    gc.disable()
    try:
        world.call_soon(soon)
        schedule.step()
        world.pause()
        world.call_soon(held)
        world.call_later(1, cancelled).cancel()
        schedule.step()
        world.resume()
        run_all(schedule)
        del soon, held, cancelled
        assert [each() for each in left] == [None, None, None]
    finally:
        gc.enable()


def test_nothing_that_a_process_planned_happens_after_its_end() -> None:
    schedule = Schedule(1)
    world = SimWorld(schedule, 1)
    world.call_soon(lambda: pytest.fail("it is gone"))
    world.call_later(1, lambda: pytest.fail("it is gone"))
    world.beside(lambda: pytest.fail("it is gone"), lambda *_: pytest.fail("it is gone"))
    world.end()
    world.call_soon(lambda: pytest.fail("it was gone before"))
    run_all(schedule)


def test_work_is_done_at_one_time_and_heard_of_at_another_between_which_the_process_may_die() -> None:
    schedule, seen = Schedule(1), []
    world = SimWorld(schedule, 1)

    def work() -> int:
        seen.append(schedule.now_us)
        return 7

    def done(result: int | None, error: Exception | None) -> None:
        assert error is None
        seen.append(result)
        seen.append(schedule.now_us)

    world.beside(work, done)
    run_all(schedule)
    done_at, result, heard_at = seen
    assert result == 7
    assert 0 < done_at < heard_at

    world.beside(world.end, lambda *_: pytest.fail("nobody is there to hear it"))
    run_all(schedule)


def test_an_error_of_the_work_fails_its_promise() -> None:
    schedule, seen = Schedule(1), []
    world = SimWorld(schedule, 1)

    def work() -> None:
        raise OSError("the disk is gone")

    world.beside(work, lambda result, error: seen.append((result, str(error))))
    run_all(schedule)
    assert seen == [(None, "the disk is gone")]


def test_what_a_callback_raises_ends_the_run_unless_a_ghost_raised_it() -> None:
    schedule = Schedule(1)
    world = SimWorld(schedule, 1)

    def stumble() -> None:
        raise RuntimeError("unforeseen")

    def die_and_stumble() -> None:
        world.end()
        stumble()

    world.call_soon(stumble)
    with pytest.raises(NodeRaised, match="RuntimeError: unforeseen"):
        schedule.step()
    world.call_soon(die_and_stumble)
    schedule.step()


def test_streams_of_chance_are_the_seeds_and_do_not_touch_each_other() -> None:
    one, other = Schedule(5), Schedule(5)
    one.rng("a").random()
    assert one.rng("b").random() == other.rng("b").random()
    assert Schedule(6).rng("b").random() != other.rng("b").random()


def test_what_an_observer_complains_of_is_not_taken_for_the_nodes_own() -> None:
    schedule = Schedule(1)
    world = SimWorld(schedule, 1)

    def violation() -> None:
        raise Violation("OneLeaderPerEpoch: there are two")

    world.call_soon(violation)
    with pytest.raises(Violation, match="there are two"):
        schedule.step()


def test_a_process_that_is_stopped_does_nothing_and_then_all_that_was_due_in_order() -> None:
    schedule, seen = Schedule(1), []
    world = SimWorld(schedule, 1)
    world.call_later(2, lambda: seen.append("second"))
    world.call_later(1, lambda: seen.append("first"))
    cancelled = world.call_later(3, lambda: pytest.fail("it was cancelled"))
    world.call_later(50, lambda: seen.append("in its time"))
    world.pause()
    while schedule.now_us < 10_000:
        schedule.later(1_000, lambda: None)
        schedule.step()
    assert seen == []
    world.resume()
    cancelled.cancel()
    run_all(schedule)
    assert seen == ["first", "second", "in its time"]
    assert schedule.now_us == 50_000


def test_a_process_that_is_killed_while_it_is_stopped_never_goes_on() -> None:
    schedule = Schedule(1)
    world = SimWorld(schedule, 1)
    world.call_later(1, lambda: pytest.fail("it is gone"))
    world.pause()
    run_all(schedule)
    world.end()
    world.resume()
    run_all(schedule)


def test_a_clock_that_is_wrong_and_fast_takes_its_timers_with_it() -> None:
    schedule, seen = Schedule(1), []
    world = SimWorld(schedule, 1, clock=Clock(ahead_ms=-500, rate=1.25))
    assert world.now_ms() == START_MS - 500
    world.call_later(1000, lambda: seen.append(schedule.now_us))
    run_all(schedule)
    assert seen == [800_000]
    assert world.now_ms() == START_MS + 500
