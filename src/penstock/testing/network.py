"""Network partitions between the nodes of a cluster in one process.

Each connection between nodes is opened by one of them. It is enough to block that node's side of the connection: it
drops what is sent and received, as if packets were lost. A new connection across a cut is neither made nor refused.
When the cut is healed, the affected connections break, and nodes reconnect.
"""

import asyncio
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, cast

from penstock.base.world import DialTls, StreamProtocol, World

LOOK_S_MAX: Final = 30.0
"""How long a node may take to apply a change of the network."""


class Network:
    """Which nodes reach each other. Written by the test's thread, read by the nodes' threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._node_of_port: dict[int, int] = {}
        self._cuts: frozenset[frozenset[int]] = frozenset()
        self._sides: dict[DiallingWorld, Callable[[Callable[[], None]], None]] = {}
        """Running nodes, each with a function that calls another one on its thread."""

    def place(self, ports: Mapping[int, int]) -> None:
        """Register which node listens on each port."""
        self._node_of_port = dict(ports)

    def partition(self, *sides: Iterable[int]) -> None:
        """Partition the network: nodes reach only nodes on their side; a node on no side reaches all."""
        groups = [frozenset(each) for each in sides]
        self._set(
            frozenset(
                frozenset((one, other))
                for place, group in enumerate(groups)
                for later in groups[place + 1 :]
                for one in group
                for other in later
                if one != other
            )
        )

    def heal(self) -> None:
        self._set(frozenset())

    def _set(self, cuts: frozenset[frozenset[int]]) -> None:
        with self._lock:
            self._cuts = cuts
            sides = dict(self._sides)
        looked = []
        for side, call in sides.items():
            done = threading.Event()

            def look(side: DiallingWorld = side, done: threading.Event = done) -> None:
                side.look()
                done.set()

            with suppress(Exception):  # a node that has failed has no connections
                call(look)
                looked.append(done)
        for done in looked:
            done.wait(LOOK_S_MAX)

    def is_cut(self, node: int, port: int) -> bool:
        other = self._node_of_port.get(port)
        return other is not None and frozenset((node, other)) in self._cuts

    def begin(self, side: "DiallingWorld", call: Callable[[Callable[[], None]], None]) -> None:
        with self._lock:
            self._sides[side] = call

    def end(self, side: "DiallingWorld") -> None:
        with self._lock:
            self._sides.pop(side, None)


class DiallingWorld:
    """A node's `World` whose connections to other nodes go through a `Network`."""

    def __init__(self, inner: World, network: Network, node: int) -> None:
        self._inner = inner
        self._network = network
        self._node = node
        self._open: dict[_Wire, None] = {}
        self._unanswered: list[tuple[int, Callable[[bool], None]]] = []
        """Connection attempts across a cut: their port, and the callback for a failure."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def dial(
        self,
        host: str,
        port: int,
        protocol: StreamProtocol,
        failed: Callable[[bool], None],
        tls: DialTls | None = None,
    ) -> None:
        if self._network.is_cut(self._node, port):
            self._unanswered.append((port, failed))
            return
        wire = _Wire(protocol, port, self._over)
        self._open[wire] = None

        def not_made(refused: bool) -> None:
            self._over(wire)
            if self._network.is_cut(self._node, port):
                self._unanswered.append((port, failed))
            else:
                failed(refused)

        self._inner.dial(host, port, wire, not_made, tls)

    def _over(self, wire: "_Wire") -> None:
        self._open.pop(wire, None)

    def look(self) -> None:
        """Cuts have changed."""
        for wire in list(self._open):
            if self._network.is_cut(self._node, wire.port):
                wire.cut()
            elif wire.is_cut:
                wire.abort()
        given_up = [each for each in self._unanswered if not self._network.is_cut(self._node, each[0])]
        self._unanswered = [each for each in self._unanswered if each not in given_up]
        for _, failed in given_up:
            failed(False)


class _Wire(asyncio.BufferedProtocol):
    """Sits between a connection's transport and its protocol. Once it is cut, it drops everything both ways."""

    def __init__(self, protocol: StreamProtocol, port: int, over: Callable[["_Wire"], None]) -> None:
        self.port = port
        self.is_cut = False
        self._protocol = protocol
        self._over = over
        self._transport: asyncio.Transport | None = None

    def cut(self) -> None:
        self.is_cut = True
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # -- what the transport calls ----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self.is_cut:
            self._transport.pause_reading()
        self._protocol.connection_made(cast(asyncio.BaseTransport, _Sending(self, self._transport)))

    def get_buffer(self, sizehint: int) -> Any:
        return self._protocol.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        if not self.is_cut:
            self._protocol.buffer_updated(nbytes)

    def eof_received(self) -> bool | None:
        return self._protocol.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._over(self)
        self._protocol.connection_lost(exc)

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()


class _Sending:
    """The transport as the protocol sees it."""

    def __init__(self, wire: _Wire, transport: asyncio.Transport) -> None:
        self._wire = wire
        self._transport = transport

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: Any) -> None:
        if not self._wire.is_cut:
            self._transport.write(data)

    def writelines(self, data: Any) -> None:
        if not self._wire.is_cut:
            self._transport.writelines(data)
