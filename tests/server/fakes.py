"""A node that only echoes: what hosts a node is tested without what a node does."""

import asyncio
import os
import signal
from collections.abc import Callable
from typing import Any

from penstock.base.errors import KafkaError
from penstock.base.world import World
from penstock.server.config import NodeConfig
from penstock.vfs import Vfs


class Echo(asyncio.Protocol):
    def __init__(self, node: "EchoNode") -> None:
        self.node = node

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.node.connections.add(self)

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.node.connections.discard(self)


class EchoNode:
    """`node.id` says how it behaves: 13 refuses to start, 14 fails before it is ready, 15 fails when a client
    connects, 16 is told to stop while it starts, 17 has a bug."""

    def __init__(self, world: World, vfs: Vfs, config: NodeConfig) -> None:
        self.world = world
        self.config = config
        self.connections: set[Echo] = set()
        self.history: list[str] = []

    def start(self, ready: Callable[[], None], failed: Callable[[str], None]) -> None:
        self.failed = failed
        self.history.append("start")
        if self.config.node_id == 13:
            raise KafkaError("the directory is cursed")
        if self.config.node_id == 16:
            os.kill(os.getpid(), signal.SIGTERM)
        if self.config.node_id == 17:
            raise ZeroDivisionError("a bug")
        if self.config.node_id == 14:
            self.world.beside(lambda: 1, lambda _result, _error: failed("the disk is cursed"))
        else:
            self.world.beside(lambda: 1, lambda _result, _error: ready())

    def loop_held(self, by: str, took_ns: int, now_ns: int) -> None: ...

    def connection(self, listener: str) -> asyncio.BaseProtocol:
        if self.config.node_id == 15:
            self.world.call_soon(lambda: self.failed("a client is cursed"))
        return Echo(self)

    def stop(self, done: Callable[[], None]) -> None:
        self.history.append("stop")
        for each in self.connections:
            each.transport.close()
        self.world.call_soon(done)

    def abandon(self) -> None:
        self.history.append("abandon")
        for each in self.connections:
            each.transport.abort()
