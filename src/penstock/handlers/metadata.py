"""Where everything is: the Metadata API, which every client asks first and then again and again.

An unknown topic may be created by being asked for. Kafka starts to create it and answers that it is unknown, so that
the client asks again; here the answer waits for the creation, which spares the client that round. If it takes longer
than `CREATION_WAIT_MS`, the answer is Kafka's.
"""

from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, Final, NamedTuple

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import Uuid
from penstock.base.promise import Promise
from penstock.metadata import NO_UUID, ClusterImage, Topic
from penstock.metadata.configs import broker_flag
from penstock.metadata.controller.requests import CreateTopics, NewTopic
from penstock.metadata.controller.topics import check_name
from penstock.wire import Api

from .support.client_view import ClientView
from .support.context import CLUSTER_NAME, AclResourceType, Call, Context, Operation
from .support.controller_call import ask
from .support.internal_topics import INTERNAL_TOPICS, automatic_topic
from .support.metadata_delay import once_sure
from .support.response_fields import (
    NO_THROTTLE,
    OPERATIONS_NOT_REQUESTED,
    cluster_operations,
    topic_operations,
    uuid_in,
    uuid_out,
)
from .support.time_slices import in_turns
from .support.waiting import chained

CREATION_WAIT_MS = 5_000
"""Well below the 30 s after which clients give up on a request: replies on the same connection wait behind it."""

