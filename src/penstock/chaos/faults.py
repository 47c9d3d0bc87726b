"""The faults of a campaign.

A fault lists the brokers that it concerns. While it lasts, they need not answer, and a broker whose disk fails may
exit; it is started again when the fault ends. Brokers, variants and durations are drawn from the campaign's seed.
"""

import signal
from dataclasses import dataclass, field
from random import Random
from typing import ClassVar

from penstock.chaos.brokers import Broker, Brokers
from penstock.chaos.mounts import MemoryMount
from penstock.chaos.namespaces import CLIENTS, Network
from penstock.chaos.switches import Switch

CLOCK_JUMP_S_MAX = 600
"""Largest jump of a clock."""


@dataclass
class FaultContext:
    """What faults act on, and what this machine does not allow."""

    brokers: Brokers
    session_s: float
    """The brokers' session timeout."""
    network: Network | None = None
    network_refusal: str | None = None
    mounts: dict[int, MemoryMount] = field(default_factory=dict)
    """File systems that can really be full, by node id."""


class Fault:
    """One occurrence of a fault; `begin` and `end` are called once each."""

    name: ClassVar[str]
    what: ClassVar[str]
    """Description for `--help` and the documentation."""
    needs_network: ClassVar[bool] = False

    def __init__(self, context: FaultContext, rng: Random, avoid: Broker | None = None) -> None:
        self.context = context
        self.rng = rng
        able = [each for each in self.candidates() if each is not avoid]
        self.broker: Broker = rng.choice(able)
        self.seconds = self.draw_seconds()

    def candidates(self) -> list[Broker]:
        return self.context.brokers.all

    def draw_seconds(self) -> float:
        """Draw the duration: mostly longer than a session, so that other brokers take over."""
        return self.rng.uniform(0.3, 1.5) * self.context.session_s

    @property
    def concerns(self) -> list[Broker]:
        return [self.broker]

    @property
    def subject(self) -> str:
        return f"node {self.broker.id}"

    async def begin(self) -> None:
        for each in self.concerns:
            each.begin_fault()
        await self.strike()

    async def end(self) -> None:
        await self.heal()
        for each in self.concerns:
            each.end_fault()

    async def strike(self) -> None:
        raise NotImplementedError

    async def heal(self) -> None:
        raise NotImplementedError


class Kill(Fault):
    name = "kill"
    what = "SIGKILL of one broker"

    async def strike(self) -> None:
        await self.broker.kill()

    async def heal(self) -> None:
        await self.context.brokers.start(self.broker)


class KillAll(Fault):
    name = "kill-all"
    what = "SIGKILL of all brokers at once"

    def draw_seconds(self) -> float:
        return self.rng.uniform(0.0, 2.0)

    @property
    def concerns(self) -> list[Broker]:
        return self.context.brokers.all

    @property
    def subject(self) -> str:
        return "all nodes"

    async def strike(self) -> None:
        for each in self.concerns:
            each.is_down = True
            each.signal(signal.SIGKILL)
        for each in self.concerns:
            await each.kill()

    async def heal(self) -> None:
        await self.context.brokers.start(*self.concerns)


class Stop(Kill):
    name = "stop"
    what = "clean stop of one broker (SIGTERM)"

    async def strike(self) -> None:
        await self.broker.stop()


class Pause(Fault):
    name = "pause"
    what = "SIGSTOP of one broker, SIGCONT later"

    async def strike(self) -> None:
        self.broker.signal(signal.SIGSTOP)

    async def heal(self) -> None:
        self.broker.signal(signal.SIGCONT)


# -- the network ---------------------------------------------------------------------------------------------


class Cut(Fault):
    name = "cut"
    what = "the network of one broker is cut, both ways"
    needs_network = True

    @property
    def network(self) -> Network:
        assert self.context.network is not None
        return self.context.network

    @property
    def others(self) -> list[int]:
        return [each.id for each in self.context.brokers.all if each is not self.broker]

    async def strike(self) -> None:
        self.network.cut(self.broker.id)

    async def heal(self) -> None:
        self.network.heal(self.broker.id)


class CutOneWay(Cut):
    name = "cut-one-way"
    what = "what one broker sends is lost, or what is sent to it, or what it sends to one other broker"

    def __init__(self, context: FaultContext, rng: Random, avoid: Broker | None = None) -> None:
        super().__init__(context, rng, avoid)
        own = self.broker.id
        everyone = [*self.others, CLIENTS]
        self._way, self._blocks = rng.choice((
            ("outwards", [(own, each) for each in everyone]),
            ("inwards", [(each, own) for each in everyone]),
            ("to one other", [(own, rng.choice(self.others))]),
        ))  # fmt: skip

    @property
    def subject(self) -> str:
        return f"node {self.broker.id}, {self._way}"

    @property
    def concerns(self) -> list[Broker]:
        hit = {number for block in self._blocks for number in block}
        return [each for each in self.context.brokers.all if each.id in hit]

    async def strike(self) -> None:
        for source, target in self._blocks:
            self.network.block(source, target)

    async def heal(self) -> None:
        for source, target in self._blocks:
            self.network.unblock(source, target)


class CutFromPeers(CutOneWay):
    name = "cut-peers"
    what = "one broker and the other brokers do not reach each other; clients reach all of them"

    def __init__(self, context: FaultContext, rng: Random, avoid: Broker | None = None) -> None:
        super().__init__(context, rng, avoid)
        own = self.broker.id
        self._way = "from its peers"
        self._blocks = [(own, each) for each in self.others] + [(each, own) for each in self.others]


