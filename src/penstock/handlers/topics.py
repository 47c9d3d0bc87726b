"""Topics created, deleted and given more partitions. The controller decides; here its answers find their rows.

A response has a row for each thing that was asked for, in the client's order: some refused here, for want of
authorization or because they were named twice, the others as the controller says. What refuses the whole request is
said in each row.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import Uuid
from penstock.base.promise import Promise
from penstock.metadata import NO_UUID, Resource, ResourceType, Result, describe
from penstock.metadata.controller.requests import (
    CreatedTopic,
    CreatePartitions,
    CreateTopics,
    DeletedTopic,
    DeleteTopics,
    MorePartitions,
    NewTopic,
)
from penstock.metadata.controller.topics import METADATA_TOPIC
from penstock.metadata.records import ConfigRecord
from penstock.wire import Api

from .support.context import CLUSTER_NAME, AclResourceType, Call, Context, Operation
from .support.controller_call import ask, wait_ms_of
from .support.response_fields import DENIED_TOPIC, NO_THROTTLE, refusal, uuid_in, uuid_out


def create_topics(context: Context, call: Call) -> Any | Promise[Any]:
    """CreateTopics 2 to 7: all that can be created is, and each of the others says why not.

    A topic that is named twice gets INVALID_REQUEST, once, and so does the topic of the metadata log. `validate_only`
    creates nothing, and answers the same. The answer has the topic's partitions, replicas and settings, for those who
    may describe its settings.

    Version 4 lets -1 stand for the default partitions and replicas, 5 tells settings, 6 may throttle by quota, which
    never happens here, 7 tells the topic's id.
    """
    make, request = call.make, call.message
    everywhere = context.authorize(call.session, Operation.CREATE, AclResourceType.CLUSTER, CLUSTER_NAME)
    counts = Counter(topic.name for topic in request.topics)
    topics = {topic.name: topic for topic in request.topics}
    refused: dict[str, Result] = {}
    for name in topics:
        if counts[name] > 1:
            refused[name] = Result(ErrorCode.INVALID_REQUEST, f"{name} is named twice")
        elif name == METADATA_TOPIC:
            refused[name] = Result(ErrorCode.INVALID_REQUEST, f"{name} is the cluster's own")
        elif not everywhere and not context.authorize(
            call.session, Operation.CREATE, AclResourceType.TOPIC, name
        ):
            refused[name] = DENIED_TOPIC
    allowed = [topic for name, topic in topics.items() if name not in refused]

    def respond(answer: Any) -> Any:
        whole = refusal(answer) if isinstance(answer, KafkaError) else None
        created: dict[str, CreatedTopic] = {} if whole else {each.name: each for each in answer}
        rows = []
        settings = _Settings(context, call)
        for name, topic in topics.items():
            result = refused.get(name, whole)
            row = created[name] if result is None else CreatedTopic(name, result)
            rows.append(_created(context, call, topic, row, settings))
        return make.CreateTopicsResponse(throttle_time=NO_THROTTLE, topics=tuple(rows))

    if not allowed:
        return respond(())
    asked = CreateTopics(tuple(_new_topic(topic) for topic in allowed), request.validate_only)
    return ask(context, asked, wait_ms_of(request.timeout), respond)


def _new_topic(topic: Any) -> NewTopic:
    return NewTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        tuple((each.partition_index, tuple(each.broker_ids)) for each in topic.assignments),
        {each.name: each.value for each in topic.configs},
    )


class _Settings:
    """What new topics are set to, as far as the client may know. Topics of one request are mostly set alike, and
    describing a topic's three dozen settings costs more than creating it: it is done once for all that are alike."""

    def __init__(self, context: Context, call: Call) -> None:
        self._context, self._call = context, call
        self._described: dict[tuple[tuple[str, str], ...], tuple[Any, ...]] = {}

    def of(self, topic: Any) -> tuple[Any, ...]:
        own = tuple((each.name, each.value) for each in topic.configs)
        if own not in self._described:
            self._described[own] = self._describe(own)
        return self._described[own]

    def _describe(self, own: tuple[tuple[str, str], ...]) -> tuple[Any, ...]:
        # Of a topic without a name, which no image has: one that was only validated is not in the image either.
        resource = Resource(ResourceType.TOPIC, "")
        records = [
            ConfigRecord(resource_type=resource.type, resource_name=resource.name, name=name, value=value)
            for name, value in own
        ]
        image = self._context.image
        return tuple(
            self._call.make.CreatableTopicConfigs(
                name=each.name,
                value=each.value,
                read_only=each.read_only,
                config_source=each.source,
                is_sensitive=each.sensitive,
            )
            for each in describe(
                resource, image.replay(records, image.offset, image.epoch), self._context.settings
            )
        )


