"""Turns for long work: one after the other, and others in between."""

from typing import Any

import pytest
from tests.worlds import StillWorld

from penstock.base.promise import Promise
from penstock.base.steps import RunningSteps, Steps
from penstock.gateway.shared.fair_queue import SLICE_NS, FairQueue


class BusyWorld(StillWorld):
    """In which work takes time."""

    def __init__(self) -> None:
        super().__init__()
        self.worked_ns = 0

    def clock_ns(self) -> int:
        return super().clock_ns() + self.worked_ns


class Reader:
    """A client, and long work for it."""

    def __init__(self, scene: "Scene", name: str, portion_ns: int) -> None:
        self._scene = scene
        self._name = name
        self._portion_ns = portion_ns
        self._room: Promise[None] = Promise()
        self._room.resolve(None)
        self.running = RunningSteps(self._work(), print, print)

    def ready(self) -> Any:
        return self._room

    def write(self, data: bytes) -> None: ...

    def _work(self) -> Steps[None]:
        while True:
            yield from self._scene.turns.to_write(self)
            self._scene.done.append(self._name)
            self._scene.world.worked_ns += self._portion_ns

    def stop_reading(self) -> None:
        self._room = Promise()

    def go_on_reading(self) -> None:
        self._room.resolve(None)


class Scene:
    def __init__(self) -> None:
        self.world = BusyWorld()
        self.turns = FairQueue(self.world)
        self.done: list[str] = []

    def reader(self, name: str, portion_ns: int = SLICE_NS) -> Reader:
        return Reader(self, name, portion_ns)

    def round(self) -> str:
        """Whose turns they were before others had theirs."""
        before = len(self.done)
        self.world.step()
        return "".join(self.done[before:])


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_however_many_there_are_others_wait_for_one_portion(scene: Scene) -> None:
    for name in "abcde":
        scene.reader(name)
    assert scene.done == []
    assert [scene.round() for _ in range(7)] == ["a", "b", "c", "d", "e", "a", "b"]


def test_short_portions_share_a_round(scene: Scene) -> None:
    for name in "abc":
        scene.reader(name, SLICE_NS // 2)
    assert [scene.round() for _ in range(3)] == ["ab", "ca", "bc"]


def test_no_stream_has_two_turns_in_a_round(scene: Scene) -> None:
    scene.reader("a", 0)
    assert [scene.round() for _ in range(2)] == ["a", "a"]


def test_client_without_room_has_no_turn_until_it_reads(scene: Scene) -> None:
    slow, quick = scene.reader("s"), scene.reader("q")
    slow.stop_reading()
    assert "".join(scene.round() for _ in range(5)) == "qqqqq"
    slow.go_on_reading()
    assert "".join(scene.round() for _ in range(4)) == "qsqs"
    slow.stop_reading()
    quick.stop_reading()
    while scene.world.step():
        pass
    assert scene.world.is_idle


def test_client_that_left_costs_no_turn(scene: Scene) -> None:
    gone = scene.reader("g")
    scene.reader("a")
    gone.running.cancel()
    assert [scene.round() for _ in range(2)] == ["a", "a"]
