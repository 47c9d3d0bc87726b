"""A node on an event loop, with its sockets: start, serve, stop.

    bind and listen -> start the node -> ready: accept connections -> stop: accept no more, then stop the node
                              |            |
                              |            open the other doors, which takes longer
                              accept controllers' connections: without them no quorum makes a node ready

The sockets listen first, so that early clients wait instead of being refused. `penstock up` hosts a node in a process,
`penstock.testing` in a thread.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from penstock.base.world import World
from penstock.handlers.support.context import Endpoint
from penstock.server.config import NodeConfig
from penstock.server.door_config import REGISTRY
from penstock.server.listeners import CannotListen, Listening, listen
from penstock.server.world import LoopWorld
from penstock.vfs import RealDisk, Vfs

if TYPE_CHECKING:
    from penstock.server.node import Node

logger = logging.getLogger(__name__)

TICKS_TO_CLOSE = 3
"""Ticks of the loop after which `connection_lost` of every aborted connection was called."""


MakeNode = Callable[[World, Vfs, NodeConfig], "Node"]


def new_node(world: World, vfs: Vfs, config: NodeConfig) -> "Node":
    from penstock.server.node import Node  # noqa: PLC0415  # a port in use is reported before this is loaded

    return Node(world, vfs, config)


class Host:
    """Created and called on the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, config: NodeConfig, make_node: MakeNode) -> None:
        """Bind the sockets. Raises `CannotListen`."""
        self._loop = loop
        self._make_node = make_node
        self._world: LoopWorld | None = None
        self._node: Node | None = None
        self._servers: list[asyncio.AbstractServer] = []
        """Of clients."""
        self._for_controllers: list[asyncio.AbstractServer] = []
        self._serving: list[asyncio.Task[None]] = []
        self._is_ended = False
        self.listening, self.doors, self.controllers = _listen_all(config)
        """Kafka listeners by name, doors by name, and controller listeners by name."""
        self.config = config.bound(
            {name: each.endpoint for name, each in self.listening.items()},
            {name: each.endpoint for name, each in self.doors.items()},
            {name: each.endpoint for name, each in self.controllers.items()},
        )

    def start(
        self,
        ready: Callable[[], None],
        failed: Callable[[str], None],
        opened: Callable[[], None] = lambda: None,
    ) -> None:
        """Start the node; may raise `KafkaError`. `ready` is called when Kafka connections are accepted, `opened`
        when the doors accept connections too."""

        def serve() -> None:
            if not self._is_ended:
                self._serving.append(self._loop.create_task(self._serve(ready, opened)))

        self._world = LoopWorld(self._loop)
        self._node = self._make_node(self._world, RealDisk(), self.config)
        self._world.held = self._node.loop_held
        try:
            self._node.start(serve, failed)
        except BaseException:
            self._node = None  # a node that fails to start has released everything
            raise
        if self.controllers:
            self._serving.append(
                self._loop.create_task(
                    self._take(self.controllers, self._node.connection, self._for_controllers)
                )
            )

    async def _serve(self, ready: Callable[[], None], opened: Callable[[], None]) -> None:
        node = self._node
        assert node is not None
        await self._take(self.listening, node.connection, self._servers)
        if self._is_ended:
            return
        ready()
        if self.doors:
            loaded = asyncio.Event()
            node.open_doors(loaded.set)
            await loaded.wait()
            await self._take(self.doors, node.door, self._servers)
        opened()

    async def _take(
        self,
        listening: Mapping[str, Listening],
        connection: Callable[[str], asyncio.BaseProtocol],
        servers: list[asyncio.AbstractServer],
    ) -> None:
        """Accept connections."""
        backlog = self.config.number("socket.listen.backlog.size")
        for name, each in listening.items():
            for bound in each.sockets:
                if self._is_ended:
                    return
                server = await self._loop.create_server(
                    partial(connection, name), sock=bound, backlog=backlog
                )
                servers.append(server)

    def stop(self, done: Callable[[], None]) -> None:
        """Accept no more clients, then stop the node. Controllers can connect until it has stopped."""
        self._close_clients()

        def stopped() -> None:
            self._close_sockets()
            done()

        # In the next tick: connections accepted in this one are complete by then, and are closed with the others.
        self._loop.call_soon(stopped if self._node is None else partial(self._node.stop, stopped))

    def abandon(self) -> None:
        """Release everything as a crash would, before a later `loop.stop` takes effect."""
        self._close_sockets()
        if self._node is not None:
            self._loop.call_soon(self._node.abandon)

    def close(self) -> None:
        """After `stop` or `abandon`, while the loop is not running: wait for threads and release everything."""
        self._close_sockets()
        for task in self._serving:
            if not task.done():
                task.cancel()
                with suppress(asyncio.CancelledError):
                    self._loop.run_until_complete(task)
        if self._world is not None:
            self._world.close()
        for _ in range(TICKS_TO_CLOSE):
            self._loop.call_soon(self._loop.stop)
            self._loop.run_forever()
        self._world = self._node = None

    def _close_clients(self) -> None:
        self._is_ended = True
        for server in self._servers:
            server.close()
        self._servers = []
        for each in (*self.listening.values(), *self.doors.values()):
            each.close()

    def _close_sockets(self) -> None:
        self._close_clients()
        for server in self._for_controllers:
            server.close()
        self._for_controllers = []
        for each in self.controllers.values():
            each.close()


def _listen_all(
    config: NodeConfig,
) -> tuple[dict[str, Listening], dict[str, Listening], dict[str, Listening]]:
    listening: dict[str, Listening] = {}
    doors: dict[str, Listening] = {}
    controllers: dict[str, Listening] = {}

    def bind(endpoint: Endpoint, flag: str) -> Listening:
        return listen(
            endpoint,
            config.number("socket.listen.backlog.size"),
            send_bytes=config.number("socket.send.buffer.bytes"),
            receive_bytes=config.number("socket.receive.buffer.bytes"),
            flag=flag,
        )

    try:
        for name, endpoint in config.listeners.items():
            listening[name] = bind(endpoint, "--kafka")
        for name, endpoint in config.doors.items():
            setting = "schema.registry.listener" if name == REGISTRY else f"--{name}"
            try:
                doors[name] = bind(endpoint, f"{setting}, or none with {setting} off")
            except CannotListen as error:
                if name not in config.optional_doors:
                    raise
                logger.warning("the schema registry has no port of its own: %s", error)
        for name, endpoint in config.cluster.controllers.items():
            controllers[name] = bind(endpoint, "--controller")
    except BaseException:
        for each in (*listening.values(), *doors.values(), *controllers.values()):
            each.close()
        raise
    return listening, doors, controllers
