"""Runs the simulator's clients against real brokers, on an event loop and real sockets.

Implements `penstock.sim.clients.ports`. The loop must be the standard library's: it runs callbacks from other threads
before data that arrives at a socket later, so that a record counts as sent before a consumer can read it.
"""

import asyncio
import time
from collections.abc import Callable
from random import Random

from penstock.chaos.brokers import Broker
from penstock.sim.clients.ports import NetworkClient
from penstock.sim.world.schedule import Event
from penstock.wire.peers import Address


class LoopScheduler:
    def __init__(self, seed: int, loop: asyncio.AbstractEventLoop) -> None:
        self._seed = seed
        self._loop = loop
        self._start_s = loop.time()

    @property
    def now_us(self) -> int:
        return int((self._loop.time() - self._start_s) * 1_000_000)

    @property
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def rng(self, name: str) -> Random:
        return Random(f"{self._seed}/{name}")

    def later(self, delay_us: int, call: Callable[[], None]) -> Event:
        event = Event(call)
        self._loop.call_later(max(0, delay_us) / 1_000_000, event.happen)
        return event


class LoopNetwork:
    def __init__(self, loop: asyncio.AbstractEventLoop, broker_at: Callable[[Address], Broker]) -> None:
        self.is_calm = False
        self._loop = loop
        self._broker_at = broker_at
        self._dialling: set[asyncio.Task[None]] = set()
        self._numbers = 0

    def connect(self, caller: NetworkClient, to: Address) -> None:
        task = self._loop.create_task(self._connect(caller, to))
        self._dialling.add(task)
        task.add_done_callback(self._dialling.discard)

    async def _connect(self, caller: NetworkClient, to: Address) -> None:
        self._numbers += 1
        link = LoopConnection(self._numbers, caller, self._broker_at(to))
        try:
            await self._loop.create_connection(lambda: link, to.host, to.port)
        except OSError:
            # Outside this task, so that an exception of the client is reported.
            self._loop.call_soon(caller.refused)

    def close(self) -> None:
        for task in self._dialling:
            task.cancel()


class LoopConnection(asyncio.Protocol):
    """Implements `Connection`."""

    def __init__(self, number: int, caller: NetworkClient, broker: Broker) -> None:
        self.number = number
        self.incarnation = -1
        self._caller = caller
        self._broker = broker
        self._transport: asyncio.Transport | None = None

    @property
    def disturbed_us(self) -> int:
        return self._broker.disturbed_us

    @property
    def is_node_there(self) -> bool:
        return self._broker.is_running and self._broker.incarnation == self.incarnation

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        # The previous process had ended before this one was started.
        self.incarnation = self._broker.incarnation
        self._caller.connected(self)

    def data_received(self, data: bytes) -> None:
        if self._transport is not None:
            self._caller.received(self, data)

    def connection_lost(self, error: Exception | None) -> None:
        if self._transport is not None:
            self._transport = None
            self._caller.closed(self)

    def send(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def close(self) -> None:
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.close()
