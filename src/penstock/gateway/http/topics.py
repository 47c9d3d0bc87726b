"""Topics: created, described, given more partitions, deleted."""

from collections.abc import Callable
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import uuid_text
from penstock.base.internal_topics import INTERNAL_TOPICS
from penstock.base.steps import Steps, next_tick
from penstock.gateway.http.protocol.errors import topic_error
from penstock.gateway.http.protocol.messages import HttpError, Query, Request, Response, Routes, json
from penstock.gateway.http.protocol.parameters import PARTITION_MAX, TopicName, topic_in
from penstock.gateway.http.protocol.settings_json import TopicSettings, check_in_sync, new_texts
from penstock.gateway.http.topic_list import TopicListing, listing
from penstock.gateway.peer_rpc.held_replicas import bounds_of
from penstock.gateway.peer_rpc.messages import Bounds
from penstock.gateway.peer_rpc.replica_states import TopicReplicas, topic_replicas
from penstock.gateway.peer_rpc.routed_partition import RoutedPartition, look_up_bounds
from penstock.gateway.shared.access import TOPIC, Need, Rule
from penstock.gateway.shared.controller_call import check, decide
from penstock.gateway.shared.door_quotas import charge_change, give_back_change
from penstock.gateway.shared.topics import find_topic
from penstock.handlers.support.context import Context
from penstock.metadata.acls import Operation
from penstock.metadata.configs import broker_setting
from penstock.metadata.controller.requests import (
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    MorePartitions,
    NewTopic,
    Result,
)
from penstock.metadata.controller.topics import PARTITIONS_MAX
from penstock.metadata.image import Topic
from penstock.replica.partition import NO_LEADER

PARTITIONS_A_TICK: Final = 200
"""Partitions that are described in one tick: a millisecond or two."""

PARTITIONS_OF_A_TOPIC_MAX: Final = 2**31 - 1
REPLICAS_MAX: Final = 2**15 - 1
"""As the protocol counts them."""


ROUTES = Routes("topics")


class ReplicaDescription(msgspec.Struct):
    broker: int
    is_leader: bool
    in_sync: bool
    log_end: int | None
    """Log end offset. Of a follower, what its fetches have told the leader; null if it is not known."""
    lag: int | None
    """Records that the leader has and it lacks."""
    behind_ms: int | None
    """How long ago it was last at the leader's log end; 0 if it is there, null if it is not known."""
    size_bytes: int | None
    """null if its broker did not answer."""


class PartitionDescription(msgspec.Struct):
    """Fields from `log_start` on are known to the leader alone, and null if it does not answer."""

    partition: int
    leader: int | None
    leader_epoch: int
    replicas: list[int]
    isr: list[int]
    log_start: int | None = None
    """The first offset."""
    end: int | None = None
    """Log end offset: the offset of the next record."""
    high_watermark: int | None = None
    """The first offset that is not on every in-sync replica. Consumers read below it."""
    last_stable: int | None = None
    """Last stable offset: `read_committed` consumers read below it."""
    size_bytes: int | None = None
    segments: int | None = None
    """With `details`: number of segments."""
    lag_max: int | None = None
    """With `details`: the largest lag of a follower, in records. null if the log end of one is not known."""
    replica_states: list[ReplicaDescription] | None = None
    """With `details`: each replica, in the order of `replicas`."""


class TopicDescription(msgspec.Struct):
    name: str
    id: str
    internal: bool
    partitions: list[PartitionDescription]
    unanswered: list[int] | None = None
    """With `details`: brokers that did not answer. What depends on them is null."""
    summary: TopicListing | None = None
    """With `details`: the topic's row in the list of topics, with its rates and retention."""


class CreateTopicRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A topic to create."""

    name: TopicName
    partitions: Annotated[int, Meta(ge=1, le=PARTITIONS_MAX)] | None = None
    """Default: `num.partitions`."""
    replication_factor: Annotated[int, Meta(ge=1, le=REPLICAS_MAX)] | None = None
    """Default: `default.replication.factor`."""
    configs: TopicSettings = {}
    """Configs of the topic by name, such as `retention.ms`."""


class CreatePartitionsRequest(msgspec.Struct, forbid_unknown_fields=True):
    partitions: Annotated[int, Meta(ge=1, le=PARTITIONS_OF_A_TOPIC_MAX)]
    """The new number of partitions; not less than now."""


class DeleteTopicResponse(msgspec.Struct):
    status: str = "deleted"


@ROUTES.add(
    "POST",
    "/topics",
    "Create a topic.",
    body=CreateTopicRequest,
    answer=TopicListing,
    status=201,
    errors=(409,),
    rule=Rule((Need(Operation.CREATE, TOPIC, "name", or_on_cluster=True),)),
)
def _create(gateway: Any, request: Request) -> Steps[Response]:
    context: Context = gateway.context
    wanted: CreateTopicRequest = request.body
    configs = new_texts(wanted.name, wanted.configs)
    usual = broker_setting("default.replication.factor", context.image, context.settings)
    check_in_sync("the topic", configs, wanted.replication_factor or int(usual or 1))
    topic = NewTopic(
        wanted.name,
        wanted.partitions or -1,
        wanted.replication_factor or -1,
        configs=configs,
    )
    count = wanted.partitions or int(broker_setting("num.partitions", context.image, context.settings) or 1)
    [created] = yield from _counted(context, request, count, CreateTopics((topic,)))
    check_settings(created.result)
    try:
        check(created.result, f"topic {wanted.name!r} could not be created")
    except KafkaError as error:
        raise topic_error(error, wanted.name) from error
    made = TopicListing(
        wanted.name,
        uuid_text(created.topic_id),
        created.partitions,
        created.replication_factor,
        wanted.name in INTERNAL_TOPICS,
    )
    return json(made, 201)._replace(headers=(("Location", f"/topics/{wanted.name}"),))


def _counted(context: Context, request: Request, partitions: int, change: Any) -> Steps[Any]:
    """The controller's reply to a change of one topic, which counts by its partitions (`controller_mutation_rate`)."""
    charge_change(context, request.session, partitions)
    results = yield from decide(context, change)
    if results[0].result.code is not ErrorCode.NONE:
        give_back_change(context, request.session, partitions)
    return results


def check_settings(result: Result) -> None:
    """Settings that are good one by one, and refused all the same, are at odds with each other."""
    if result.code is ErrorCode.INVALID_CONFIG:
        raise HttpError(409, "invalid_config", result.message or "the configs contradict each other")


@ROUTES.add(
    "GET",
    "/topics/{topic}",
    "Describe a topic and its partitions: leaders, replicas, offsets and sizes.",
    query=(
        Query("details", bool, "Include the log end, lag and size of each replica.", default=False),
        Query("from", int, "Only partitions from this number on.", default=0, min=0, max=PARTITION_MAX),
        Query("limit", int, "Maximum number of partitions; all without it.", min=1, max=PARTITION_MAX),
    ),
    answer=TopicDescription,
    errors=(404,),
    rule=Rule((Need(Operation.DESCRIBE, TOPIC, "topic"),)),
)
def _describe(gateway: Any, request: Request) -> Steps[Response]:
    context: Context = gateway.context
    topic = topic_in(context, request)
    query = request.query
    numbers = sorted(each for each in topic.partitions if each >= query["from"])[: query["limit"]]
    if query["details"]:
        return (yield from _with_replicas(gateway, topic, numbers))
    return (yield from _described(context, topic, numbers))


def _described(context: Context, topic: Topic, numbers: list[int]) -> Steps[Response]:
    away = yield from _elsewhere(context, topic, numbers)

    def bounds(number: int) -> Bounds | None:
        led = context.replicas.led(topic.id, number)
        return away.get(number) if led is None else bounds_of(led)

    return json(
        (yield from _rows(context, topic, numbers, lambda each: _partition(topic, each, bounds(each))))
    )


def _with_replicas(gateway: Any, topic: Topic, numbers: list[int]) -> Steps[Response]:
    context: Context = gateway.context
    summary = yield from listing(gateway, topic)
    found = yield from topic_replicas(context, topic, numbers)
    description = yield from _rows(context, topic, numbers, lambda each: _detailed(topic, each, found))
    description.unanswered, description.summary = found.unanswered, summary
    return json(description)