def _created(context: Context, call: Call, topic: Any, row: CreatedTopic, settings: _Settings) -> Any:
    configs: tuple[Any, ...] = ()
    config_error = ErrorCode.NONE
    partitions = replicas = -1
    if row.result.code is ErrorCode.NONE and call.version >= 5:
        if context.authorize(call.session, Operation.DESCRIBE_CONFIGS, AclResourceType.TOPIC, topic.name):
            partitions, replicas, configs = row.partitions, row.replication_factor, settings.of(topic)
        else:
            config_error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return call.make.CreatableTopicResult(
        name=topic.name,
        topic_id=uuid_out(row.topic_id),
        error_code=row.result.code,
        error_message=row.result.message,
        topic_config_error_code=int(config_error),
        num_partitions=partitions,
        replication_factor=replicas,
        configs=configs,
    )


class TopicToDelete(NamedTuple):
    """A topic to delete, by name or by id."""

    name: str | None
    id: Uuid = NO_UUID

    @property
    def is_sound(self) -> bool:
        """By one of them, that is."""
        return (self.name is None) != (self.id == NO_UUID)


def delete_topics(context: Context, call: Call) -> Any | Promise[Any]:
    """DeleteTopics 1 to 6: topics by name or by id.

    One that is not there gets UNKNOWN_TOPIC_OR_PARTITION or UNKNOWN_TOPIC_ID; one that is named twice, there or not,
    INVALID_REQUEST, once; so does a row with both name and id, or with neither. Who may not describe a topic is told
    nothing of it, neither that it is there nor its name.

    Version 3 tells a cluster in which `delete.topic.enable` is off with TOPIC_DELETION_DISABLED, what was
    INVALID_REQUEST before; 4 is flexible, 5 has messages, 6 takes and gives ids.
    """
    make, request = call.make, call.message
    if call.version >= 6:
        doomed = [TopicToDelete(each.name, uuid_in(each.topic_id)) for each in request.topics]
    else:
        doomed = [TopicToDelete(name) for name in request.topic_names]
    counts = Counter(doomed)
    doomed = _distinct(doomed)
    rows: list[DeletedTopic | None] = [
        _named_twice(each) if each.is_sound and counts[each] > 1 else _undeletable(context, call, each)
        for each in doomed
    ]
    doomed, rows = _without_aliases(context, doomed, rows)
    # The controller answers names first, then ids.
    asked = [place for place, row in enumerate(rows) if row is None and doomed[place].name is not None]
    ids_from = len(asked)
    asked += [place for place, row in enumerate(rows) if row is None and doomed[place].name is None]

    def respond(answer: Any) -> Any:
        for turn, place in enumerate(asked):
            if isinstance(answer, KafkaError):
                result = _in_version(refusal(answer), call.version)
                rows[place] = DeletedTopic(doomed[place].name, doomed[place].id, result)
            else:
                rows[place] = answer[turn]
        results = [_deleted(call, row) for row in rows if row is not None]
        return make.DeleteTopicsResponse(throttle_time=NO_THROTTLE, responses=tuple(results))

    if not asked:
        return respond(())
    wanted = DeleteTopics(
        tuple(doomed[place].name or "" for place in asked[:ids_from]),
        tuple(doomed[place].id for place in asked[ids_from:]),
    )
    return ask(context, wanted, wait_ms_of(request.timeout), respond)


def _in_version(result: Result, version: int) -> Result:
    if result.code is ErrorCode.TOPIC_DELETION_DISABLED and version < 3:
        return Result(ErrorCode.INVALID_REQUEST, result.message)
    return result


def _distinct(doomed: list[TopicToDelete]) -> list[TopicToDelete]:
    """Each topic once, in order; rows that name none, or one in two ways, are all kept."""
    seen: set[TopicToDelete] = set()
    kept = []
    for each in doomed:
        if not each.is_sound or each not in seen:
            kept.append(each)
        seen.add(each)
    return kept


