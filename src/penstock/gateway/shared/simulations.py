"""Runs of the simulator for the console: one at a time, in a process of its own.

The simulator is above this package, and runs whole clusters: it must not be loaded into a node. So a run is the
command `penstock sim run` in a process with low priority, whose output is read here. It is bounded in virtual time,
in seconds and in bytes, and killed when nobody waits for it any more.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.promise import Promise
from penstock.base.steps import Steps
from penstock.gateway.shared.login import Throttled

EVENTS_MAX: Final = 20_000
"""Events that are returned of one run; half a minute of three nodes has up to five thousand."""

RETRY_S: Final = 5


class Ended(NamedTuple):
    """A command that has ended."""

    status: int
    output: bytes
    complaint: str
    """What it wrote to standard error, or why it was ended."""


class StartCommand(Protocol):
    def __call__(self, arguments: Sequence[str], done: Callable[[Ended], None]) -> Callable[[], None]:
        """Run `penstock` with arguments in a process. Returns what ends it early; `done` is then not called."""


class SimulatedEvent(NamedTuple):
    us: int
    text: str


class SimulatedRun(NamedTuple):
    result: dict[str, Any]
    """As `penstock sim run --json` has it."""
    events: list[SimulatedEvent]
    is_cut: bool
    """Whether there were more events than are returned."""


class Simulations:
    def __init__(self, start: StartCommand | None) -> None:
        """`start` is None where no process can be started: in the simulator itself."""
        self._start = start
        self._is_running = False

    def run(self, seed: int, seconds: int, nodes: int, extras: Sequence[str]) -> Steps[SimulatedRun]:
        if self._start is None:
            raise KafkaError("this node cannot start the simulator", ErrorCode.OPERATION_NOT_ATTEMPTED)
        if self._is_running:
            raise Throttled("this node runs another simulation, and runs one at a time", RETRY_S)
        arguments = ["sim", "run", "--seed", str(seed), "--minutes", str(seconds / 60), "--nodes", str(nodes)]
        arguments += [word for each in extras for word in ("--with", each)]
        ended: Promise[Ended] = Promise()
        self._is_running = True
        cancel = self._start([*arguments, "--trace", "--json"], ended.resolve)
        try:
            found: Ended = yield ended
        finally:
            self._is_running = False
            cancel()
        return parsed(found)


def parsed(found: Ended) -> SimulatedRun:
    """Lines of the trace, with the virtual time first, and the result as the last line."""
    *trace, last = found.output.decode("utf-8", "replace").splitlines() or [""]
    try:
        result = msgspec.json.decode(last, type=dict[str, Any])
    except msgspec.DecodeError:
        raise KafkaError(f"the simulation failed: {found.complaint.strip()[-500:]}") from None
    events: list[SimulatedEvent] = []
    for line in trace:
        time, _, text = line.strip().partition(" ")
        if time.isdecimal():
            events.append(SimulatedEvent(int(time), text))
        elif events:  # an event of several lines
            events[-1] = events[-1]._replace(text=f"{events[-1].text}\n{line}")
    return SimulatedRun(result, events[:EVENTS_MAX], len(events) > EVENTS_MAX)
