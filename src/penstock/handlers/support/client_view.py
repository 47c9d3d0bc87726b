"""The cluster as one client sees it: brokers that are alive and reached through its listener, and who leads what."""

from functools import cached_property
from typing import Final, NamedTuple

from penstock.base.errors import ErrorCode
from penstock.metadata import Broker, Partition
from penstock.metadata.ids import DIRECTORY_LOST, DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED
from penstock.metadata.records import Ids

from .context import Context, Endpoint, Session

NO_BROKER = -1

VANISHES_MS: Final = 5000
"""For so long clients are told of a broker that has died."""


class VisiblePartition(NamedTuple):
    """A partition, as far as the client can reach it."""

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
        """Those that are not fenced, with where this client reaches them; in the order of their ids."""
        for broker_id, broker in sorted(self._image.brokers.items()):
            endpoint = None if broker.fenced else context.endpoint(broker, session)
            if endpoint is not None:
                self.brokers[broker_id] = (broker, endpoint)

    @cached_property
    def named(self) -> dict[int, tuple[Broker, Endpoint]]:
        """The brokers that clients are told of: those that are alive, and those that have just died. With a broker
        that vanishes librdkafka forgets where its partitions have gone, and asks for it a second later."""
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
        """A broker to send administration to. Each passes it on; the one that leads the quorum need not."""
        for broker_id in (self._context.quorum.leader_id, self._context.node_id):
            if broker_id in self.brokers:
                return broker_id
        return next(iter(self.brokers), NO_BROKER)

    def partition(self, partition: Partition, *, hide_absent: bool, tell_listener: bool) -> VisiblePartition:
        """`hide_absent` leaves out, as an error, replicas that cannot be reached; `tell_listener` tells a leader
        that has no such listener from one that is not there."""
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
