"""A process's end of a connection, as an asyncio transport.

The kernel may take written bytes immediately or later. Until then the transport holds the buffer itself and not a
copy, as uvloop does, so that reusing a buffer too early shows up as corrupt data.
"""

import asyncio
from collections import deque
from collections.abc import Iterable
from functools import partial
from random import Random

from penstock.base.world import StreamProtocol
from penstock.sim.world.process_world import SimWorld
from penstock.sim.world.schedule import Event
from penstock.sim.world.tcp import Link
from penstock.wire.peers import Address

HIGH_WATER_BYTES = 64 * 1024
"""asyncio's default: above it, the transport calls `pause_writing`."""

Buffer = bytes | bytearray | memoryview


class FakeSocket:
    """Accepts socket options and ignores them."""

    def setsockopt(self, *_: int) -> None: ...


class NodeTransport(asyncio.Transport):
    """Implements `tcp.Endpoint`."""

    def __init__(self, world: SimWorld, here: Address, there: Address) -> None:
        super().__init__({"peername": tuple(there), "sockname": tuple(here), "socket": FakeSocket()})
        self.host = world.host
        self.world = world
        self.is_connected = False
        """From connection_made until connection_lost."""
        self.is_over = False
        """`connection_lost` was called, or never will be."""
        self._link: Link
        self._rng: Random
        self._protocol: StreamProtocol | None = None
        self._backlog: deque[memoryview] = deque()
        """Written buffers that the kernel has not taken yet."""
        self._backlog_bytes = 0
        self._is_closing = False
        self._is_reading = True
        self._is_write_paused = False
        self._high = HIGH_WATER_BYTES
        self._low = HIGH_WATER_BYTES // 4
        self._flush: Event | None = None
        self._taken = 0
        """Bytes that the protocol received last."""

    # -- what the network does -------------------------------------------------------------------------

    def bind(self, link: Link) -> None:
        self._link = link
        self._rng = link.network.rng

    @property
    def is_there(self) -> bool:
        return self.world.is_alive and not self.is_over

    @property
    def can_take(self) -> bool:
        world = self.world
        return (
            self.is_connected
            and self._is_reading
            and not self._is_closing
            and world.is_alive
            and not self.is_over
            and not world.is_paused
        )

    def meet(self, protocol: StreamProtocol) -> None:
        self._protocol = protocol
        self.is_connected = True
        protocol.connection_made(self)
        self._link.nudge(self)

    def take(self, data: bytearray, count: int) -> int:
        """Pass up to `count` bytes to the protocol, as one recv would; return how many."""
        self._taken = 0
        self.world.run(partial(self._receive, data, count))
        return self._taken

    def _receive(self, data: bytearray, count: int) -> None:
        protocol = self._protocol
        assert protocol is not None
        room = memoryview(protocol.get_buffer(-1))
        assert room, "a protocol makes room for at least a byte"
        taken = self._taken = min(count, len(room))
        room[:taken] = data if taken == len(data) else data[:taken]
        protocol.buffer_updated(taken)

    def end_of_input(self) -> None:
        def hear() -> None:
            assert self._protocol is not None
            if not self._protocol.eof_received():
                self.close()

        self.world.run(hear)

    def has_room(self) -> None:
        if self._backlog and self._flush is None:
            self._flush = self.world.later(self._link.network.delay_us(), self._flush_now)

    def broken(self) -> None:
        if not self.is_connected:
            self.is_over = True
        elif self.world.is_alive:
            self.lose_later(ConnectionResetError("the connection was reset"))

    def lose_later(self, error: Exception | None) -> None:
        self._is_closing = True
        self.world.call_soon(lambda: self._lose(error))

    def _lose(self, error: Exception | None) -> None:
        if self.is_connected and self._protocol is not None:
            self.is_connected = False
            self.is_over = True
            self._backlog.clear()
            self._backlog_bytes = 0
            self._protocol.connection_lost(error)

    # -- what a protocol calls: writing ----------------------------------------------------------------

    def write(self, data: Buffer) -> None:
        if not self.is_connected or not self.world.is_alive or not len(data):
            return
        view = memoryview(data).cast("B")
        if not self._backlog and self._rng.random() < 0.9:
            view = view[self._link.put(self, view) :]
        if view:
            self._backlog.append(view)
            self._backlog_bytes += len(view)
            if self._flush is None:
                self._flush = self.world.later(self._link.network.delay_us(), self._flush_now)
            if self._backlog_bytes > self._high and not self._is_write_paused:
                self._is_write_paused = True
                assert self._protocol is not None
                self._protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        for data in list_of_data:
            self.write(data)

    def _flush_now(self) -> None:
        self._flush = None
        while self._backlog:
            view = self._backlog[0]
            count = self._link.put(self, view)
            self._backlog_bytes -= count
            if count < len(view):
                # The kernel's buffer is full; `has_room` continues.
                self._backlog[0] = view[count:]
                return
            self._backlog.popleft()
            if self._is_write_paused and self._backlog_bytes <= self._low:
                self._is_write_paused = False
                assert self._protocol is not None
                self._protocol.resume_writing()
        if self._is_closing and self.is_connected:
            self._link.finish(self)
            self.lose_later(None)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = HIGH_WATER_BYTES if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        return self._backlog_bytes

    @property
    def held_bytes(self) -> int:
        """Bytes held in memory: a partly sent buffer counts in full."""
        return sum(memoryview(each.obj).nbytes for each in self._backlog)

    # -- what a protocol calls: reading and closing ----------------------------------------------------

    def is_reading(self) -> bool:
        return self._is_reading and not self._is_closing and self.is_connected

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True
        self._link.nudge(self)

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        if self._is_closing or not self.world.is_alive:
            return
        self._is_closing = True
        if not self._backlog:
            self._link.finish(self)
            self.lose_later(None)

    def abort(self) -> None:
        if not self.is_connected or not self.world.is_alive:
            return
        self._backlog.clear()
        self._link.finish(self, is_abort=True)
        self.lose_later(None)