_TOLD = frozenset(
    {
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
)
"""Refusals of a creation that asking again does not cure. All others leave the topic unknown."""


PARTITIONS_A_TURN: Final = 500
"""Partitions, and topics, that are told of before others are served: some 4 ms."""


class RequestedTopic(NamedTuple):
    """A topic by name, or by id."""

    name: str | None
    id: Uuid = NO_UUID


def metadata(context: Context, call: Call) -> Any | Promise[Any]:
    """Metadata 0 to 13: brokers, and where the partitions of topics are.

    Without a list all topics are told, with an empty one none. A topic that is named and not there is created, if
    both the client and `auto.create.topics.enable` say so. One by a wrong name gets INVALID_TOPIC_EXCEPTION, one that
    is not there UNKNOWN_TOPIC_OR_PARTITION or, by id, UNKNOWN_TOPIC_ID. Whoever may not describe a topic is told so
    whether or not it is there, and does not find it among all topics.

    A partition whose leader cannot be reached has an error and leader -1, and the rest is told all the same. The
    controller is a broker that takes administration, as every one does.

    Version 0 has no null: an empty list is all topics; and replicas that are not alive are left out, with
    REPLICA_NOT_AVAILABLE. Version 1 brings controller, racks and internal topics, 2 the cluster's id, 4 the client's
    say on creation, 5 offline replicas, 6 LISTENER_NOT_FOUND for what was LEADER_NOT_AVAILABLE, 7 leader epochs, 8
    authorized operations (of the cluster in 8 to 10 only), 9 is flexible, 10 has topic ids in answers, 12 in
    requests, 13 an error for the whole, which says that a client should start over, and is never set here.
    """
    try:
        wanted = _wanted(call)
    except KafkaError as error:
        return _response(context, call, ClientView(context, call.session), _refused(call, error.code))
    topics, refusals = _to_create(context, call, wanted or [])
    if not topics:
        return chained(
            once_sure(context, call.session, lambda: _leaders(context, wanted), lambda: True),
            lambda _: in_turns(context.world, _answer(context, call, wanted, refusals)),
        )

    def respond(answer: Any) -> Any:
        for created in () if isinstance(answer, KafkaError) else answer:
            if created.result.code in _TOLD:
                refusals[created.name] = created.result.code
            elif created.result.code is ErrorCode.TOPIC_ALREADY_EXISTS:
                # Somebody else has just created it, and this node may not have heard of it yet.
                refusals[created.name] = ErrorCode.LEADER_NOT_AVAILABLE
        return in_turns(context.world, _answer(context, call, wanted, refusals))

    return chained(
        ask(context, CreateTopics(tuple(topics)), CREATION_WAIT_MS, lambda answer: answer), respond
    )


def _wanted(call: Call) -> list[RequestedTopic] | None:
    """The topics asked for, each once, in the client's order; None for all."""
    topics = call.message.topics
    if topics is None or (call.version == 0 and not topics):
        return None
    wanted = [RequestedTopic(each.name, uuid_in(getattr(each, "topic_id", None))) for each in topics]
    for each in wanted if call.version < 12 else ():
        if each.name is None or each.id != NO_UUID:
            raise KafkaError(
                f"Metadata {call.version} asks for topics by name alone", ErrorCode.INVALID_REQUEST
            )
    return list(
        dict.fromkeys(each if each.id == NO_UUID else RequestedTopic(None, each.id) for each in wanted)
    )


def _to_create(
    context: Context, call: Call, wanted: list[RequestedTopic]
) -> tuple[list[NewTopic], dict[str, ErrorCode]]:
    """What is to be created first, and what is missing but not this client's to create."""
    if not getattr(call.message, "allow_auto_topic_creation", True):
        return [], {}
    missing = [
        each.name
        for each in wanted
        if each.name is not None and each.name not in context.image.topics and is_name(each.name)
    ]
    if not missing or not broker_flag("auto.create.topics.enable", context.image, context.settings):
        return [], {}
    topics: list[NewTopic] = []
    refusals: dict[str, ErrorCode] = {}
    everywhere = context.authorize(call.session, Operation.CREATE, AclResourceType.CLUSTER, CLUSTER_NAME)
    for name in missing:
        if not context.authorize(call.session, Operation.DESCRIBE, AclResourceType.TOPIC, name):
            continue
        if not everywhere and not context.authorize(
            call.session, Operation.CREATE, AclResourceType.TOPIC, name
        ):
            refusals[name] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            continue
        topic = automatic_topic(name, context.image, context.settings)
        if topic is not None:
            topics.append(topic)
    return topics, refusals


def is_name(name: str) -> bool:
    try:
        check_name(name)
    except KafkaError:
        return False
    return True


def _leaders(context: Context, wanted: list[RequestedTopic] | None) -> Iterator[int]:
    """Who leads the partitions that were asked for."""
    topics = context.image.topics
    if wanted is None:
        named = list(topics.values())
    else:
        by_name = [
            topics.get(each.name) if each.name else context.image.topic_by_id(each.id) for each in wanted
        ]
        named = [each for each in by_name if each is not None]
    return (partition.leader for topic in named for partition in topic.partitions.values())


def _answer(
    context: Context, call: Call, wanted: list[RequestedTopic] | None, refusals: dict[str, ErrorCode]
) -> Generator[None, None, Any]:
    """The response; others are served after every so many partitions."""
    image, view = context.image, ClientView(context, call.session)
    found: list[Any] = []
    told = 0
    if wanted is None:
        names: Iterable[RequestedTopic] = [
            RequestedTopic(name)
            for name in sorted(image.topics)
            if context.authorize(call.session, Operation.DESCRIBE, AclResourceType.TOPIC, name)
        ]
    else:
        names = wanted
    for each in names:
        found.append((yield from _one(context, call, view, image, each, refusals)))
        told += 1 + len(found[-1].partitions)
        if told >= PARTITIONS_A_TURN:
            told = 0
            yield
    return _response(context, call, view, found)


def _one(
    context: Context,
    call: Call,
    view: ClientView,
    image: ClusterImage,
    wanted: RequestedTopic,
    refusals: dict[str, ErrorCode],
) -> Generator[None, None, Any]:
    by_id = wanted.name is None
    topic = image.topic_by_id(wanted.id) if by_id else image.topics.get(wanted.name or "")
    if by_id and topic is None:
        return _missing(call, ErrorCode.UNKNOWN_TOPIC_ID, wanted)
    name = wanted.name if topic is None else topic.name
    if not context.authorize(call.session, Operation.DESCRIBE, AclResourceType.TOPIC, name or ""):
        return _missing(call, ErrorCode.TOPIC_AUTHORIZATION_FAILED, wanted)
    if topic is not None:
        return (yield from _found(context, call, view, topic))
    unknown = (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_name(name or "") else ErrorCode.INVALID_TOPIC_EXCEPTION
    )
    return _missing(call, refusals.get(name or "", unknown), wanted)


def _missing(call: Call, code: ErrorCode, wanted: RequestedTopic) -> Any:
    return call.make.MetadataResponseTopic(
        error_code=code,
        name=wanted.name,
        topic_id=uuid_out(wanted.id),
        is_internal=wanted.name in INTERNAL_TOPICS and code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        partitions=(),
        topic_authorized_operations=OPERATIONS_NOT_REQUESTED,
    )


def _found(context: Context, call: Call, view: ClientView, topic: Topic) -> Generator[None, None, Any]:
    make, version = call.make, call.version
    partitions: list[Any] = []
    for number, partition in sorted(topic.partitions.entries()):
        if len(partitions) % PARTITIONS_A_TURN == PARTITIONS_A_TURN - 1:
            yield
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
