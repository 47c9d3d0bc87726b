"""The simulated `World` of one process of a node.

Work beside the loop runs as a whole in one event, and its callback in a later one: in between the loop continues, and
the process may die. After its death none of its scheduled events run. What it does in the rest of the event in which
it died has no effect: the next process gets a copy of the disk made before.

A stopped process (SIGSTOP) runs nothing, its threads included. When it resumes, all events that came due meanwhile run
in order. A machine's clock may be wrong, and run fast or slow, and its timers with it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Protocol, TypeVar

from penstock.base.world import DialTls, StreamProtocol
from penstock.sim.checkers.violation import Violation
from penstock.sim.world.schedule import START_MS, Event, Schedule
from penstock.wire.peers import Address

T = TypeVar("T")

_NOTHING = Event(lambda: None)


class NodeRaised(Exception):
    """A callback of the node raised an exception, which a real loop would at best log."""


@dataclass(frozen=True)
class Clock:
    """A machine's clock."""

    ahead_ms: int = 0
    """Offset from true time at the start of a run."""
    rate: float = 1.0
    """Seconds of this clock per true second."""


TRUE = Clock()


class Dialer(Protocol):
    """The network, as a process uses it."""

    def dial(
        self,
        world: "SimWorld",
        to: Address,
        protocol: StreamProtocol,
        failed: Callable[[bool], None],
    ) -> None: ...


class SimWorld:
    """Implements `base.world.World`."""

    def __init__(
        self,
        schedule: Schedule,
        incarnation: int,
        *,
        host: str = "node-1",
        clock: Clock = TRUE,
        network: Dialer | None = None,
        boot: int = 0,
    ) -> None:
        self.incarnation = incarnation
        """Number of the process, counted over all nodes of a run."""
        self.host = host
        self.is_alive = True
        self.on_run: Callable[[], None] = lambda: None
        """Called before the process runs anything."""
        self.rng = schedule.rng(f"node {incarnation}")
        self._schedule = schedule
        self._clock = clock
        self._network = network
        self._boot = boot
        self._threads: Random = schedule.rng(f"threads {incarnation}")
        self._held: list[Event] | None = None
        """Events that came due while the process is stopped; None while it runs."""
        self.is_beside = False
        """Whether the current work runs on a thread, beside the loop."""
        self._slept_us = 0

    def slept(self, seconds: float) -> None:
        """Extend the duration of the current work on a thread."""
        self._slept_us += round(seconds * 1_000_000)

    def end(self) -> None:
        """End the process immediately."""
        self.is_alive = False

    @property
    def is_paused(self) -> bool:
        return self._held is not None

    def pause(self) -> None:
        if self._held is None:
            self._held = []

    def resume(self) -> None:
        held, self._held = self._held or [], None
        for event in held:
            self._schedule.plan(event, 0)

    def now_ms(self) -> int:
        clock = self._clock
        return START_MS + clock.ahead_ms + int(self._schedule.now_us * clock.rate) // 1000

    def clock_ns(self) -> int:
        costs = self._schedule.costs
        spent_ns = 0 if costs is None else costs.us * 1000
        return int(self._schedule.now_us * self._clock.rate) * 1000 + 1 + spent_ns

    def process(self) -> None:
        return None

    def boot_id(self) -> str:
        return f"{self.host}, boot {self._boot}"

    def call_soon(self, call: Callable[[], None]) -> None:
        self.later(0, call)

    def call_later(self, delay_ms: float, call: Callable[[], None]) -> Event:
        return self.later(round(delay_ms * 1000 / self._clock.rate), call)

    def later(self, delay_us: int, call: Callable[[], None]) -> Event:
        """As `call_later`, in true microseconds."""
        if not self.is_alive:
            return _NOTHING
        event = ProcessEvent(self, call)
        self._schedule.plan(event, delay_us)
        return event

    def holds(self, event: Event) -> bool:
        """Hold back an event that is due while the process is stopped; return whether it was held."""
        if self._held is None or not self.is_alive:
            return False
        self._held.append(event)
        return True

    def run(self, call: Callable[[], None]) -> None:
        """Run a call as this process, if it is alive."""
        if not self.is_alive:
            return
        self.on_run()
        costs = self._schedule.costs
        if costs is not None:
            costs.begin()
        try:
            call()
            if costs is not None:
                costs.end(self.host)
        except Violation:
            raise  # raised by a checker
        except Exception as error:
            # After its death the process may raise anything; it has no effect.
            if self.is_alive:
                raise NodeRaised(f"{type(error).__name__}: {error}") from error

    def beside(self, work: Callable[[], T], done: Callable[[T | None, Exception | None], None]) -> None:
        def do() -> None:
            self.is_beside, self._slept_us = True, 0
            try:
                result = work()
            except Exception as error:
                raised = error
                self.later(self._slept_us + self._thread_us(), lambda: done(None, raised))
            else:
                self.later(self._slept_us + self._thread_us(), lambda: done(result, None))
            finally:
                self.is_beside = False

        self.later(self._thread_us(), do)

    def sync_file(self, file: object, done: Callable[[OSError | None], None]) -> bool:
        """Return False: simulated disks are synced on threads."""
        return False

    def in_child(self, work: Callable[[], T], done: Callable[[T | None, Exception | None], None]) -> None:
        self.beside(work, done)

    def in_helper(
        self, work: Callable[[], T], done: Callable[[T | None, Exception | None], None], lane: str = ""
    ) -> None:
        self.beside(work, done)

    def dial(
        self,
        host: str,
        port: int,
        protocol: StreamProtocol,
        failed: Callable[[bool], None],
        tls: DialTls | None = None,
    ) -> None:
        assert self._network is not None, "this world has no network"
        assert tls is None, "the simulated network has no TLS; nodes use SASL_PLAINTEXT"
        if self.is_alive:
            self._network.dial(self, Address(host, port), protocol, failed)

    def _thread_us(self) -> int:
        """Draw the delay of a thread's start or callback: usually short, sometimes very long."""
        drawn = self._threads.random()
        if drawn < 0.7:
            return self._threads.randrange(20, 800)
        if drawn < 0.98:
            return self._threads.randrange(800, 8_000)
        return self._threads.randrange(8_000, 120_000)


class ProcessEvent(Event):
    """An event of a process. It may be cancelled while it is held."""

    __slots__ = ("_world",)

    def __init__(self, world: SimWorld, call: Callable[[], None]) -> None:
        self.call = call
        self._world = world

    def happen(self) -> None:
        call = self.call
        if call is not None and not self._world.holds(self):
            self.call = None
            self._world.run(call)
