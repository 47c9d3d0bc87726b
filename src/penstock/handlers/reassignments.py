"""What an operator does with replicas and brokers: AlterPartitionReassignments, ListPartitionReassignments,
ElectLeaders, UnregisterBroker.

The controller decides; here its answers find their rows. What refuses a whole request is said at the top of the
response, and in each row of what was asked for.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from penstock.base.errors import KafkaError
from penstock.base.promise import Promise
from penstock.metadata import Result
from penstock.metadata.controller.requests import (
    AlterReassignments,
    Election,
    ElectLeaders,
    ListReassignments,
    PartitionTarget,
    Reassignment,
    UnregisterBroker,
)
from penstock.wire import Api

from .support.context import CLUSTER_NAME, AclResourceType, Call, Context, Operation
from .support.controller_call import ask, default_wait_ms, wait_ms_of
from .support.response_fields import DENIED_CLUSTER, NO_THROTTLE, refusal


def alter_partition_reassignments(context: Context, call: Call) -> Any | Promise[Any]:
    """AlterPartitionReassignments 0 and 1: where replicas of partitions are to be (KIP-455).

    A partition without a list of replicas stops moving: NO_REASSIGNMENT_IN_PROGRESS where it does not. A list that is
    empty, has a broker twice or one that is not registered gets INVALID_REPLICA_ASSIGNMENT, and so does a partition
    that cannot stop without an unclean election where that is not allowed. The answer says that a move has begun, not
    that it is done.

    Version 1 can forbid other numbers of replicas than there are: INVALID_REPLICATION_FACTOR (KIP-860).
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

    def respond(answer: Any) -> Any:
        whole, results = _results(answer, [(each.topic, each.partition) for each in targets])
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

    if not context.authorize(call.session, Operation.ALTER, AclResourceType.CLUSTER, CLUSTER_NAME):
        return respond(DENIED_CLUSTER)
    return ask(
        context, AlterReassignments(targets, allow_factor_change), wait_ms_of(request.timeout), respond
    )


def list_partition_reassignments(context: Context, call: Call) -> Any | Promise[Any]:
    """ListPartitionReassignments 0: which partitions move, of those asked for or of all (KIP-455).

    What does not move, or is not there, has no row.
    """
    make, request = call.make, call.message

    def respond(answer: Any) -> Any:
        whole, moving = Result(), answer
        if isinstance(answer, KafkaError):
            whole, moving = refusal(answer), ()
        elif isinstance(answer, Result):
            whole, moving = answer, ()
        return make.ListPartitionReassignmentsResponse(
            throttle_time=NO_THROTTLE,
            error_code=whole.code,
            error_message=whole.message,
            topics=_moving(call, moving),
        )

    if not context.authorize(call.session, Operation.DESCRIBE, AclResourceType.CLUSTER, CLUSTER_NAME):
        return respond(DENIED_CLUSTER)
    asked = None
    if request.topics is not None:
        asked = tuple((topic.name, each) for topic in request.topics for each in topic.partition_indexes)
    return ask(context, ListReassignments(asked), wait_ms_of(request.timeout), respond)


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


def elect_leaders(context: Context, call: Call) -> Any | Promise[Any]:
    """ElectLeaders 0 to 2: the preferred replica leads, or, with the unclean kind, any that is alive.

    Without partitions all are looked at, and those that have the leader they should have get no row; asked for by
    name they get ELECTION_NOT_NEEDED. PREFERRED_LEADER_NOT_AVAILABLE where the first replica may not lead,
    ELIGIBLE_LEADERS_NOT_AVAILABLE where none is alive; a kind that there is not gets INVALID_REQUEST.

    Version 0 knows preferred replicas alone and has no error for the whole, 1 has kinds (KIP-460), 2 is flexible.
    """
    make, request = call.make, call.message
    asked: list[tuple[str, int]] | None = None
    if request.topic_partitions is not None:
        named = ((topic.topic, each) for topic in request.topic_partitions for each in topic.partitions)
        asked = list(dict.fromkeys(named))

    def respond(answer: Any) -> Any:
        whole, results = _results(answer, asked or ())
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

    if not context.authorize(call.session, Operation.ALTER, AclResourceType.CLUSTER, CLUSTER_NAME):
        return respond(DENIED_CLUSTER)
    kind = getattr(request, "election_type", Election.PREFERRED)
    wanted = ElectLeaders(kind, None if asked is None else tuple(asked))
    return ask(context, wanted, wait_ms_of(request.timeout), respond)


def unregister_broker(context: Context, call: Call) -> Any | Promise[Any]:
    """UnregisterBroker 0: a broker that will not come back is forgotten, and is in no ISR any more.

    One that is not registered gets BROKER_ID_NOT_REGISTERED. Its replicas stay assigned to it: they are to be
    reassigned before.
    """

    def respond(answer: Any) -> Any:
        whole = Result() if answer is None else answer
        if isinstance(answer, KafkaError):
            whole = refusal(answer)
        return call.make.UnregisterBrokerResponse(
            throttle_time=NO_THROTTLE, error_code=whole.code, error_message=whole.message
        )

    if not context.authorize(call.session, Operation.ALTER, AclResourceType.CLUSTER, CLUSTER_NAME):
        return respond(DENIED_CLUSTER)
    return ask(context, UnregisterBroker(call.message.broker_id), default_wait_ms(context), respond)


def _results(
    answer: Any, asked: Iterable[tuple[str, int]]
) -> tuple[Result, Mapping[tuple[str, int], Result]]:
    """What is said of the whole request, and of each partition."""
    whole = refusal(answer) if isinstance(answer, KafkaError) else answer
    if isinstance(whole, Result):
        return whole, dict.fromkeys(asked, whole)
    return Result(), {(each.topic, each.partition): each.result for each in whole}


HANDLERS: dict[Api, Callable[[Context, Call], Any]] = {
    Api.ALTER_PARTITION_REASSIGNMENTS: alter_partition_reassignments,
    Api.LIST_PARTITION_REASSIGNMENTS: list_partition_reassignments,
    Api.ELECT_LEADERS: elect_leaders,
    Api.UNREGISTER_BROKER: unregister_broker,
}
