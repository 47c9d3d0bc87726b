"""Reassignments: partitions that move to other brokers, planned, started, followed and cancelled.

    POST /reassignments/plan  -->  partitions with their new replicas  -->  POST /reassignments
                                                                            GET /reassignments, until it is empty

A plan is made by `metadata.reassignment_plan`, on a thread, and changes nothing. The controller decides what is
started. The old replicas stay until the new ones are in sync.
"""

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import TopicPartition
from penstock.base.steps import Steps, beside, next_tick
from penstock.gateway.http.cluster import BROKER_ID_MAX, PARTITIONS_A_TICK, PartitionOutcome, outcome
from penstock.gateway.http.protocol.messages import HttpError, Request, Response, Routes, json
from penstock.gateway.http.protocol.parameters import PARTITION_MAX, TopicName
from penstock.gateway.peer_rpc.administration import ask_brokers
from penstock.gateway.peer_rpc.held_replicas import bounds_of
from penstock.gateway.peer_rpc.messages import GetLogRanges
from penstock.gateway.peer_rpc.routed_partition import RoutedPartition, look_up_bounds
from penstock.gateway.shared.access import ALTER_CLUSTER, DESCRIBE_CLUSTER, Rule
from penstock.gateway.shared.controller_call import decide
from penstock.gateway.shared.topics import find_topic
from penstock.handlers.support.context import Context
from penstock.metadata.controller.requests import (
    AlterReassignments,
    ListReassignments,
    PartitionTarget,
    Reassignment,
    ReassignmentResult,
)
from penstock.metadata.controller.topics import PARTITIONS_MAX
from penstock.metadata.reassignment_plan import Assignment, CannotPlan, PlannedBroker, plan

PLANNED_MAX: Final = 20_000
"""Partitions of a plan: a few hundred milliseconds on a thread."""

TOPICS_MAX: Final = 1_000
BROKERS_MAX: Final = 1_000
REPLICAS_MAX: Final = 1_000
FOLLOWED_MAX: Final = 1_000
"""Moving partitions whose progress is looked up."""

_BrokerId = Annotated[int, Meta(ge=0, le=BROKER_ID_MAX)]
_BrokerIds = Annotated[list[_BrokerId], Meta(min_length=1, max_length=BROKERS_MAX)]

ROUTES = Routes("reassignments")


class MovingPartition(msgspec.Struct):
    topic: str
    partition: int
    replicas: list[int]
    """All current replicas, including those being added and removed."""
    adding: list[int]
    removing: list[int]
    behind: int | None
    """Records that the slowest added replica lacks; null if it is not known."""
    progress: float | None
    """How much of the log the slowest added replica has: from 0 to 1."""


class MovingPartitions(msgspec.Struct):
    partitions: list[MovingPartition]


class PlanRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Replicas are spread evenly, over different racks, with as few moves as possible."""

    topics: Annotated[list[TopicName], Meta(min_length=1, max_length=TOPICS_MAX)] | None = None
    """Default: all topics."""
    brokers: _BrokerIds | None = None
    """Brokers for the replicas. Default: all that are not fenced."""
    drain: _BrokerIds | None = None
    """Brokers that give up their replicas."""
    replication_factor: Annotated[int, Meta(ge=1, le=REPLICAS_MAX)] | None = None
    """Default: as it is."""
    ignore_racks: bool = False


class PlannedPartition(msgspec.Struct):
    topic: str
    partition: int
    current: list[int]
    """Replicas now, or the target of a running reassignment."""
    replicas: list[int]
    """Replicas to be, in order of preference."""
    adding: list[int]
    removing: list[int]
    size_bytes: int | None
    """Size of the log, which each added replica copies; null if the leader does not answer."""


class Plan(msgspec.Struct):
    partitions: list[PlannedPartition]
    """Partitions that change; empty if nothing has to move."""
    copies: int
    """Replicas to copy."""
    copied_bytes: int
    """Bytes to copy, of the logs whose size is known."""
    unchanged: int
    """Number of partitions that stay as they are."""


class TargetPartition(msgspec.Struct, forbid_unknown_fields=True):
    topic: TopicName
    partition: Annotated[int, Meta(ge=0, le=PARTITION_MAX)]
    replicas: Annotated[list[_BrokerId], Meta(min_length=1, max_length=REPLICAS_MAX)]
    """In order of preference."""


class ReassignRequest(msgspec.Struct, forbid_unknown_fields=True):
    partitions: Annotated[list[TargetPartition], Meta(min_length=1, max_length=PARTITIONS_MAX)]


class NamedPartition(msgspec.Struct, forbid_unknown_fields=True):
    topic: TopicName
    partition: Annotated[int, Meta(ge=0, le=PARTITION_MAX)]


class CancelRequest(msgspec.Struct, forbid_unknown_fields=True):
    partitions: Annotated[list[NamedPartition], Meta(min_length=1, max_length=PARTITIONS_MAX)] | None = None
    """null cancels all."""


class ReassignResponse(msgspec.Struct):
    changed: int
    """Number of partitions that started to move, or whose move was cancelled."""
    partitions: list[PartitionOutcome]


# -- in progress ---------------------------------------------------------------------------------------------


@ROUTES.add(
    "GET",
    "/reassignments",
    "Partitions that move to other brokers, and how far they are.",
    answer=MovingPartitions,
    rule=Rule((DESCRIBE_CLUSTER,)),
)
def _list(gateway: Any, _: Request) -> Steps[Response]:
    context: Context = gateway.context
    moving: tuple[Reassignment, ...] = yield from decide(context, ListReassignments())
    followed = [each for each in moving if context.image.partition(each.topic, each.partition) is not None][
        :FOLLOWED_MAX
    ]
    ranges: dict[int, Any] = {}
    if followed:
        keys = tuple((context.image.topics[each.topic].id, each.partition) for each in followed)
        ranges = yield from ask_brokers(context, GetLogRanges(keys))
    known = {
        (each.topic, each.partition): {
            broker_id: answer[at]
            for broker_id, answer in ranges.items()
            if not isinstance(answer, KafkaError) and answer[at] is not None
        }
        for at, each in enumerate(followed)
    }
    rows = [_row(context, each, known.get((each.topic, each.partition), {})) for each in moving]
    return json(MovingPartitions(rows))


def _row(context: Context, moved: Reassignment, logs: dict[int, tuple[int, int]]) -> MovingPartition:
    row = MovingPartition(
        moved.topic,
        moved.partition,
        list(moved.replicas),
        list(moved.adding),
        list(moved.removing),
        None,
        None,
    )
    placed = context.image.partition(moved.topic, moved.partition)
    leader = None if placed is None else logs.get(placed.leader)
    if leader is not None and moved.adding and all(each in logs for each in moved.adding):
        start, end = leader
        reached = min(logs[each][1] for each in moved.adding)
        row.behind = max(end - reached, 0)
        row.progress = 1.0 if end <= start else min(max((reached - start) / (end - start), 0.0), 1.0)
    return row


# -- planning ------------------------------------------------------------------------------------------------


@ROUTES.add(
    "POST",
    "/reassignments/plan",
    "Plan where replicas should be: to drain a broker, to use a new one, or to change the replication factor. "
    "Changes nothing.",
    body=PlanRequest,
    answer=Plan,
    errors=(404, 409),
    rule=Rule((DESCRIBE_CLUSTER,)),
    changes=False,
)
def _plan(gateway: Any, request: Request) -> Steps[Response]:
    context: Context = gateway.context
    wanted: PlanRequest = request.body
    brokers = _planned_brokers(context, wanted)
    current = yield from _current(context, wanted.topics)

    def work() -> Assignment | str:
        try:
            return plan(current, brokers, wanted.replication_factor)
        except CannotPlan as error:
            return str(error)

    proposed: Assignment | str = yield beside(context.world, work, lambda error: KafkaError(str(error)))
    if isinstance(proposed, str):
        raise HttpError(409, "cannot_plan", proposed)
    changed = {each: replicas for each, replicas in proposed.items() if replicas != current[each]}
    sizes = yield from _sizes(context, list(changed))
    rows = [
        PlannedPartition(
            *name,
            list(current[name]),
            list(replicas),
            [each for each in replicas if each not in current[name]],
            [each for each in current[name] if each not in replicas],
            sizes.get(name),
        )
        for name, replicas in changed.items()
    ]
    copies = sum(len(each.adding) for each in rows)
    copied = sum(len(each.adding) * (each.size_bytes or 0) for each in rows)
    return json(Plan(rows, copies, copied, len(current) - len(changed)))


def _planned_brokers(context: Context, wanted: PlanRequest) -> list[PlannedBroker]:
    known = context.image.brokers
    for each in (*(wanted.brokers or ()), *(wanted.drain or ())):
        if each not in known:
            ids = ", ".join(map(str, sorted(known)))
            raise HttpError(404, "unknown_broker", f"there is no broker {each}; the cluster has {ids}")
    usable = [each for each, broker in sorted(known.items()) if not broker.fenced]
    drained = set(wanted.drain or ())
    chosen = [each for each in dict.fromkeys(wanted.brokers or usable) if each not in drained]
    if not chosen:
        raise HttpError(409, "cannot_plan", "no broker is left for the replicas")
    return [PlannedBroker(each, None if wanted.ignore_racks else known[each].rack) for each in chosen]


def _current(context: Context, topics: list[str] | None) -> Steps[Assignment]:
    """Replicas of the partitions, or the target of a reassignment that is not done."""
    image = context.image
    names = sorted(image.topics) if topics is None else list(dict.fromkeys(topics))
    found: Assignment = {}
    counted = 0
    for name in names:
        for number, each in sorted(find_topic(context, name).partitions.items()):
            found[TopicPartition(name, number)] = tuple(
                replica for replica in each.replicas if replica not in each.removing
            )
        if len(found) > PLANNED_MAX:
            raise HttpError(
                409,
                "cannot_plan",
                f"the topics have more than {PLANNED_MAX} partitions: plan some of them at a time",
            )
        if len(found) - counted >= PARTITIONS_A_TICK:
            counted = len(found)
            yield next_tick(context.world)
    return found


def _sizes(context: Context, names: list[TopicPartition]) -> Steps[dict[TopicPartition, int]]:
    partitions = [
        RoutedPartition(context, *_key(context, each))
        for each in names
        if (placed := context.image.partition(*each)) is not None and placed.leader >= 0
    ]
    away = yield from look_up_bounds(context, partitions, retries=False)
    sizes = {each.name: bounds.size_bytes for each, bounds in away.items()}
    for each in partitions:
        here = each.here
        if here is not None:
            sizes[each.name] = bounds_of(here).size_bytes
    return sizes


def _key(context: Context, name: TopicPartition) -> tuple[str, Any, int]:
    return name.topic, context.image.topics[name.topic].id, name.partition


# -- changes -------------------------------------------------------------------------------------------------


@ROUTES.add(
    "POST",
    "/reassignments",
    "Start to move partitions to other brokers, or change the order of their replicas.",
    body=ReassignRequest,
    answer=ReassignResponse,
    errors=(404, 409),
    rule=Rule((ALTER_CLUSTER,)),
)
def _reassign(gateway: Any, request: Request) -> Steps[Response]:
    wanted: ReassignRequest = request.body
    targets = tuple(
        PartitionTarget(each.topic, each.partition, tuple(each.replicas)) for each in wanted.partitions
    )
    return (yield from _alter(gateway.context, targets))


@ROUTES.add(
    "POST",
    "/reassignments/cancel",
    "Cancel moves that are not done: replicas being added are removed, and the old replicas stay.",
    body=CancelRequest,
    answer=ReassignResponse,
    errors=(404, 409),
    rule=Rule((ALTER_CLUSTER,)),
)
def _cancel(gateway: Any, request: Request) -> Steps[Response]:
    context: Context = gateway.context
    wanted: CancelRequest = request.body
    if wanted.partitions is None:
        moving: tuple[Reassignment, ...] = yield from decide(context, ListReassignments())
        names = [(each.topic, each.partition) for each in moving]
    else:
        names = [(each.topic, each.partition) for each in wanted.partitions]
    if not names:
        return json(ReassignResponse(0, []))
    return (yield from _alter(context, tuple(PartitionTarget(*each, None) for each in names)))


def _alter(context: Context, targets: tuple[PartitionTarget, ...]) -> Steps[Response]:
    named = {(each.topic, each.partition) for each in targets}
    if len(named) < len(targets):
        raise HttpError(409, "duplicate_partition", "a partition is named twice")
    results: tuple[ReassignmentResult, ...] = yield from decide(context, AlterReassignments(targets))
    refused = [each for each in results if each.result.code is not ErrorCode.NONE]
    if len(refused) == len(results):  # nothing was changed
        first = refused[0]
        message = f"{first.topic}-{first.partition}: {first.result.message or first.result.code.name}"
        if (
            first.result.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        ):  # of brokers that the cluster does not have
            raise HttpError(409, first.result.code.name.lower(), message)
        raise KafkaError(message, first.result.code)
    rows = [outcome(each.topic, each.partition, each.result) for each in results]
    return json(ReassignResponse(len(results) - len(refused), rows))
