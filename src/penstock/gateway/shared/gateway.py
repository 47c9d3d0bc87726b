"""State and services that the HTTP and line protocols share. Routes and commands get it as their argument.

A service with timers or files (sessions, key files) is a `Part`: it starts when the node serves clients, and stops
before the node closes its logs.
"""

from functools import cached_property
from typing import TYPE_CHECKING, Protocol, TypeVar

from penstock.gateway.exports.store import Exports
from penstock.gateway.idempotency import IdempotencyKeys
from penstock.gateway.membership import Members
from penstock.gateway.observing.event_feed import EventFeed
from penstock.gateway.observing.lag_history import LagSampler
from penstock.gateway.observing.node_history import NodeSampler
from penstock.gateway.observing.node_status import NodeStatusReader
from penstock.gateway.observing.partition_counts import PartitionCounter
from penstock.gateway.peer_rpc.client import PeerRpc
from penstock.gateway.peer_rpc.cluster_topics import ClusterTopics
from penstock.gateway.search.indexing import SearchIndexer
from penstock.gateway.search.searches import Searches
from penstock.gateway.shared.explorer import Explorer
from penstock.gateway.shared.fair_queue import FairQueue
from penstock.gateway.shared.pipeline_view import PipelineView
from penstock.gateway.shared.producer import Producer
from penstock.gateway.shared.simulations import Simulations, StartCommand
from penstock.gateway.shared.topic_figures import TopicSampler
from penstock.handlers.support.context import Context
from penstock.storage import LogDirectory
from penstock.vfs import Vfs

if TYPE_CHECKING:
    from penstock.gateway.http.protocol.authentication import HttpLogins
    from penstock.gateway.schemas.schema_registry import SchemaRegistry


class Part(Protocol):
    def start(self) -> None:
        """The node starts to serve clients."""

    def stop(self) -> None:
        """The node stops. After this, nothing is written and no timer runs."""


P = TypeVar("P", bound=Part)


class Gateway:
    http_schemes: tuple[str, ...] = ()
    """What HTTP clients have to log in with, for the description of the API; empty for nothing."""
    http_logins: "HttpLogins | None" = None
    """The log-ins at the HTTP port; None if it asks for none."""
    is_broker = True
    """A node that is only a controller has no gateway."""

    def __init__(
        self,
        context: Context,
        directory: LogDirectory,
        vfs: Vfs,
        keys: IdempotencyKeys | None = None,
        start_command: StartCommand | None = None,
    ) -> None:
        """`keys` are the node's idempotency keys, if they are already loaded; `start_command` runs a command of
        `penstock`."""
        self.simulations = Simulations(start_command)
        self.context = context
        self.directory = directory
        self.vfs = vfs
        self._parts: list[Part] = []
        self.fair_queue = FairQueue(context.world)
        self.explorer = Explorer(context)
        self.exports = self._with(Exports(context))
        self.searches = self._with(Searches(context))
        self._with(SearchIndexer(context))
        self.topic_sampler = TopicSampler(context)
        self.cluster_topics = ClusterTopics(context, self.topic_sampler)
        self.partition_counter = PartitionCounter(context)
        self.history = self._with(NodeSampler(context, directory, self.partition_counter))
        self.lag_history = self._with(LagSampler(context))
        self.events = self._with(EventFeed(context))
        self.status = NodeStatusReader(self)
        self.members = Members(context)
        self.peer_rpc = self._with(PeerRpc(context, self))
        self._with(self.members)
        self.producer = self._with(Producer(context, keys))
        self.pipelines = self._with(PipelineView(context))

    @cached_property
    def schemas(self) -> "SchemaRegistry":
        """The schema registry, created when it is first used."""
        from penstock.gateway.schemas.schema_registry import SchemaRegistry  # noqa: PLC0415  # few nodes serve it

        return self._with(SchemaRegistry(self.context))

    def _with(self, part: P) -> P:
        """Start and stop a part with the gateway."""
        self._parts.append(part)
        return part

    def start(self) -> None:
        for part in self._parts:
            part.start()

    def stop(self) -> None:
        for part in reversed(self._parts):
            part.stop()
