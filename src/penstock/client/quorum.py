"""Describes the metadata quorum, and changes its voters. Any broker forwards these requests to the active
controller."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final, NamedTuple
from uuid import UUID

from penstock.base.errors import ErrorCode
from penstock.base.ids import LeaderEpoch, Offset, TimestampMs, Uuid
from penstock.base.internal_topics import METADATA_TOPIC
from penstock.wire import Api
from penstock.wire.request import Request, through_kio

from .cluster import Cluster
from .errors import check, code_of
from .settings import Address

_NOT_ASKED: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_CONTROLLER})
"""The change was not made: retry."""


class Listener(NamedTuple):
    name: str
    address: Address


class Replica(NamedTuple):
    """A voter or an observer of the metadata log."""

    id: int
    directory_id: Uuid | None
    """None if the broker does not return it, or the quorum has no directory ids."""
    log_end_offset: Offset
    last_fetch_ms: TimestampMs
    last_caught_up_ms: TimestampMs
    listeners: tuple[Listener, ...] = ()
    """Set for voters, if the broker returns it."""


class Quorum(NamedTuple):
    leader_id: int
    epoch: LeaderEpoch
    high_watermark: Offset
    voters: tuple[Replica, ...]
    observers: tuple[Replica, ...]


def describe_quorum(cluster: Cluster) -> Quorum:
    def build(make: Any) -> Any:
        topic = make.TopicData(topic_name=METADATA_TOPIC, partitions=(make.PartitionData(partition_index=0),))
        return make.DescribeQuorumRequest(topics=(topic,))

    reply = cluster.ask_controller(through_kio(Api.DESCRIBE_QUORUM, build), code_of)
    check("the quorum", reply)
    partition = reply.topics[0].partitions[0]
    check("the quorum", partition)
    listeners = {
        each.node_id: tuple(Listener(one.name, Address(one.host, one.port)) for one in each.listeners)
        for each in getattr(reply, "nodes", ())
    }
    return Quorum(
        partition.leader_id,
        partition.leader_epoch,
        partition.high_watermark,
        tuple(_replica(each, listeners.get(each.replica_id, ())) for each in partition.current_voters),
        tuple(_replica(each) for each in partition.observers),
    )


def _replica(answer: Any, listeners: tuple[Listener, ...] = ()) -> Replica:
    directory: UUID | None = getattr(answer, "replica_directory_id", None)
    return Replica(
        answer.replica_id,
        None if directory is None else directory.bytes,
        answer.log_end_offset,
        getattr(answer, "last_fetch_timestamp", -1),
        getattr(answer, "last_caught_up_timestamp", -1),
        listeners,
    )


def add_voter(cluster: Cluster, voter_id: int, directory_id: Uuid, listeners: Sequence[Listener]) -> None:
    """Make an observer a voter; return once the change is committed."""

    def build(make: Any) -> Any:
        return make.AddRaftVoterRequest(
            cluster_id=None,
            timeout=timedelta(milliseconds=cluster.settings.request_timeout_ms),
            voter_id=voter_id,
            voter_directory_id=UUID(bytes=directory_id),
            listeners=tuple(
                make.Listener(name=each.name, host=each.address.host, port=each.address.port)
                for each in listeners
            ),
            ack_when_committed=True,
        )

    _change(cluster, voter_id, through_kio(Api.ADD_RAFT_VOTER, build))


def remove_voter(cluster: Cluster, voter_id: int, directory_id: Uuid) -> None:
    """Remove a voter; return once the change is committed."""

    def build(make: Any) -> Any:
        return make.RemoveRaftVoterRequest(
            cluster_id=None, voter_id=voter_id, voter_directory_id=UUID(bytes=directory_id)
        )

    _change(cluster, voter_id, through_kio(Api.REMOVE_RAFT_VOTER, build))


def _change(cluster: Cluster, voter_id: int, request: Request[Any]) -> None:
    def not_asked_code(reply: Any) -> int:
        return code_of(reply) if reply.error_code in _NOT_ASKED else 0

    check(f"voter {voter_id}", cluster.ask_controller(request, not_asked_code))
