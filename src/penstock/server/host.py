"""A node on an event loop, with its sockets: how it starts, serves and ends.

    bind and listen -> start the node -> ready: take connections -> stop: take no more, then stop the node

The sockets listen first, so that clients which come early wait instead of being refused. `penstock up` hosts a node
in a process of its own, `penstock.testing` in a thread.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Protocol

from penstock.base.world import World
from penstock.server.config import NodeConfig
from penstock.server.listeners import Listening, listen
from penstock.server.world import LoopWorld
from penstock.vfs import RealDisk, Vfs

TURNS_TO_CLOSE = 3
"""Turns of the loop after which every aborted connection has been told."""


class Hosted(Protocol):
    """A node, as its host sees it."""

    def start(self, ready: Callable[[], None], failed: Callable[[str], None]) -> None:
        """Begin. `ready` is called once it can serve, `failed` when it cannot, or not any longer; refusals that
        are known at once are raised."""

    def connection(self, listener: str) -> asyncio.BaseProtocol: ...

    def stop(self, done: Callable[[], None]) -> None: ...

    def abandon(self) -> None:
        """Let go of everything as a crash would: nothing is flushed."""


MakeNode = Callable[[World, Vfs, NodeConfig], Hosted]


def new_node(world: World, vfs: Vfs, config: NodeConfig) -> Hosted:
    from penstock.server.node import Node  # noqa: PLC0415  # a port that is taken is told before this is loaded

    return Node(world, vfs, config)


class Host:
    """Made on the loop's thread, and called from there."""

    def __init__(self, loop: asyncio.AbstractEventLoop, config: NodeConfig, make_node: MakeNode) -> None:
        """Binds the sockets: raises `CannotListen` where that cannot be done."""
        self._loop = loop
        self._make_node = make_node
        self._world: LoopWorld | None = None
        self._node: Hosted | None = None
        self._servers: list[asyncio.AbstractServer] = []
        self._serving: asyncio.Task[None] | None = None
        self._is_ended = False
        self.listening = _listen_all(config)
        self.config = config.bound({name: each.endpoint for name, each in self.listening.items()})

    def start(self, ready: Callable[[], None], failed: Callable[[str], None]) -> None:
        """Start the node; it may refuse at once, with a `KafkaError`. `ready` is called when connections are taken."""

        def serve() -> None:
            if not self._is_ended:
                self._serving = self._loop.create_task(self._serve(ready))

        self._world = LoopWorld(self._loop)
        self._node = self._make_node(self._world, RealDisk(), self.config)
        try:
            self._node.start(serve, failed)
        except BaseException:
            self._node = None  # one that refuses to start has let go of everything
            raise

    async def _serve(self, ready: Callable[[], None]) -> None:
        node = self._node
        assert node is not None
        backlog = self.config.number("socket.listen.backlog.size")
        for name, listening in self.listening.items():
            for each in listening.sockets:
                server = await self._loop.create_server(
                    lambda name=name: node.connection(name),  # type: ignore[misc]  # a default that is no argument
                    sock=each,
                    backlog=backlog,
                )
                self._servers.append(server)
        ready()

    def stop(self, done: Callable[[], None]) -> None:
        """Take no more connections, then let the node finish what it has."""
        self._close_sockets()
        # In the next turn: a connection that was taken in this one is made by then, and ends with the others.
        self._loop.call_soon(done if self._node is None else partial(self._node.stop, done))

    def abandon(self) -> None:
        """As a crash would: nothing is finished. It is done before a `loop.stop` that comes after it."""
        self._close_sockets()
        if self._node is not None:
            self._loop.call_soon(self._node.abandon)

    def close(self) -> None:
        """After `stop` or `abandon`, with the loop at rest: wait for threads and let everything go."""
        self._close_sockets()
        if self._serving is not None and not self._serving.done():
            self._serving.cancel()
            with suppress(asyncio.CancelledError):
                self._loop.run_until_complete(self._serving)
        if self._world is not None:
            self._world.close()
        for _ in range(TURNS_TO_CLOSE):
            self._loop.call_soon(self._loop.stop)
            self._loop.run_forever()
        self._world = self._node = None

    def _close_sockets(self) -> None:
        self._is_ended = True
        for server in self._servers:
            server.close()
        self._servers = []
        for each in self.listening.values():
            each.close()


def _listen_all(config: NodeConfig) -> dict[str, Listening]:
    listening: dict[str, Listening] = {}
    try:
        for name, endpoint in config.listeners.items():
            listening[name] = listen(
                endpoint,
                config.number("socket.listen.backlog.size"),
                send_bytes=config.number("socket.send.buffer.bytes"),
                receive_bytes=config.number("socket.receive.buffer.bytes"),
            )
    except BaseException:
        for each in listening.values():
            each.close()
        raise
    return listening
