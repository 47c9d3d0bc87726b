"""Who reaches whom: hosts, the ports that processes listen on, and what lies between.

Bytes of one connection are neither lost, doubled nor swapped: TCP sees to that. What a network that drops, doubles and
reorders does to those who use TCP is what happens here: bytes come late or stall, connections break, and what was
asked on them is asked again on others, while the first question is still on its way. Between two sets of hosts the
network may be cut, also in one direction alone: bytes wait, and nobody new is connected, until it is healed.

Clients are at a host of their own, `CLIENTS`, as far as cuts go.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import NamedTuple

from penstock.base.world import StreamProtocol
from penstock.sim.clients.ports import NetworkClient
from penstock.sim.world.process_world import SimWorld
from penstock.sim.world.schedule import Schedule
from penstock.sim.world.tcp import KERNEL_BYTES_MAX, ClientEndpoint, Endpoint, Link
from penstock.sim.world.transport import NodeTransport
from penstock.wire.peers import Address

__all__ = ["CLIENTS", "KERNEL_BYTES_MAX", "Link", "Network", "NetworkClient"]

CLIENTS = "clients"

SYN_RETRY_US = (1_000_000, 2_000_000, 4_000_000)
"""When who dials and hears nothing tries again, as Linux does; after the last it gives up."""

EPHEMERAL_PORT_MIN = 20_000


class Listener(NamedTuple):
    """A port that a process listens on."""

    world: SimWorld
    accept: Callable[[], asyncio.BufferedProtocol]


class Network:
    def __init__(self, schedule: Schedule, trace: Callable[[str], None]) -> None:
        self.schedule = schedule
        self.trace = trace
        self.rng = schedule.rng("network")
        self.is_calm = False
        """Nothing is reset any more and nobody stops reading: for the end of a run, when everyone is to finish."""
        self.hiccups = 0.01
        """How likely a piece of a stream is held up for long."""
        self.splits = 0.3
        """How likely only a part of what is there arrives."""
        self._doors: dict[Address, Listener] = {}
        self._dark: set[str] = set()
        """Hosts without power: nobody there even refuses."""
        self._cut: set[tuple[str, str]] = set()
        """From which host to which nothing comes through."""
        self._links: list[Link] = []
        self._link_count = 0

    # -- processes -------------------------------------------------------------------------------------

    def listen(self, world: SimWorld, port: int, accept: Callable[[], asyncio.BufferedProtocol]) -> None:
        self._doors[Address(world.host, port)] = Listener(world, accept)

    def stop_listening(self, host: str) -> None:
        for address in [each for each in self._doors if each.host == host]:
            del self._doors[address]

    def powered(self, host: str) -> None:
        """The machine runs; what it knew of before a power cut, it tells who still believes in it that it is over."""
        self._dark.discard(host)
        for link in self._links:
            if host in (link.near.host, link.far.host):
                self.schedule.later(self.rng.randrange(2_000_000), lambda each=link: each.break_silence(host))  # type: ignore[misc]

    def node_died(self, host: str, *, is_power_cut: bool) -> None:
        """The process behind all connections of a host is gone; its world has ended already."""
        self.stop_listening(host)
        if is_power_cut:
            self._dark.add(host)
        for link in self._links:
            if host in (link.near.host, link.far.host):
                link.lose(host, is_power_cut=is_power_cut)
        self._forget_old()

    def resumed(self, host: str) -> None:
        """The process at a host goes on."""
        for link in self._links:
            if host in (link.near.host, link.far.host):
                link.nudge_all()

    # -- connecting ------------------------------------------------------------------------------------

    def connect(self, caller: NetworkClient, to: Address) -> None:
        """A client dials; it is told how it went after a while."""

        def arrived(door: Listener) -> None:
            end = ClientEndpoint(caller, CLIENTS)
            self._join(end, to, door)
            self.soon(end.connected)

        self._knock(CLIENTS, to, arrived, lambda _: caller.refused())

    def dial(
        self,
        world: SimWorld,
        to: Address,
        protocol: StreamProtocol,
        failed: Callable[[bool], None],
    ) -> None:
        """The same for a process of a node."""

        def arrived(door: Listener) -> None:
            if not world.is_alive:
                return
            end = NodeTransport(world, Address(world.host, self._next_port()), to)
            self._join(end, to, door)

            def connected() -> None:
                if end.is_over:
                    failed(False)
                else:
                    end.meet(protocol)

            world.later(self.delay_us(), connected)

        def not_connected(refused: bool) -> None:
            world.later(0, lambda: failed(refused))

        self._knock(world.host, to, arrived, not_connected)

    def _knock(
        self, host: str, to: Address, arrived: Callable[[Listener], None], failed: Callable[[bool], None]
    ) -> None:
        patience = list(SYN_RETRY_US)

        def knock() -> None:
            if to.host in self._dark or self.is_cut(host, to.host) or self.is_cut(to.host, host):
                if patience:
                    self.schedule.later(patience.pop(0), knock)
                else:
                    failed(False)
                return
            door = self._doors.get(to)
            if door is None or not door.world.is_alive:
                self.soon(lambda: failed(True))
            else:
                arrived(door)

        self.soon(knock)

    def _join(self, near: Endpoint, to: Address, door: Listener) -> None:
        far = NodeTransport(door.world, to, Address(near.host, self._next_port()))
        self._link_count += 1
        link = Link(self, self._link_count, near, far)
        self._forget_old()
        self._links.append(link)

        def meet() -> None:
            if not far.is_over:
                far.meet(door.accept())

        door.world.later(0, meet)

    def _next_port(self) -> int:
        return EPHEMERAL_PORT_MIN + self._link_count

    def _forget_old(self) -> None:
        self._links = [link for link in self._links if not link.is_over]

    # -- what goes wrong -------------------------------------------------------------------------------

    @property
    def is_whole(self) -> bool:
        """Whether nobody is cut from anybody."""
        return not self._cut

    def is_cut(self, source: str, target: str) -> bool:
        return bool(self._cut) and (source, target) in self._cut

    def cut(self, sources: Iterable[str], targets: Iterable[str]) -> None:
        """From now on nothing comes through this way."""
        self._cut |= {(source, target) for source in sources for target in targets}

    def heal(self, *, breaks: float = 0.0) -> None:
        """Everything comes through again; of the connections that stood, some have been given up meanwhile."""
        cut, self._cut = self._cut, set()
        for link in self._links:
            hosts = link.near.host, link.far.host
            if not link.is_over and (hosts in cut or hosts[::-1] in cut):
                if self.rng.random() < breaks:
                    link.reset()
                else:
                    link.nudge_all()

    def reset_one(self) -> None:
        """Break a connection that somebody uses, if there is one."""
        open_links = [link for link in self._links if not link.is_over]
        if open_links and not self.is_calm:
            self.rng.choice(open_links).reset()

    # -- chance ----------------------------------------------------------------------------------------

    def soon(self, call: Callable[[], None]) -> None:
        self.schedule.later(self.delay_us(), call)

    def delay_us(self) -> int:
        """In steps, so that several things arrive in one turn of the node's loop."""
        drawn = self.rng.random()
        if drawn < 0.6:
            return 100
        if drawn < 0.95:
            return 100 * self.rng.randrange(1, 20)
        return 1000 * self.rng.randrange(1, 40)

    def hiccup_us(self) -> int:
        if self.is_calm or self.rng.random() >= self.hiccups:
            return 0
        return self.rng.randrange(50_000, 800_000)

    def piece(self, available: int) -> int:
        """How many of the bytes there arrive at once."""
        drawn = self.rng.random()
        if drawn >= self.splits or available <= 1:
            return available
        if drawn < self.splits / 3:
            return min(available, self.rng.randrange(1, 9))
        return self.rng.randrange(1, available + 1)
