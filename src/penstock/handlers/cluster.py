"""The cluster's brokers, and its metadata quorum.

    DescribeCluster 0 to 2      the brokers; at a controller's listener, the controllers
    DescribeQuorum 0 to 2       leader, voters and observers of the metadata quorum

A broker forwards DescribeQuorum to the active controller; a controller never forwards.
"""

from collections.abc import Callable
from typing import Any
from uuid import UUID

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.internal_topics import METADATA_TOPIC
from penstock.base.steps import Steps
from penstock.metadata.acls import CLUSTER_NAME, AclResourceType, Operation
from penstock.metadata.controller.requests import Result
from penstock.raft.describe import QuorumDescription, ReplicaDescription
from penstock.raft.messages import NOT_SENT, ReadIndex, ReadIndexReply
from penstock.wire import Api

from .raft import endpoint_for
from .support.client_view import NO_BROKER, ClientView
from .support.context import Call, Context
from .support.controller_call import default_wait_ms
from .support.forwarding import forward
from .support.response_fields import (
    DENIED_CLUSTER,
    NO_THROTTLE,
    OPERATIONS_NOT_REQUESTED,
    cluster_operations,
    refusal,
)
from .support.waiting import in_steps

_BROKERS, _CONTROLLERS = 1, 2
"""Endpoint types. A client must request the type of the listener that it uses."""
_KINDS = {_BROKERS: "broker", _CONTROLLERS: "controller"}


def describe_cluster(context: Context, call: Call) -> Any:
    """DescribeCluster 0 to 2 at a broker: the brokers that are alive, and on request those that are fenced.

    The controller id is that of a broker, since every broker accepts administrative requests. A request for
    controllers gets MISMATCHED_ENDPOINT_TYPE, one for an unknown type UNSUPPORTED_ENDPOINT_TYPE.

    Version notes: 1 adds endpoint types (KIP-919); 2 fenced brokers (KIP-1073).
    """
    view = ClientView(context, call.session)
    return _described(
        context, call, _BROKERS, lambda: view.controller_id, lambda: _brokers(context, call, view)
    )


def describe_controllers(context: Context, call: Call) -> Any:
    """DescribeCluster 0 to 2 at a controller (KIP-919): the voters of the quorum, and its leader.

    A request for brokers, which is the default, gets MISMATCHED_ENDPOINT_TYPE.
    """
    quorum = context.quorum
    return _described(
        context, call, _CONTROLLERS, lambda: quorum.leader_id, lambda: _controllers(context, call)
    )


def _described(
    context: Context, call: Call, here: int, controller_id: Callable[[], int], nodes: Callable[[], list[Any]]
) -> Any:
    """The nodes of the type `here`, for a client that requests that type."""
    make, request = call.make, call.message
    kind = getattr(request, "endpoint_type", _BROKERS)
    result = Result()
    if kind not in _KINDS:
        why = f"Unknown endpoint type {kind}, expected 1 (brokers) or 2 (controllers)."
        result = Result(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, why)
    elif kind != here:
        why = f"This is a {_KINDS[here]}'s listener; request {_KINDS[kind]}s at a {_KINDS[kind]}'s listener."
        result = Result(ErrorCode.MISMATCHED_ENDPOINT_TYPE, why)
    is_valid = result.code is ErrorCode.NONE
    return make.DescribeClusterResponse(
        throttle_time=NO_THROTTLE,
        error_code=result.code,
        error_message=result.message,
        endpoint_type=here,
        cluster_id=context.cluster_id if is_valid else "",
        controller_id=controller_id() if is_valid else NO_BROKER,
        brokers=tuple(nodes()) if is_valid else (),
        cluster_authorized_operations=(
            cluster_operations(context, call.session)
            if request.include_cluster_authorized_operations and is_valid
            else OPERATIONS_NOT_REQUESTED
        ),
    )


def _controllers(context: Context, call: Call) -> list[Any]:
    shown = [(each.key.id, endpoint_for(call.session, each.endpoints)) for each in context.quorum.voters]
    return [
        call.make.DescribeClusterBroker(
            broker_id=node_id, host=at.host, port=at.port, rack=None, is_fenced=False
        )
        for node_id, at in shown
        if at is not None
    ]


def _brokers(context: Context, call: Call, view: ClientView) -> list[Any]:
    make = call.make
    shown = dict(view.brokers)
    if getattr(call.message, "include_fenced_brokers", False):
        for broker in context.image.brokers.values():
            endpoint = context.endpoint(broker, call.session)
            if endpoint is not None:
                shown[broker.id] = (broker, endpoint)
    return [
        make.DescribeClusterBroker(
            broker_id=broker_id, host=at.host, port=at.port, rack=broker.rack, is_fenced=broker.fenced
        )
        for broker_id, (broker, at) in sorted(shown.items())
    ]


@in_steps
def describe_quorum(context: Context, call: Call) -> Steps[Any]:
    """DescribeQuorum 0 to 2 at a broker: forwarded to the quorum's leader, unless that is this node."""
    if not context.authorize(call.session, Operation.DESCRIBE, AclResourceType.CLUSTER, CLUSTER_NAME):
        return _quorum_response(call, DENIED_CLUSTER)
    return (yield from quorum_of_leader(context, call))


