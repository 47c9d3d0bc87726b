"""Brokers, topics, and the leaders and replicas of partitions.

    Metadata 0 to 13

A request may create an unknown topic. Kafka starts the creation and replies that the topic is unknown, so that the
client retries; here the reply waits for the creation, up to `CREATION_WAIT_MS`. While a leader may be failing over,
the reply waits briefly (`support.metadata_delay`).
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, Final, NamedTuple

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import Uuid
from penstock.base.internal_topics import INTERNAL_TOPICS
from penstock.base.steps import Steps, next_tick
from penstock.metadata.acls import CLUSTER_NAME, AclResourceType, Operation
from penstock.metadata.configs import broker_flag, broker_setting
from penstock.metadata.controller.requests import CreatedTopic, CreateTopics, NewTopic
from penstock.metadata.controller.topics import check_name
from penstock.metadata.image import ClusterImage, Topic
from penstock.records.structs import NO_UUID
from penstock.wire import Api

from .support.automatic_topics import automatic_topic
from .support.client_view import ClientView
from .support.context import Call, Context
from .support.controller_call import submit
from .support.metadata_delay import leaders_known
from .support.mutation_quota import MutationQuota
from .support.response_fields import (
    NO_THROTTLE,
    OPERATIONS_NOT_REQUESTED,
    cluster_operations,
    topic_operations,
    uuid_in,
    uuid_out,
)
from .support.waiting import in_steps

CREATION_WAIT_MS = 5_000
"""Well below clients' request timeout of 30 s, since later replies on the connection wait too."""