def _named_twice(doomed: TopicToDelete, topic_id: Uuid | None = None) -> DeletedTopic:
    which = "an id" if doomed.name is None else f"topic {doomed.name}"
    result = Result(ErrorCode.INVALID_REQUEST, f"{which} is named twice")
    return DeletedTopic(doomed.name, doomed.id if topic_id is None else topic_id, result)


def _without_aliases(
    context: Context, doomed: list[TopicToDelete], rows: list[DeletedTopic | None]
) -> tuple[list[TopicToDelete], list[DeletedTopic | None]]:
    """The same without ids of topics that are there by name as well: those names are refused."""
    wanted = {each.id for each, row in zip(doomed, rows, strict=True) if row is None and each.name is None}
    aliases: set[Uuid] = set()
    for place, (name, _) in enumerate(doomed):
        topic = None if name is None else context.image.topics.get(name)
        if topic is not None and rows[place] is None and topic.id in wanted:
            rows[place] = _named_twice(doomed[place], topic.id)
            aliases.add(topic.id)
    kept = [place for place, each in enumerate(doomed) if each.name is not None or each.id not in aliases]
    return [doomed[place] for place in kept], [rows[place] for place in kept]


def _undeletable(context: Context, call: Call, doomed: TopicToDelete) -> DeletedTopic | None:
    """The row of a topic that the controller need not be asked about."""

    def may(operation: Operation, name: str) -> bool:
        return context.authorize(call.session, operation, AclResourceType.TOPIC, name)

    name, topic_id = doomed
    if name is None and topic_id == NO_UUID:
        return DeletedTopic(None, NO_UUID, Result(ErrorCode.INVALID_REQUEST, "neither name nor id is given"))
    if name is not None and topic_id != NO_UUID:
        return DeletedTopic(name, topic_id, Result(ErrorCode.INVALID_REQUEST, "both name and id are given"))
    if name is not None:
        is_denied = not may(Operation.DESCRIBE, name) or (
            name in context.image.topics and not may(Operation.DELETE, name)
        )
        return DeletedTopic(name, NO_UUID, DENIED_TOPIC) if is_denied else None
    topic = context.image.topic_by_id(topic_id)
    if topic is None or may(Operation.DELETE, topic.name):
        return None
    return DeletedTopic(topic.name if may(Operation.DESCRIBE, topic.name) else None, topic_id, DENIED_TOPIC)


def _deleted(call: Call, row: DeletedTopic) -> Any:
    return call.make.DeletableTopicResult(
        name=row.name,
        topic_id=uuid_out(row.topic_id),
        error_code=row.result.code,
        error_message=row.result.message,
    )


def create_partitions(context: Context, call: Call) -> Any | Promise[Any]:
    """CreatePartitions 0 to 3: topics grown to a number of partitions, where the controller or the client places them.

    A topic that is named twice gets INVALID_REQUEST, a number that is not larger INVALID_PARTITIONS. `validate_only`
    changes nothing.

    Version 2 is flexible, 3 may throttle by quota, which never happens here.
    """
    make, request = call.make, call.message
    allowed = [
        topic
        for topic in request.topics
        if context.authorize(call.session, Operation.ALTER, AclResourceType.TOPIC, topic.name)
    ]

    def respond(answer: Any) -> Any:
        if isinstance(answer, KafkaError):
            results = {topic.name: refusal(answer) for topic in allowed}
        else:
            results = {each.topic: each.result for each in answer}
        rows = []
        for topic in request.topics:
            code, message = results.get(topic.name, DENIED_TOPIC)
            rows.append(
                make.CreatePartitionsTopicResult(name=topic.name, error_code=code, error_message=message)
            )
        return make.CreatePartitionsResponse(throttle_time=NO_THROTTLE, results=tuple(rows))

    if not allowed:
        return respond(())
    asked = CreatePartitions(tuple(_grown(topic) for topic in allowed), request.validate_only)
    return ask(context, asked, wait_ms_of(request.timeout), respond)


def _grown(topic: Any) -> MorePartitions:
    assignments = topic.assignments
    return MorePartitions(
        topic.name,
        topic.count,
        None if assignments is None else tuple(tuple(each.broker_ids) for each in assignments),
    )


HANDLERS: dict[Api, Callable[[Context, Call], Any]] = {
    Api.CREATE_TOPICS: create_topics,
    Api.DELETE_TOPICS: delete_topics,
    Api.CREATE_PARTITIONS: create_partitions,
}