def _rows(
    context: Context, topic: Topic, numbers: list[int], row: Callable[[int], PartitionDescription]
) -> Steps[TopicDescription]:
    rows = []
    for count, number in enumerate(numbers, 1):
        rows.append(row(number))
        if count % PARTITIONS_A_TICK == 0:
            yield next_tick(context.world)
    return TopicDescription(topic.name, uuid_text(topic.id), topic.name in INTERNAL_TOPICS, rows)


def _elsewhere(context: Context, topic: Topic, numbers: list[int]) -> Steps[dict[int, Bounds]]:
    """What others say of the partitions that they lead; nothing of those whose leader does not answer."""
    partitions = [
        RoutedPartition(context, topic.name, topic.id, number)
        for number in numbers
        if topic.partitions[number].leader not in (context.node_id, NO_LEADER)
    ]
    looked = yield from look_up_bounds(context, partitions, retries=False)
    return {each.number: bounds for each, bounds in looked.items()}


def _partition(topic: Topic, number: int, bounds: Bounds | None) -> PartitionDescription:
    known = topic.partitions[number]
    row = PartitionDescription(
        number,
        known.leader if known.leader >= 0 else None,
        known.leader_epoch,
        list(known.replicas),
        list(known.isr),
    )
    if bounds is not None:
        row.log_start, row.end = bounds.log_start, bounds.log_end
        row.high_watermark, row.last_stable = bounds.high_watermark, bounds.last_stable
        row.size_bytes = bounds.size_bytes
    return row


def _detailed(topic: Topic, number: int, found: TopicReplicas) -> PartitionDescription:
    placed = topic.partitions[number]
    leader = found.leader(placed.leader, number)
    row = _partition(topic, number, None if leader is None else leader.bounds)
    if leader is not None:
        row.segments = leader.segments
    followers = {} if leader is None else {each.broker: each for each in leader.followers}
    states = []
    for broker in placed.replicas:
        held = found.by_broker.get(broker, {}).get(number)
        log_end, behind_ms = None, None
        if broker == placed.leader:
            log_end, behind_ms = row.end, None if leader is None else 0
        elif broker in followers and followers[broker].log_end >= 0:
            log_end, behind_ms = followers[broker].log_end, followers[broker].behind_ms
        states.append(
            ReplicaDescription(
                broker,
                broker == placed.leader,
                broker in placed.isr,
                log_end,
                None if log_end is None or row.end is None else max(row.end - log_end, 0),
                behind_ms,
                None if held is None else held.size_bytes,
            )
        )
    row.replica_states = states
    lags = [each.lag for each in states if each.lag is not None]
    row.lag_max = max(lags) if lags and len(lags) == len(states) else None
    return row


@ROUTES.add(
    "PATCH",
    "/topics/{topic}",
    "Add partitions to a topic.",
    body=CreatePartitionsRequest,
    answer=TopicDescription,
    errors=(404, 409),
    rule=Rule((Need(Operation.ALTER, TOPIC, "topic"),)),
)
def _change(gateway: Any, request: Request) -> Steps[Response]:
    context: Context = gateway.context
    topic = topic_in(context, request)
    total = request.body.partitions
    if total != len(topic.partitions):  # a retry finds it done
        more = CreatePartitions((MorePartitions(topic.name, total),))
        [changed] = yield from _counted(context, request, max(total - len(topic.partitions), 0), more)
        check(changed.result, f"topic {topic.name!r} could not be given {total} partitions")
    changed_topic = find_topic(context, topic.name)
    return (yield from _described(context, changed_topic, sorted(changed_topic.partitions)))


@ROUTES.add(
    "DELETE",
    "/topics/{topic}",
    "Delete a topic with all of its records.",
    answer=DeleteTopicResponse,
    errors=(404, 409),
    rule=Rule((Need(Operation.DELETE, TOPIC, "topic"),)),
)
def _delete(gateway: Any, request: Request) -> Steps[Response]:
    context: Context = gateway.context
    topic = topic_in(context, request)
    if topic.name in INTERNAL_TOPICS:
        raise HttpError(
            403,
            "invalid_topic_exception",
            f"{topic.name} is an internal topic and cannot be deleted over HTTP",
        )
    [deleted] = yield from _counted(context, request, len(topic.partitions), DeleteTopics((topic.name,)))
    check(deleted.result, f"topic {topic.name!r} could not be deleted")
    return json(DeleteTopicResponse())
