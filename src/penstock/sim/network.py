"""Connections between clients and the node, as TCP gives them: in order, but late, in pieces, and not for ever.

    client --send--> [ bytes on their way ] --> get_buffer, buffer_updated      the node's protocol
    client <-------- [ in the kernel ] <-- [ not taken yet ] <-- write          the node's transport

What a transport is given, the kernel may take at once or later. Until it does the transport holds on to the
buffer itself, not to a copy, as uvloop does: a buffer that is used again too early shows.

A link ends in one of these ways: either side closes, which the other learns after all bytes; the network resets
it, which loses bytes on both ways; the node's process is killed, and what the kernel has may still arrive, to any
byte; the machine loses power, which may be the same, or silence until it is back.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from random import Random
from typing import Any, Protocol

from penstock.sim.schedule import Event, Schedule
from penstock.sim.world import SimWorld

KERNEL_BYTES_MAX = 64 * 1024
"""What the kernel takes before a transport has to wait."""

HIGH_WATER_BYTES = 64 * 1024
"""asyncio's own: with more in a transport the protocol is told to pause."""

NODE_ADDRESS = ("127.0.0.1", 9092)

Buffer = bytes | bytearray | memoryview


class Caller(Protocol):
    """A client, as the network sees it."""

    def connected(self, link: "Link") -> None: ...

    def refused(self) -> None: ...

    def received(self, link: "Link", data: bytes) -> None: ...

    def closed(self, link: "Link") -> None: ...


class Network:
    def __init__(self, schedule: Schedule, trace: Callable[[str], None]) -> None:
        self.schedule = schedule
        self.trace = trace
        self.rng = schedule.rng("network")
        self.is_calm = False
        """Nothing is reset any more and nobody stops reading: for the end of a run, when everyone is to finish."""
        self._accept: Callable[[], asyncio.BufferedProtocol] | None = None
        self._world: SimWorld | None = None
        self._links: list[Link] = []
        self._link_count = 0

    # -- the node's side -------------------------------------------------------------------------------

    def listen(self, world: SimWorld, accept: Callable[[], asyncio.BufferedProtocol]) -> None:
        self._world, self._accept = world, accept
        for link in self._links:
            if link.is_silent:
                # The machine is back, and knows nothing of a connection that a client believes in.
                self.schedule.later(self.rng.randrange(2_000_000), link._tell_closed)

    def stop_listening(self) -> None:
        self._world = self._accept = None

    def node_died(self, *, is_power_cut: bool) -> None:
        """The process behind all connections is gone; its world has ended already."""
        self.stop_listening()
        for link in self._links:
            link._node_died(is_power_cut)
        self._links = [link for link in self._links if not link.is_over]

    # -- the clients' side -----------------------------------------------------------------------------

    def connect(self, caller: Caller) -> None:
        """Dial; the caller is told how it went after a while."""
        self.schedule.later(self.delay_us(), lambda: self._connect(caller))

    def _connect(self, caller: Caller) -> None:
        world, accept = self._world, self._accept
        if world is None or accept is None or not world.is_alive:
            self.schedule.later(self.delay_us(), caller.refused)
            return
        self._link_count += 1
        link = Link(self, world, caller, self._link_count)
        self._links = [each for each in self._links if not each.is_over]
        self._links.append(link)
        world.run(lambda: link._meet(accept()))
        self.schedule.later(self.delay_us(), link._connected)

    def reset_one(self) -> None:
        """Break a connection that somebody uses, if there is one."""
        open_links = [link for link in self._links if not link.is_over]
        if open_links and not self.is_calm:
            self.rng.choice(open_links).reset()

    # -- chance ----------------------------------------------------------------------------------------

    def delay_us(self) -> int:
        """In steps, so that several things arrive in one turn of the node's loop."""
        drawn = self.rng.random()
        if drawn < 0.6:
            return 100
        if drawn < 0.95:
            return 100 * self.rng.randrange(1, 20)
        return 1000 * self.rng.randrange(1, 40)

    def piece(self, available: int) -> int:
        """How many of the bytes there arrive at once."""
        drawn = self.rng.random()
        if drawn < 0.7 or available <= 1:
            return available
        if drawn < 0.8:
            return min(available, self.rng.randrange(1, 9))
        return self.rng.randrange(1, available + 1)