# -- disks and clocks ----------------------------------------------------------------------------------------


class DiskFault(Fault):
    """A fault of one broker's disk, by a switch."""

    switches: ClassVar[tuple[Switch, ...]]
    """Switches of which one is drawn."""

    def __init__(self, context: FaultContext, rng: Random, avoid: Broker | None = None) -> None:
        super().__init__(context, rng, avoid)
        self.switch = rng.choice(self.switches)
        self._spares_metadata = rng.random() < 0.5

    def candidates(self) -> list[Broker]:
        return [each for each in self.context.brokers.all if each.switches is not None]

    @property
    def subject(self) -> str:
        spared = ", not its metadata" if self._spares_metadata else ""
        shown = f", {self.switch.name.lower().replace('_', ' ')}" if len(self.switches) > 1 else ""
        return f"node {self.broker.id}{shown}{spared}"

    async def strike(self) -> None:
        assert self.broker.switches is not None
        self.broker.is_disk_failing = True
        self.broker.switches.set(Switch.SPARES_METADATA, int(self._spares_metadata))
        self.broker.switches.set(self.switch)

    async def heal(self) -> None:
        assert self.broker.switches is not None
        self.broker.switches.clear()
        await self.recover()

    async def recover(self) -> None:
        """Start the broker again if it has exited; if it is about to exit, `Brokers.look` starts it."""
        self.broker.disk_is_well()
        if not self.broker.is_running:
            self.broker.gave_up += not self.broker.is_down
            await self.context.brokers.start(self.broker)


class DiskFull(DiskFault):
    name = "disk-full"
    what = "the disk of one broker is full (ENOSPC)"
    switches = (Switch.FULL,)

    def candidates(self) -> list[Broker]:
        return [
            each
            for each in self.context.brokers.all
            if each.switches is not None or each.id in self.context.mounts
        ]

    @property
    def _mount(self) -> MemoryMount | None:
        return self.context.mounts.get(self.broker.id)

    @property
    def subject(self) -> str:
        return super().subject if self._mount is None else f"node {self.broker.id}, a tmpfs"

    async def strike(self) -> None:
        if self._mount is None:
            await super().strike()
        else:
            self.broker.is_disk_failing = True
            self._mount.fill()

    async def heal(self) -> None:
        if self._mount is None:
            await super().heal()
        else:
            self._mount.empty()
            await self.recover()


class DiskSlow(DiskFault):
    name = "disk-slow"
    what = "every sync of one broker takes 0.7 s longer"
    switches = (Switch.SLOW,)


class DiskReadOnly(DiskFault):
    name = "disk-read-only"
    what = "the disk of one broker has become read-only (EROFS)"
    switches = (Switch.READ_ONLY,)


class DiskFails(DiskFault):
    name = "disk-fails"
    what = "reads, writes or syncs of one broker's disk fail (EIO)"
    switches = (Switch.FAIL_READS, Switch.FAIL_WRITES, Switch.FAIL_SYNCS)


class ClockJump(Fault):
    name = "clock"
    what = "the clock of one broker jumps up to ten minutes ahead or back, and returns"

    def __init__(self, context: FaultContext, rng: Random, avoid: Broker | None = None) -> None:
        super().__init__(context, rng, avoid)
        self._jump_s = rng.choice((-1, 1)) * rng.randint(1, CLOCK_JUMP_S_MAX)

    def candidates(self) -> list[Broker]:
        return [each for each in self.context.brokers.all if each.switches is not None]

    @property
    def concerns(self) -> list[Broker]:
        return []  # it keeps answering

    @property
    def subject(self) -> str:
        return f"node {self.broker.id} by {self._jump_s:+d} s"

    async def strike(self) -> None:
        assert self.broker.switches is not None
        self.broker.switches.set(Switch.CLOCK_AHEAD_MS, 1000 * self._jump_s)

    async def heal(self) -> None:
        assert self.broker.switches is not None
        self.broker.switches.set(Switch.CLOCK_AHEAD_MS, 0)


# -- all of them ---------------------------------------------------------------------------------------------

SINGLE: tuple[type[Fault], ...] = (
    Kill,
    KillAll,
    Stop,
    Pause,
    Cut,
    CutOneWay,
    CutFromPeers,
    DiskFull,
    DiskSlow,
    DiskReadOnly,
    DiskFails,
    ClockJump,
)


class TwoAtOnce(Fault):
    name = "two-at-once"
    what = "two of the other faults, of two brokers, one a little after the other"

    def __init__(self, context: FaultContext, rng: Random, avoid: Broker | None = None) -> None:
        kinds = [each for each in SINGLE if each is not KillAll and refusal(each, context) is None]
        self._first = rng.choice(kinds)(context, rng)
        self._second = rng.choice(kinds)(context, rng, self._first.broker)
        super().__init__(context, rng)

    @property
    def subject(self) -> str:
        return " and ".join(f"{each.name} of {each.subject}" for each in (self._first, self._second))

    async def begin(self) -> None:
        await self._first.begin()
        await self._second.begin()

    async def end(self) -> None:
        await self._first.end()
        await self._second.end()


ALL: tuple[type[Fault], ...] = (*SINGLE, TwoAtOnce)
KINDS = {each.name: each for each in ALL}


def refusal(kind: type[Fault], context: FaultContext) -> str | None:
    """Return why this machine does not allow a fault; None if it does."""
    return context.network_refusal if kind.needs_network and context.network is None else None
