"""Topics: listed, created, described, given more partitions, deleted."""

from heapq import nsmallest
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import uuid_text
from penstock.base.internal_topics import INTERNAL_TOPICS
from penstock.base.steps import Steps, next_tick
from penstock.gateway.http.protocol.errors import topic_error
from penstock.gateway.http.protocol.messages import HttpError, Query, Request, Response, Routes, json
from penstock.gateway.http.protocol.parameters import TopicName, topic_in
from penstock.gateway.http.protocol.settings_json import TopicSettings, check_in_sync, new_texts
from penstock.gateway.peer_rpc.messages import Bounds
from penstock.gateway.peer_rpc.routed_partition import RoutedPartition, look_up_bounds
from penstock.gateway.peer_rpc.service import bounds_of
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
from penstock.metadata.controller.topics import NAME_LENGTH_MAX, PARTITIONS_MAX
from penstock.metadata.image import Topic
from penstock.replica.partition import NO_LEADER

LISTED: Final = 1_000
LISTED_MAX: Final = 10_000

PARTITIONS_A_TICK: Final = 500
"""Partitions that are described in one tick: a millisecond or two."""

PARTITIONS_OF_A_TOPIC_MAX: Final = 2**31 - 1
REPLICAS_MAX: Final = 2**15 - 1
"""As the protocol counts them."""


ROUTES = Routes("topics")


class TopicListing(msgspec.Struct):
    name: str
    id: str
    partitions: int
    """Number of partitions."""
    replication_factor: int
    internal: bool
    """Whether the topic holds state of the cluster."""


class TopicList(msgspec.Struct):
    topics: list[TopicListing]
    """In order of name."""
    next: str | None
    """The `after` of the next page; null on the last page."""


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


class TopicDescription(msgspec.Struct):
    name: str
    id: str
    internal: bool
    partitions: list[PartitionDescription]


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
    "GET",
    "/topics",
    "List topics in order of name.",
    query=(
        Query("after", str, "Only names after this one, in order.", max=NAME_LENGTH_MAX),
        Query("limit", int, "Maximum number of topics.", default=LISTED, min=1, max=LISTED_MAX),
        Query("internal", bool, "Include internal topics, such as `__consumer_offsets`.", default=False),
    ),
    answer=TopicList,
    rule=Rule(shows=(Need(Operation.DESCRIBE, TOPIC, "topic"),)),
)
def _list(gateway: Any, request: Request) -> Response:
    context: Context = gateway.context
    after, limit, internal = request.query["after"], request.query["limit"], request.query["internal"]
    names = (
        name
        for name in context.image.topics
        if (after is None or name > after)
        and (internal or name not in INTERNAL_TOPICS)
        and context.permits(request.session, Operation.DESCRIBE, TOPIC, name)
    )
    found = nsmallest(limit + 1, names)
    rows = [_listed(context.image.topics[name]) for name in found[:limit]]
    return json(TopicList(rows, found[limit - 1] if len(found) > limit else None))


def _listed(topic: Topic) -> TopicListing:
    first = topic.partitions[0]
    return TopicListing(
        topic.name,
        uuid_text(topic.id),
        len(topic.partitions),
        len(first.replicas),
        topic.name in INTERNAL_TOPICS,
    )


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
    answer=TopicDescription,
    errors=(404,),
    rule=Rule((Need(Operation.DESCRIBE, TOPIC, "topic"),)),
)
def _describe(gateway: Any, request: Request) -> Steps[Response]:
    context: Context = gateway.context
    topic = topic_in(context, request)
    return (yield from _described(context, topic))


def _described(context: Context, topic: Topic) -> Steps[Response]:
    rows = []
    away = yield from _elsewhere(context, topic)
    for count, number in enumerate(sorted(topic.partitions), 1):
        rows.append(_partition(context, topic, number, away.get(number)))
        if count % PARTITIONS_A_TICK == 0:
            yield next_tick(context.world)
    return json(TopicDescription(topic.name, uuid_text(topic.id), topic.name in INTERNAL_TOPICS, rows))


def _elsewhere(context: Context, topic: Topic) -> Steps[dict[int, Bounds]]:
    """What others say of the partitions that they lead; nothing of those whose leader does not answer."""
    partitions = [
        RoutedPartition(context, topic.name, topic.id, number)
        for number, placed in topic.partitions.items()
        if placed.leader not in (context.node_id, NO_LEADER)
    ]
    looked = yield from look_up_bounds(context, partitions, retries=False)
    return {each.number: bounds for each, bounds in looked.items()}


def _partition(context: Context, topic: Topic, number: int, away: Bounds | None) -> PartitionDescription:
    known = topic.partitions[number]
    row = PartitionDescription(
        number,
        known.leader if known.leader >= 0 else None,
        known.leader_epoch,
        list(known.replicas),
        list(known.isr),
    )
    led = context.replicas.led(topic.id, number)
    bounds = away if led is None else bounds_of(led)
    if bounds is not None:
        row.log_start, row.end = bounds.log_start, bounds.log_end
        row.high_watermark, row.last_stable = bounds.high_watermark, bounds.last_stable
        row.size_bytes = bounds.size_bytes
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
    return (yield from _described(context, find_topic(context, topic.name)))


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