class Link:
    """One connection, both of its ends."""

    def __init__(self, network: Network, world: SimWorld, caller: Caller, number: int) -> None:
        self.number = number
        self.world = world
        self.caller: Caller | None = caller
        """None when the client has closed or knows that it is over."""
        self.transport = NodeTransport(self, network, world, number)
        self._network = network
        self._schedule = network.schedule
        self._to_node = bytearray()
        self._arrival: Event | None = None
        """The next piece's, at the node; one at a time keeps them in order."""
        self._is_client_done = False
        """The client has closed: the node learns it after the last byte."""
        self._in_kernel = bytearray()
        self._departure: Event | None = None
        self._is_node_done = False
        """The node's side has closed or died: the client learns it after the last byte."""
        self.is_silent = False
        """Nothing arrives at the client any more, not even the end."""
        self._is_known = False
        """The client knows that it is connected."""

    @property
    def is_over(self) -> bool:
        return self.caller is None and not self.is_node_there

    @property
    def is_node_there(self) -> bool:
        """Whether a node that lives holds its end."""
        return self.world.is_alive and self.transport.is_connected

    def _meet(self, protocol: asyncio.BufferedProtocol) -> None:
        self.transport.meet(protocol)

    def _connected(self) -> None:
        if self.caller is not None:
            self._is_known = True
            self.caller.connected(self)

    # -- from client to node ---------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        if self.is_node_there:
            self._to_node += data
            self.nudge_node()

    def close(self) -> None:
        """The client is through. What it sent may still reach the node."""
        self.caller = None
        if self.is_node_there and not self._is_client_done:
            self._is_client_done = True
            self.nudge_node()

    def nudge_node(self) -> None:
        if self._arrival is None and (self._to_node or self._is_client_done):
            self._arrival = self.world.later(self._network.delay_us(), self._arrive)

    def _arrive(self) -> None:
        self._arrival = None
        if not self.transport.is_reading():
            return
        if self._to_node:
            count = self.transport.receive(self._to_node, self._network.piece(len(self._to_node)))
            del self._to_node[:count]
        elif self._is_client_done:
            self.transport.end_of_input()
            return
        self.nudge_node()

    # -- from node to client ---------------------------------------------------------------------------

    def kernel_takes(self, data: memoryview) -> int:
        """How many bytes the kernel took of what the node writes."""
        if self.caller is None:
            return len(data)
        count = min(len(data), KERNEL_BYTES_MAX - len(self._in_kernel))
        self._in_kernel += data[:count]
        self._nudge_client()
        return count

    def node_closed(self, *, is_abort: bool) -> None:
        self._is_node_done = True
        if is_abort:
            self._in_kernel.clear()
        self._nudge_client()

    def _nudge_client(self) -> None:
        if self._departure is None and not self.is_silent and (self._in_kernel or self._is_node_done):
            self._departure = self._schedule.later(self._network.delay_us(), self._depart)

    def _depart(self) -> None:
        self._departure = None
        if self.caller is None or self.is_silent:
            return
        if not self._in_kernel:
            if self._is_node_done:
                self._tell_closed()
            return
        if not self._network.is_calm and self._network.rng.random() < 0.01:
            # A client that is busy elsewhere; the node must hold out, and go on with the others.
            self._departure = self._schedule.later(self._network.rng.randrange(50_000, 800_000), self._depart)
            return
        count = self._network.piece(len(self._in_kernel))
        data = bytes(self._in_kernel[:count])
        del self._in_kernel[:count]
        self.transport.kernel_has_room()
        self._nudge_client()
        self.caller.received(self, data)

    def _tell_closed(self) -> None:
        caller, self.caller = self.caller, None
        if caller is not None and self._is_known:
            caller.closed(self)
        elif caller is not None:
            caller.refused()

    # -- ways to end -----------------------------------------------------------------------------------

    def reset(self) -> None:
        """Break it in the middle of whatever goes on."""
        self._network.trace(f"link {self.number} is reset")
        self._to_node.clear()
        self._in_kernel.clear()
        self._is_node_done = True
        if self.is_node_there:
            self.transport.lose_later(ConnectionResetError("the connection was reset"))
        self._schedule.later(self._network.delay_us(), self._tell_closed)

    def _node_died(self, is_power_cut: bool) -> None:
        rng = self._network.rng
        # Of what the kernel had, any part has left the machine.
        del self._in_kernel[rng.randrange(len(self._in_kernel) + 1) :]
        self._is_node_done = True
        if is_power_cut and rng.random() < 0.5:
            self.is_silent = True
        self._nudge_client()


