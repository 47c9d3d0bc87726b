"""The cluster as one client sees it: live brokers with the client's listener, and the leaders of partitions."""

from functools import cached_property
from typing import Final, NamedTuple

from penstock.base.errors import ErrorCode
from penstock.metadata.image import Broker, PartitionRegistration
from penstock.metadata.records import DIRECTORY_LOST, DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED, Ids

from .context import Context, Endpoint, Session

NO_BROKER = -1

VANISHES_MS: Final = 5000
"""How long Metadata still lists a broker that has died."""


class VisiblePartition(NamedTuple):
    """A partition's leader and replicas, as far as the client can reach them."""

    error: ErrorCode
    leader: int
    replicas: Ids
    isr: Ids
    offline: Ids


class ClientView:
    def __init__(self, context: Context, session: Session) -> None:
        self._context = context
        self._session = session
        self._image = context.image
        self.brokers: dict[int, tuple[Broker, Endpoint]] = {}
        """Brokers that are not fenced, with their endpoints for this client, in the order of ids."""
        for broker_id, broker in sorted(self._image.brokers.items()):
            endpoint = None if broker.fenced else context.endpoint(broker, session)
            if endpoint is not None:
                self.brokers[broker_id] = (broker, endpoint)

    @cached_property
    def named(self) -> dict[int, tuple[Broker, Endpoint]]:
        """The brokers that Metadata lists: those that are alive, and those that have just died. When a broker vanishes
        from Metadata, librdkafka forgets the new leaders of its partitions, and asks again only a second later."""
        context = self._context
        if not context.broker_client.has_lost_connections:
            return self.brokers
        named = dict(self.brokers)
        for broker_id, broker in self._image.brokers.items():
            if (
                broker_id not in named
                and not broker.in_controlled_shutdown
                and context.broker_client.was_lost(broker_id, VANISHES_MS)
            ):
                endpoint = context.endpoint(broker, self._session)
                if endpoint is not None:
                    named[broker_id] = (broker, endpoint)
        return dict(sorted(named.items()))

    @cached_property
    def controller_id(self) -> int:
        """A broker for administrative requests: the active controller's if possible, since others forward."""
        for broker_id in (self._context.quorum.leader_id, self._context.node_id):
            if broker_id in self.brokers:
                return broker_id
        return next(iter(self.brokers), NO_BROKER)

    def partition(
        self, partition: PartitionRegistration, *, hide_absent: bool, tell_listener: bool
    ) -> VisiblePartition:
        """`hide_absent` leaves out replicas that cannot be reached, with an error; `tell_listener` distinguishes a
        leader without the client's listener from one that is down."""
        replicas, isr = partition.replicas, partition.isr
        if hide_absent:
            replicas = tuple(each for each in replicas if each in self.brokers)
            isr = tuple(each for each in isr if each in self.brokers)
        offline = tuple(
            each
            for each, directory in zip(partition.replicas, partition.directories, strict=True)
            if each not in self.brokers or not _is_online(self.brokers[each][0], directory)
        )
        leader, error = partition.leader, ErrorCode.NONE
        if leader not in self.brokers:
            is_there = leader in self._image.brokers
            error = (
                ErrorCode.LISTENER_NOT_FOUND if is_there and tell_listener else ErrorCode.LEADER_NOT_AVAILABLE
            )
            leader = NO_BROKER
        elif len(replicas) < len(partition.replicas) or len(isr) < len(partition.isr):
            error = ErrorCode.REPLICA_NOT_AVAILABLE
        return VisiblePartition(error, leader, replicas, isr, offline)


def _is_online(broker: Broker, directory: bytes) -> bool:
    if directory in (DIRECTORY_UNASSIGNED, DIRECTORY_MIGRATING):
        return True
    return directory != DIRECTORY_LOST and (not broker.log_dirs or directory in broker.log_dirs)
