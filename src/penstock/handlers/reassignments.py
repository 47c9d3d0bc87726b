"""Operators' changes of replicas, leaders and brokers.

    AlterPartitionReassignments 0 to 1        move replicas, or cancel moves
    ListPartitionReassignments 0              moves in progress
    ElectLeaders 0 to 2                       elect preferred or unclean leaders
    UnregisterBroker 0                        remove a broker's registration

The controller decides. An error of the whole request is set at the top of the response and in each requested row. All
need ALTER on the cluster, ListPartitionReassignments DESCRIBE.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from penstock.base.errors import KafkaError
from penstock.base.steps import Steps
from penstock.metadata.acls import CLUSTER_NAME, AclResourceType, Operation
from penstock.metadata.controller.requests import (
    AlterReassignments,
    Election,
    ElectLeaders,
    ListReassignments,
    PartitionTarget,
    Reassignment,
    Result,
    UnregisterBroker,
)
from penstock.wire import Api

from .support.context import Call, Context
from .support.controller_call import default_wait_ms, submit, wait_ms_of
from .support.response_fields import DENIED_CLUSTER, NO_THROTTLE, refusal
from .support.waiting import in_steps


@in_steps
def alter_partition_reassignments(context: Context, call: Call) -> Steps[Any]:
    """AlterPartitionReassignments 0 to 1: start moving replicas of partitions (KIP-455).

    A null list of replicas cancels a move: NO_REASSIGNMENT_IN_PROGRESS if there is none. An empty list, one with a
    broker twice or with a broker that is not registered gets INVALID_REPLICA_ASSIGNMENT, and so does a move that
    cannot be cancelled without an unclean election that is not allowed. The reply confirms that a move has begun.

    Version notes: 1 can forbid changes of the replication factor: INVALID_REPLICATION_FACTOR (KIP-860).
    """
    make, request = call.make, call.message
    allow_factor_change = getattr(request, "allow_replication_factor_change", True)
    targets = tuple(
        PartitionTarget(
            topic.name, each.partition_index, None if each.replicas is None else tuple(each.replicas)
        )
        for topic in request.topics
        for each in topic.partitions
    )
    moves = AlterReassignments(targets, allow_factor_change)
    partitions = [(each.topic, each.partition) for each in targets]
    whole, results = yield from _decide(context, call, moves, partitions, wait_ms_of(request.timeout))
    return make.AlterPartitionReassignmentsResponse(
        throttle_time=NO_THROTTLE,
        allow_replication_factor_change=allow_factor_change,
        error_code=whole.code,
        error_message=whole.message,
        responses=tuple(
            make.ReassignableTopicResponse(
                name=topic.name,
                partitions=tuple(
                    make.ReassignablePartitionResponse(
                        partition_index=each.partition_index,
                        error_code=results[topic.name, each.partition_index].code,
                        error_message=results[topic.name, each.partition_index].message,
                    )
                    for each in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )


@in_steps
def list_partition_reassignments(context: Context, call: Call) -> Steps[Any]:
    """ListPartitionReassignments 0: the requested partitions, or all, whose replicas move (KIP-455).

    A partition that does not move, or does not exist, has no row.
    """
    make, request = call.make, call.message
    whole, moving = Result(), tuple[Reassignment, ...]()
    if not context.authorize(call.session, Operation.DESCRIBE, AclResourceType.CLUSTER, CLUSTER_NAME):
        whole = DENIED_CLUSTER
    else:
        requested = None
        if request.topics is not None:
            requested = tuple(
                (topic.name, each) for topic in request.topics for each in topic.partition_indexes
            )
        try:
            moving = yield submit(context, ListReassignments(requested), wait_ms_of(request.timeout))
        except KafkaError as error:
            whole = refusal(error)
    return make.ListPartitionReassignmentsResponse(
        throttle_time=NO_THROTTLE,
        error_code=whole.code,
        error_message=whole.message,
        topics=_moving(call, moving),
    )


def _moving(call: Call, moving: Iterable[Reassignment]) -> tuple[Any, ...]:
    make = call.make
    by_topic: dict[str, list[Any]] = {}
    for each in moving:
        by_topic.setdefault(each.topic, []).append(
            make.OngoingPartitionReassignment(
                partition_index=each.partition,
                replicas=each.replicas,
                adding_replicas=each.adding,
                removing_replicas=each.removing,
            )
        )
    return tuple(
        make.OngoingTopicReassignment(name=topic, partitions=tuple(rows)) for topic, rows in by_topic.items()
    )


@in_steps
def elect_leaders(context: Context, call: Call) -> Steps[Any]:
    """ElectLeaders 0 to 2: elect the preferred replica, or with the unclean type any live replica.

    A request without partitions covers all, and leaves out those that need no election; a named partition that needs
    none gets ELECTION_NOT_NEEDED. PREFERRED_LEADER_NOT_AVAILABLE where the preferred replica cannot lead,
    ELIGIBLE_LEADERS_NOT_AVAILABLE where no replica is alive; an unknown type gets INVALID_REQUEST.

    Version notes: 0 elects preferred replicas only, and has no error for the whole; 1 adds types (KIP-460); 2 is
    flexible.
    """
    make, request = call.make, call.message
    partitions: list[tuple[str, int]] | None = None
    if request.topic_partitions is not None:
        named = ((topic.topic, each) for topic in request.topic_partitions for each in topic.partitions)
        partitions = list(dict.fromkeys(named))
    kind = getattr(request, "election_type", Election.PREFERRED)
    election = ElectLeaders(kind, None if partitions is None else tuple(partitions))
    whole, results = yield from _decide(
        context, call, election, partitions or (), wait_ms_of(request.timeout)
    )
    by_topic: dict[str, list[Any]] = {}
    for (topic, number), (code, message) in results.items():
        row = make.PartitionResult(partition_id=number, error_code=code, error_message=message)
        by_topic.setdefault(topic, []).append(row)
    return make.ElectLeadersResponse(
        throttle_time=NO_THROTTLE,
        error_code=whole.code,
        replica_election_results=tuple(
            make.ReplicaElectionResult(topic=topic, partition_result=tuple(rows))
            for topic, rows in by_topic.items()
        ),
    )


@in_steps
def unregister_broker(context: Context, call: Call) -> Steps[Any]:
    """UnregisterBroker 0: remove the registration of a broker that will not return, and remove it from all ISRs.

    A broker that is not registered gets BROKER_ID_NOT_REGISTERED. Its replicas stay assigned to it: reassign them
    first.
    """
    result = Result()
    if not context.authorize(call.session, Operation.ALTER, AclResourceType.CLUSTER, CLUSTER_NAME):
        result = DENIED_CLUSTER
    else:
        try:
            yield submit(context, UnregisterBroker(call.message.broker_id), default_wait_ms(context))
        except KafkaError as error:
            result = refusal(error)
    return call.make.UnregisterBrokerResponse(
        throttle_time=NO_THROTTLE, error_code=result.code, error_message=result.message
    )


def _decide(
    context: Context, call: Call, request: Any, partitions: Iterable[tuple[str, int]], wait_ms: int
) -> Steps[tuple[Result, Mapping[tuple[str, int], Result]]]:
    """The result of the whole request, and of each partition. Needs ALTER on the cluster."""
    whole = DENIED_CLUSTER
    if context.authorize(call.session, Operation.ALTER, AclResourceType.CLUSTER, CLUSTER_NAME):
        try:
            decided = yield submit(context, request, wait_ms)
        except KafkaError as error:
            whole = refusal(error)
        else:
            return Result(), {(each.topic, each.partition): each.result for each in decided}
    return whole, dict.fromkeys(partitions, whole)


HANDLERS: dict[Api, Callable[[Context, Call], Any]] = {
    Api.ALTER_PARTITION_REASSIGNMENTS: alter_partition_reassignments,
    Api.LIST_PARTITION_REASSIGNMENTS: list_partition_reassignments,
    Api.ELECT_LEADERS: elect_leaders,
    Api.UNREGISTER_BROKER: unregister_broker,
}
