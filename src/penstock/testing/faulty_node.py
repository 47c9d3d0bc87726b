"""A node like that of `penstock up`, with all injection points for faults of a test."""

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from penstock.base.world import World
from penstock.server.config import NodeConfig
from penstock.testing.clock import Clock, MovedWorld
from penstock.testing.disk import BrokerDisk
from penstock.testing.network import DiallingWorld, Network
from penstock.testing.request_faults import FaultyDispatcher, RequestFaults

if TYPE_CHECKING:
    from penstock.handlers.support.context import Context


class FaultyNode:
    def __init__(
        self,
        world: World,
        config: NodeConfig,
        disk: BrokerDisk,
        clock: Clock,
        network: Network,
        faults: RequestFaults,
    ) -> None:
        """Created on the broker's thread."""
        from penstock.handlers.support.dispatch import Dispatcher  # noqa: PLC0415  # not before a broker is started
        from penstock.server.node import Node  # noqa: PLC0415

        self._clock = clock
        self._network = network
        self._dialling = DiallingWorld(world, network, -1 if config.node_id is None else config.node_id)
        self._moved = MovedWorld(cast(World, self._dialling), clock)

        def dispatcher(context: "Context") -> FaultyDispatcher:
            def topic_id(name: str) -> bytes | None:
                topic = context.image.topics.get(name)
                return None if topic is None else topic.id

            return FaultyDispatcher(Dispatcher(context), faults, world, topic_id)

        self.node = Node(
            cast(World, self._dialling), disk, config, data_world=self._moved, dispatcher=dispatcher
        )

    def begin(self, call: Callable[[Callable[[], None]], None]) -> None:
        """Connect it to the test: `call` calls a function on the broker's thread."""
        self._clock.begin(self._moved, call)
        self._network.begin(self._dialling, call)

    def end(self) -> None:
        self._clock.end(self._moved)
        self._network.end(self._dialling)