def quorum_of_leader(context: Context, call: Call) -> Steps[Any]:
    """The response of the quorum's leader to a client that is authorized."""
    quorum = context.quorum
    if quorum.is_leader or quorum.leader_address is None or context.peers is None:
        return _quorum_here(context, call)
    try:
        return (yield from forward(context, Api.DESCRIBE_QUORUM, call, default_wait_ms(context)))
    except KafkaError as error:
        return _quorum_response(call, refusal(error))


@in_steps
def describe_quorum_here(context: Context, call: Call) -> Steps[Any]:
    """DescribeQuorum 0 to 2: the leader, voters and observers of the metadata quorum, with their log end offsets
    (KIP-595).

    The only valid partition is __cluster_metadata-0; others get UNKNOWN_TOPIC_OR_PARTITION. Only the quorum's leader
    knows the offsets of the others: other nodes reply NOT_LEADER_OR_FOLLOWER.

    For other nodes, which are allowed CLUSTER_ACTION, the leader first confirms that it still leads
    (`raft/pending_reads`), since they rely on the high watermark. If it cannot, the partition has an error message,
    and no error code.

    Version notes: 1 adds times of fetches (KIP-836); 2 directories, messages and the voters' endpoints (KIP-853).
    """
    if not context.authorize(call.session, Operation.DESCRIBE, AclResourceType.CLUSTER, CLUSTER_NAME):
        return _quorum_response(call, DENIED_CLUSTER)
    note = None
    is_node = context.permits(call.session, Operation.CLUSTER_ACTION, AclResourceType.CLUSTER, CLUSTER_NAME)
    if call.version >= 2 and is_node and _asks_for_metadata(call.message) and context.quorum.is_leader:
        reply: ReadIndexReply = yield context.quorum.receive(ReadIndex(NOT_SENT))
        if reply.error is not ErrorCode.NONE:
            note = (
                f"Node {context.node_id} could not confirm with a majority of voters that it still leads the metadata "
                "quorum; its state may be out of date."
            )
    return _quorum_here(context, call, note)


def _quorum_here(context: Context, call: Call, note: str | None = None) -> Any:
    if not _asks_for_metadata(call.message):
        return _quorum_response(call, Result(), _unknown(call))
    quorum = context.quorum.describe()
    if not quorum.voters:
        why = f"Node {quorum.leader_id} leads the metadata quorum; send the request there."
        return _quorum_response(call, Result(ErrorCode.NOT_LEADER_OR_FOLLOWER, why))
    nodes = tuple(_node(call, each) for each in quorum.voters) if call.version >= 2 else ()
    return _quorum_response(call, Result(), (_quorum(call, quorum, note),), nodes)


def _quorum_response(
    call: Call, result: Result, topics: tuple[Any, ...] = (), nodes: tuple[Any, ...] = ()
) -> Any:
    return call.make.DescribeQuorumResponse(
        error_code=result.code, error_message=result.message, topics=topics, nodes=nodes
    )


def _asks_for_metadata(request: Any) -> bool:
    asked = [
        (topic.topic_name, partition.partition_index)
        for topic in request.topics
        for partition in topic.partitions
    ]
    return asked == [(METADATA_TOPIC, 0)]


def _unknown(call: Call) -> tuple[Any, ...]:
    make = call.make
    return tuple(
        make.TopicData(
            topic_name=topic.topic_name,
            partitions=tuple(
                make.PartitionData(
                    partition_index=partition.partition_index,
                    error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    error_message=f"DescribeQuorum describes {METADATA_TOPIC}-0 only.",
                    leader_id=NO_BROKER,
                    leader_epoch=-1,
                    high_watermark=-1,
                    current_voters=(),
                    observers=(),
                )
                for partition in topic.partitions
            ),
        )
        for topic in call.message.topics
    )


def _quorum(call: Call, quorum: QuorumDescription, note: str | None) -> Any:
    make = call.make
    return make.TopicData(
        topic_name=METADATA_TOPIC,
        partitions=(
            make.PartitionData(
                partition_index=0,
                error_code=ErrorCode.NONE,
                error_message=note,
                leader_id=quorum.leader_id,
                leader_epoch=quorum.epoch,
                high_watermark=quorum.high_watermark,
                current_voters=tuple(_replica(call, each) for each in quorum.voters),
                observers=tuple(_replica(call, each) for each in quorum.observers),
            ),
        ),
    )


def _replica(call: Call, replica: ReplicaDescription) -> Any:
    directory = replica.key.directory_id
    return call.make.ReplicaState(
        replica_id=replica.key.id,
        replica_directory_id=None if directory == UUID(int=0) else directory,
        log_end_offset=replica.log_end_offset,
        last_fetch_timestamp=replica.last_fetch_ms,
        last_caught_up_timestamp=replica.last_caught_up_ms,
    )


def _node(call: Call, voter: ReplicaDescription) -> Any:
    make = call.make
    return make.Node(
        node_id=voter.key.id,
        listeners=tuple(
            make.Listener(name=each.listener, host=each.host, port=each.port) for each in voter.endpoints
        ),
    )


HANDLERS: dict[Api, Callable[[Context, Call], Any]] = {
    Api.DESCRIBE_CLUSTER: describe_cluster,
    Api.DESCRIBE_QUORUM: describe_quorum,
}
AT_CONTROLLERS: dict[Api, Callable[[Context, Call], Any]] = {
    Api.DESCRIBE_CLUSTER: describe_controllers,
    Api.DESCRIBE_QUORUM: describe_quorum_here,
}
