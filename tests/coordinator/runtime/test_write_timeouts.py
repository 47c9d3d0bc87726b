"""Who waits for a write, and for how long."""

from tests.worlds import StillWorld

from penstock.base.errors import KafkaError
from penstock.coordinator.runtime.write_timeouts import Done, WriteTimeouts


class Desk:
    """Writes by name, and what those who wait for them are told."""

    def __init__(self, limit_ms: int = 5000) -> None:
        self.world = StillWorld(start_ms=1000)
        self.timeouts = WriteTimeouts(self.world, limit_ms)
        self.told: list[str] = []

    def wait(self, name: str) -> Done:
        def done(error: KafkaError | None) -> None:
            self.told.append(f"{name}: done" if error is None else f"{name}: {error}")

        return self.timeouts.limited(done, lambda: self.told.append(f"{name}: overdue"))


def test_who_is_done_in_time_hears_of_nothing_else() -> None:
    desk = Desk()
    done = desk.wait("one")
    desk.world.advance(4999)
    done(None)
    desk.world.advance(10_000)
    assert desk.told == ["one: done"]
    assert desk.world.is_idle, "nobody is waited for"


def test_a_request_that_waits_too_long_gets_one_error() -> None:
    desk = Desk(limit_ms=700)
    done = desk.wait("one")
    desk.world.advance(699)
    assert desk.told == []
    desk.world.advance(1)
    assert desk.told == ["one: overdue"]
    desk.world.advance(10_000)
    done(KafkaError("the disk is gone"))
    assert desk.told == ["one: overdue", "one: the disk is gone"]


def test_each_has_its_own_time() -> None:
    """The timer was set for one who is done when it fires."""
    desk = Desk()
    first = desk.wait("first")
    desk.world.advance(3000)
    desk.wait("second")
    desk.world.advance(1000)
    desk.wait("third")
    first(None)
    desk.world.advance(3999)
    assert desk.told == ["first: done"]
    desk.world.advance(1)
    assert desk.told == ["first: done", "second: overdue"]
    desk.world.advance(1000)
    assert desk.told == ["first: done", "second: overdue", "third: overdue"]
    assert desk.world.is_idle


def test_after_a_pause_all_waiting_calls_are_answered_in_order() -> None:
    desk = Desk()
    desk.wait("first")
    desk.world.advance(1)
    desk.wait("second")
    desk.world.stall(60_000)
    desk.wait("third")
    desk.world.advance(0)
    assert desk.told == ["first: overdue", "second: overdue"]


def test_who_is_done_because_another_was_told_is_not_overdue() -> None:
    desk = Desk()
    desk.timeouts.limited(lambda _: None, lambda: done(None))
    done = desk.wait("second")
    desk.world.advance(5000)
    assert desk.told == ["second: done"]
