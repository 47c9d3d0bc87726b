"""The simulated network: hosts, listening ports and connections.

As with TCP, bytes of one connection are not lost, duplicated or reordered. Packet loss shows as it does to users of
TCP: bytes arrive late or stall, connections break, and clients repeat requests on new connections while the first
request may still be in flight. The network can be cut between two sets of hosts, also in one direction only: bytes
wait, and new connections fail, until it is healed.

For cuts, all clients are on one host, `CLIENTS`.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import NamedTuple

from penstock.base.world import DIAL_MS_MAX, StreamProtocol
from penstock.sim.clients.ports import NetworkClient
from penstock.sim.world.process_world import SimWorld
from penstock.sim.world.schedule import Schedule
from penstock.sim.world.tcp import KERNEL_BYTES_MAX, ClientEndpoint, Endpoint, Link
from penstock.sim.world.transport import NodeTransport
from penstock.wire.peers import Address

__all__ = ["CLIENTS", "KERNEL_BYTES_MAX", "Link", "Network", "NetworkClient"]

CLIENTS = "clients"

SYN_RETRY_US = (1_000_000, 2_000_000, 4_000_000)
"""Delays between unanswered SYN packets of a client, as in Linux; after the last one the connection attempt fails."""

NODE_SYN_RETRY_US = (1_000_000, DIAL_MS_MAX * 1000 - 1_000_000)
"""The same of a node: its attempt ends `DIAL_MS_MAX` after it began."""

EPHEMERAL_PORT_MIN = 20_000


class Listener(NamedTuple):
    """A process that listens on a port."""

    world: SimWorld
    accept: Callable[[], asyncio.BufferedProtocol]


class Network:
    def __init__(self, schedule: Schedule, trace: Callable[[str], None]) -> None:
        self.schedule = schedule
        self.trace = trace
        self.rng = schedule.rng("network")
        self.is_calm = False
        """No more resets and stalls: set at the end of a run, when clients must finish."""
        self.hiccups = 0.01
        """Probability that a piece of a stream is delayed for long."""
        self.splits = 0.3
        """Probability that only a part of the bytes in flight arrives."""
        self._listeners: dict[Address, Listener] = {}
        self._unpowered: set[str] = set()
        """Hosts without power, which do not even refuse connections."""
        self._cut: set[tuple[str, str]] = set()
        """Pairs of source and target host between which nothing arrives."""
        self._links: list[Link] = []
        self._link_count = 0

    # -- processes -------------------------------------------------------------------------------------

    def listen(self, world: SimWorld, port: int, accept: Callable[[], asyncio.BufferedProtocol]) -> None:
        self._listeners[Address(world.host, port)] = Listener(world, accept)

    def stop_listening(self, host: str) -> None:
        for address in [each for each in self._listeners if each.host == host]:
            del self._listeners[address]

    def powered(self, host: str) -> None:
        """A machine runs again: it resets connections that its peers kept open over the power cut."""
        self._unpowered.discard(host)
        for link in self._links:
            if host in (link.near.host, link.far.host):
                self.schedule.later(self.rng.randrange(2_000_000), lambda each=link: each.break_silence(host))  # type: ignore[misc]

    def node_died(self, host: str, *, is_power_cut: bool) -> None:
        """The process of a host has ended: end its connections."""
        self.stop_listening(host)
        if is_power_cut:
            self._unpowered.add(host)
        for link in self._links:
            if host in (link.near.host, link.far.host):
                link.lose(host, is_power_cut=is_power_cut)
        self._forget_old()

    def resumed(self, host: str) -> None:
        """A paused process runs again."""
        for link in self._links:
            if host in (link.near.host, link.far.host):
                link.nudge_all()

    # -- connecting ------------------------------------------------------------------------------------

    def connect(self, caller: NetworkClient, to: Address) -> None:
        """Connect a client; it is notified of the result later."""

        def arrived(listener: Listener) -> None:
            end = ClientEndpoint(caller, CLIENTS)
            self._join(end, to, listener)
            self.soon(end.connected)

        self._attempt(CLIENTS, to, arrived, lambda _: caller.refused(), SYN_RETRY_US)

    def dial(
        self,
        world: SimWorld,
        to: Address,
        protocol: StreamProtocol,
        failed: Callable[[bool], None],
    ) -> None:
        """Connect a process of a node."""

        def arrived(listener: Listener) -> None:
            if not world.is_alive:
                return
            end = NodeTransport(world, Address(world.host, self._next_port()), to)
            self._join(end, to, listener)

            def connected() -> None:
                if end.is_over:
                    failed(False)
                else:
                    end.meet(protocol)

            world.later(self.delay_us(), connected)

        def not_connected(refused: bool) -> None:
            world.later(0, lambda: failed(refused))

        self._attempt(world.host, to, arrived, not_connected, NODE_SYN_RETRY_US)

    def _attempt(
        self,
        host: str,
        to: Address,
        arrived: Callable[[Listener], None],
        failed: Callable[[bool], None],
        retry_us: tuple[int, ...],
    ) -> None:
        patience = list(retry_us)

        def attempt() -> None:
            if to.host in self._unpowered or self.is_cut(host, to.host) or self.is_cut(to.host, host):
                if patience:
                    self.schedule.later(patience.pop(0), attempt)
                else:
                    failed(False)
                return
            listener = self._listeners.get(to)
            if listener is None or not listener.world.is_alive:
                self.soon(lambda: failed(True))
            else:
                arrived(listener)

        self.soon(attempt)

    def _join(self, near: Endpoint, to: Address, listener: Listener) -> None:
        far = NodeTransport(listener.world, to, Address(near.host, self._next_port()))
        self._link_count += 1
        link = Link(self, self._link_count, near, far)
        self._forget_old()
        self._links.append(link)

        def meet() -> None:
            if not far.is_over:
                far.meet(listener.accept())

        listener.world.later(0, meet)

    def _next_port(self) -> int:
        return EPHEMERAL_PORT_MIN + self._link_count

    def _forget_old(self) -> None:
        self._links = [link for link in self._links if not link.is_over]

    # -- faults ----------------------------------------------------------------------------------------

    @property
    def is_whole(self) -> bool:
        """Return whether no hosts are cut from each other."""
        return not self._cut

    @property
    def is_prompt(self) -> bool:
        """Return whether everything arrives without a long delay."""
        return self.is_whole and (self.is_calm or not self.hiccups)

    def is_cut(self, source: str, target: str) -> bool:
        return bool(self._cut) and (source, target) in self._cut

    def cut(self, sources: Iterable[str], targets: Iterable[str]) -> None:
        """Stop all traffic from the sources to the targets."""
        self._cut |= {(source, target) for source in sources for target in targets}

    def heal(self, *, breaks: float = 0.0) -> None:
        """Restore all traffic; each connection over a cut is reset with probability `breaks`."""
        cut, self._cut = self._cut, set()
        for link in self._links:
            hosts = link.near.host, link.far.host
            if not link.is_over and (hosts in cut or hosts[::-1] in cut):
                if self.rng.random() < breaks:
                    link.reset()
                else:
                    link.nudge_all()

    def reset_one(self) -> None:
        """Reset an open connection, if there is one."""
        open_links = [link for link in self._links if not link.is_over]
        if open_links and not self.is_calm:
            self.rng.choice(open_links).reset()

    # -- chance ----------------------------------------------------------------------------------------

    def soon(self, call: Callable[[], None]) -> None:
        self.schedule.later(self.delay_us(), call)

    def delay_us(self) -> int:
        """Draw a delay, in steps, so that several messages arrive in one tick of a node's loop."""
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
        """Draw how many of the available bytes arrive together."""
        drawn = self.rng.random()
        if drawn >= self.splits or available <= 1:
            return available
        if drawn < self.splits / 3:
            return min(available, self.rng.randrange(1, 9))
        return self.rng.randrange(1, available + 1)