class NodeTransport(asyncio.Transport):
    """The node's end of a link, as an event loop would hand it out."""

    def __init__(self, link: Link, network: Network, world: SimWorld, number: int) -> None:
        super().__init__({"peername": ("127.0.0.1", 20_000 + number), "sockname": NODE_ADDRESS})
        self.is_connected = False
        """From connection_made until connection_lost."""
        self._link = link
        self._rng: Random = network.rng
        self._network = network
        self._world = world
        self._protocol: asyncio.BufferedProtocol | None = None
        self._backlog: deque[memoryview] = deque()
        """Written, and not taken by the kernel: the buffers themselves."""
        self._backlog_bytes = 0
        self._is_closing = False
        self._is_reading = True
        self._is_told_to_pause = False
        self._high = HIGH_WATER_BYTES
        self._low = HIGH_WATER_BYTES // 4
        self._flush: Event | None = None

    # -- what the network does -------------------------------------------------------------------------

    def meet(self, protocol: asyncio.BufferedProtocol) -> None:
        self._protocol = protocol
        self.is_connected = True
        protocol.connection_made(self)

    def receive(self, data: bytearray, count: int) -> int:
        """Give the protocol up to so many bytes, as one recv would; how many it got."""
        assert self._protocol is not None
        room = memoryview(self._protocol.get_buffer(-1))
        assert room, "a protocol makes room for at least a byte"
        count = min(count, len(room))
        room[:count] = data[:count]
        self._protocol.buffer_updated(count)
        return count

    def end_of_input(self) -> None:
        assert self._protocol is not None
        if not self._protocol.eof_received():
            self.close()

    def kernel_has_room(self) -> None:
        if self._backlog and self._flush is None:
            self._flush = self._world.later(self._network.delay_us(), self._flush_now)

    def lose_later(self, error: Exception | None) -> None:
        self._is_closing = True
        self._world.call_soon(lambda: self._lose(error))

    def _lose(self, error: Exception | None) -> None:
        if self.is_connected and self._protocol is not None:
            self.is_connected = False
            self._backlog.clear()
            self._backlog_bytes = 0
            self._protocol.connection_lost(error)

    # -- what a protocol calls: writing ----------------------------------------------------------------

    def write(self, data: Buffer) -> None:
        if not self.is_connected or not self._world.is_alive or not len(data):
            return
        view = memoryview(data).cast("B")
        if not self._backlog and self._rng.random() < 0.9:
            view = view[self._link.kernel_takes(view) :]
        if view:
            self._backlog.append(view)
            self._backlog_bytes += len(view)
            if self._flush is None:
                self._flush = self._world.later(self._network.delay_us(), self._flush_now)
            if self._backlog_bytes > self._high and not self._is_told_to_pause:
                self._is_told_to_pause = True
                assert self._protocol is not None
                self._protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        for data in list_of_data:
            self.write(data)

    def _flush_now(self) -> None:
        self._flush = None
        while self._backlog:
            view = self._backlog[0]
            count = self._link.kernel_takes(view)
            self._backlog_bytes -= count
            if count < len(view):
                # The kernel is full: `kernel_has_room` goes on.
                self._backlog[0] = view[count:]
                return
            self._backlog.popleft()
            if self._is_told_to_pause and self._backlog_bytes <= self._low:
                self._is_told_to_pause = False
                assert self._protocol is not None
                self._protocol.resume_writing()
        if self._is_closing and self.is_connected:
            self._link.node_closed(is_abort=False)
            self.lose_later(None)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = HIGH_WATER_BYTES if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def get_write_buffer_size(self) -> int:
        return self._backlog_bytes

    def can_write_eof(self) -> bool:
        return False

    # -- what a protocol calls: reading and closing ----------------------------------------------------

    def is_reading(self) -> bool:
        return self._is_reading and not self._is_closing and self.is_connected

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True
        self._link.nudge_node()

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        if self._is_closing or not self._world.is_alive:
            return
        self._is_closing = True
        if not self._backlog:
            self._link.node_closed(is_abort=False)
            self.lose_later(None)

    def abort(self) -> None:
        if not self.is_connected or not self._world.is_alive:
            return
        self._backlog.clear()
        self._link.node_closed(is_abort=True)
        self.lose_later(None)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, asyncio.BufferedProtocol)
        self._protocol = protocol

    def get_protocol(self) -> Any:
        return self._protocol