_FINAL_ERRORS = frozenset(
    {
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
)
"""Errors of a creation that a retry does not cure. With any other the topic is reported as unknown."""


PARTITIONS_A_TURN: Final = 500
"""Partitions and topics described in one tick: some 4 ms."""


class RequestedTopic(NamedTuple):
    """A topic by name, or by id."""

    name: str | None
    id: Uuid = NO_UUID


@in_steps
def metadata(context: Context, call: Call) -> Steps[Any]:
    """Metadata 0 to 13: brokers, topics, and the leaders and replicas of partitions.

    A null list requests all topics, an empty list none. A named topic that does not exist is created if both the
    request and `auto.create.topics.enable` allow it. An invalid name gets INVALID_TOPIC_EXCEPTION, an unknown topic
    UNKNOWN_TOPIC_OR_PARTITION or, by id, UNKNOWN_TOPIC_ID. A client without DESCRIBE on a topic gets
    TOPIC_AUTHORIZATION_FAILED whether or not the topic exists; among all topics it is left out.

    A partition without a leader that the client can reach has an error and leader -1, and its other fields. The
    controller id is that of a broker, since every broker accepts administrative requests.

    Version notes: in 0 an empty list requests all topics, and replicas that are down are left out, with
    REPLICA_NOT_AVAILABLE; 1 adds controller, racks and internal topics; 2 the cluster id; 4 lets the client forbid
    creation; 5 adds offline replicas; 6 has LISTENER_NOT_FOUND (before, LEADER_NOT_AVAILABLE); 7 leader epochs; 8
    authorized operations (of the cluster in 8 to 10 only); 9 is flexible; 10 returns topic ids; 12 accepts them; 13
    adds an error that makes clients rebootstrap, which this broker never sets.
    """
    try:
        requested = _requested(call)
    except KafkaError as error:
        return _response(context, call, ClientView(context, call.session), _refused(call, error.code))
    topics, refusals = _to_create(context, call, requested or [])
    if topics:
        created_topics: tuple[CreatedTopic, ...] = ()
        with suppress(KafkaError):  # then the topics are reported as unknown
            created_topics = yield submit(context, CreateTopics(tuple(topics)), CREATION_WAIT_MS)
        for created in created_topics:
            if created.result.code in _FINAL_ERRORS:
                refusals[created.name] = created.result.code
            elif created.result.code is ErrorCode.TOPIC_ALREADY_EXISTS:
                # Another request has just created it, and this node may not have its metadata yet.
                refusals[created.name] = ErrorCode.LEADER_NOT_AVAILABLE
    else:
        yield leaders_known(context, call.session, lambda: _leaders(context, requested))
    return (yield from _answer(context, call, requested, refusals))


def _requested(call: Call) -> list[RequestedTopic] | None:
    """The requested topics, each once, in the client's order; None for all."""
    topics = call.message.topics
    if topics is None or (call.version == 0 and not topics):
        return None
    requested = [RequestedTopic(each.name, uuid_in(getattr(each, "topic_id", None))) for each in topics]
    for each in requested if call.version < 12 else ():
        if each.name is None or each.id != NO_UUID:
            raise KafkaError(
                f"Metadata {call.version} identifies topics by name only; ids need version 12.",
                ErrorCode.INVALID_REQUEST,
            )
    return list(
        dict.fromkeys(each if each.id == NO_UUID else RequestedTopic(None, each.id) for each in requested)
    )


def _to_create(
    context: Context, call: Call, requested: list[RequestedTopic]
) -> tuple[list[NewTopic], dict[str, ErrorCode]]:
    """Topics to create, and errors of missing topics that this client may not create."""
    if not getattr(call.message, "allow_auto_topic_creation", True):
        return [], {}
    missing = [
        each.name
        for each in requested
        if each.name is not None and each.name not in context.image.topics and is_name(each.name)
    ]
    if not missing or not broker_flag("auto.create.topics.enable", context.image, context.settings):
        return [], {}
    topics: list[NewTopic] = []
    refusals: dict[str, ErrorCode] = {}
    quota = MutationQuota(context, call, strict_since=0)
    usual = int(broker_setting("num.partitions", context.image, context.settings) or 1)
    everywhere = context.permits(call.session, Operation.CREATE, AclResourceType.CLUSTER, CLUSTER_NAME)
    for name in missing:
        if not context.permits(call.session, Operation.DESCRIBE, AclResourceType.TOPIC, name):
            continue
        if not everywhere and not context.authorize(
            call.session, Operation.CREATE, AclResourceType.TOPIC, name
        ):
            refusals[name] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            continue
        topic = automatic_topic(name, context.image, context.settings)
        # One above the client's quota of changes is unknown for now: clients ask again.
        if topic is not None and quota.admits(max(topic.partitions, usual)):
            topics.append(topic)
    return topics, refusals


def is_name(name: str) -> bool:
    try:
        check_name(name)
    except KafkaError:
        return False
    return True


def _leaders(context: Context, requested: list[RequestedTopic] | None) -> Iterator[int]:
    """The leaders of the requested partitions."""
    topics = context.image.topics
    if requested is None:
        named = list(topics.values())
    else:
        by_name = [
            topics.get(each.name) if each.name else context.image.topic_by_id(each.id) for each in requested
        ]
        named = [each for each in by_name if each is not None]
    return (partition.leader for topic in named for partition in topic.partitions.values())


def _answer(
    context: Context, call: Call, requested: list[RequestedTopic] | None, refusals: dict[str, ErrorCode]
) -> Steps[Any]:
    """The response. Other clients are served after every PARTITIONS_A_TURN partitions."""
    image, view = context.image, ClientView(context, call.session)
    found: list[Any] = []
    described = 0
    if requested is None:
        names: Iterable[RequestedTopic] = [
            RequestedTopic(name)
            for name in sorted(image.topics)
            if context.permits(call.session, Operation.DESCRIBE, AclResourceType.TOPIC, name)
        ]
    else:
        names = requested
    for each in names:
        found.append((yield from _one(context, call, view, image, each, refusals)))
        described += 1 + len(found[-1].partitions)
        if described >= PARTITIONS_A_TURN:
            described = 0
            yield next_tick(context.world)
    return _response(context, call, view, found)


def _one(
    context: Context,
    call: Call,
    view: ClientView,
    image: ClusterImage,
    requested: RequestedTopic,
    refusals: dict[str, ErrorCode],
) -> Steps[Any]:
    by_id = requested.name is None
    topic = image.topic_by_id(requested.id) if by_id else image.topics.get(requested.name or "")
    if by_id and topic is None:
        return _missing(call, ErrorCode.UNKNOWN_TOPIC_ID, requested)
    name = requested.name if topic is None else topic.name
    if not context.authorize(call.session, Operation.DESCRIBE, AclResourceType.TOPIC, name or ""):
        return _missing(call, ErrorCode.TOPIC_AUTHORIZATION_FAILED, requested)
    if topic is not None:
        return (yield from _found(context, call, view, topic))
    unknown = (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_name(name or "") else ErrorCode.INVALID_TOPIC_EXCEPTION
    )
    return _missing(call, refusals.get(name or "", unknown), requested)


def _missing(call: Call, code: ErrorCode, requested: RequestedTopic) -> Any:
    return call.make.MetadataResponseTopic(
        error_code=code,
        name=requested.name,
        topic_id=uuid_out(requested.id),
        is_internal=requested.name in INTERNAL_TOPICS and code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        partitions=(),
        topic_authorized_operations=OPERATIONS_NOT_REQUESTED,
    )


def _found(context: Context, call: Call, view: ClientView, topic: Topic) -> Steps[Any]:
    make, version = call.make, call.version
    partitions: list[Any] = []
    for number, partition in sorted(topic.partitions.entries()):
        if len(partitions) % PARTITIONS_A_TURN == PARTITIONS_A_TURN - 1:
            yield next_tick(context.world)
        seen = view.partition(partition, hide_absent=version == 0, tell_listener=version >= 6)
        partitions.append(
            make.MetadataResponsePartition(
                error_code=seen.error,
                partition_index=number,
                leader_id=seen.leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=seen.replicas,
                isr_nodes=seen.isr,
                offline_replicas=seen.offline,
            )
        )
    wants_operations = getattr(call.message, "include_topic_authorized_operations", False)
    return make.MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=uuid_out(topic.id),
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=tuple(partitions),
        topic_authorized_operations=(
            topic_operations(context, call.session, topic.name)
            if wants_operations
            else OPERATIONS_NOT_REQUESTED
        ),
    )


def _refused(call: Call, code: ErrorCode) -> list[Any]:
    return [_missing(call, code, RequestedTopic(topic.name or "", NO_UUID)) for topic in call.message.topics]


def _response(context: Context, call: Call, view: ClientView, topics: list[Any]) -> Any:
    make = call.make
    brokers = [
        make.MetadataResponseBroker(node_id=broker.id, host=at.host, port=at.port, rack=broker.rack)
        for broker, at in view.named.values()
    ]
    of_the_cluster = {}
    if 8 <= call.version <= 10:
        asked = call.message.include_cluster_authorized_operations
        of_the_cluster["cluster_authorized_operations"] = (
            cluster_operations(context, call.session) if asked else OPERATIONS_NOT_REQUESTED
        )
    return make.MetadataResponse(
        throttle_time=NO_THROTTLE,
        brokers=tuple(brokers),
        cluster_id=context.cluster_id,
        controller_id=view.controller_id,
        topics=tuple(topics),
        error_code=ErrorCode.NONE,
        **of_the_cluster,
    )


HANDLERS: dict[Api, Callable[[Context, Call], Any]] = {Api.METADATA: metadata}
