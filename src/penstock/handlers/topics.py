"""Creation and deletion of topics, and growth of their partitions.

    CreateTopics 2 to 7
    DeleteTopics 1 to 6
    CreatePartitions 0 to 3

The controller decides. A response has a row for each requested topic, in the client's order: the handler rejects
topics without authorization and topics that are named twice, the controller the others. An error of the whole request
is set in each row.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import Uuid
from penstock.base.internal_topics import METADATA_TOPIC
from penstock.base.steps import Steps
from penstock.metadata.acls import CLUSTER_NAME, AclResourceType, Operation
from penstock.metadata.configs import broker_setting, describe
from penstock.metadata.controller.requests import (
    CreatedTopic,
    CreatePartitions,
    CreateTopics,
    DeletedTopic,
    DeleteTopics,
    MorePartitions,
    NewTopic,
    Result,
)
from penstock.metadata.image import Resource, ResourceType
from penstock.metadata.records import ConfigRecord
from penstock.records.structs import NO_UUID
from penstock.wire import Api

from .support.context import Call, Context
from .support.controller_call import submit, wait_ms_of
from .support.mutation_quota import EXCEEDED, MutationQuota
from .support.response_fields import DENIED_TOPIC, refusal, uuid_in, uuid_out
from .support.waiting import in_steps


@in_steps
def create_topics(context: Context, call: Call) -> Steps[Any]:
    """CreateTopics 2 to 7: create topics, independently of each other. Needs CREATE on the cluster or the topic.

    A topic that is named twice gets INVALID_REQUEST, in one row, and so does the topic of the metadata log.
    `validate_only` creates nothing. A client with DESCRIBE_CONFIGS also gets the number of partitions and replicas,
    and the configs. A client above its quota of changes gets THROTTLING_QUOTA_EXCEEDED.

    Version notes: 4 accepts -1 for the default partitions and replicas; 5 returns configs; before 6 a client above its
    quota is served, and muted; 7 returns the topic id.
    """
    make, request = call.make, call.message
    everywhere = context.permits(call.session, Operation.CREATE, AclResourceType.CLUSTER, CLUSTER_NAME)
    counts = Counter(topic.name for topic in request.topics)
    topics = {topic.name: topic for topic in request.topics}
    refused: dict[str, Result] = {}
    for name in topics:
        if counts[name] > 1:
            refused[name] = Result(ErrorCode.INVALID_REQUEST, f"Topic {name} is named twice.")
        elif name == METADATA_TOPIC:
            refused[name] = Result(ErrorCode.INVALID_REQUEST, f"{name} is the topic of the metadata log.")
        elif not everywhere and not context.authorize(
            call.session, Operation.CREATE, AclResourceType.TOPIC, name
        ):
            refused[name] = DENIED_TOPIC
    quota = MutationQuota(context, call, strict_since=6)
    allowed = []
    for name, topic in topics.items():
        if name in refused:
            continue
        if quota.admits(_new_partitions(context, topic)):
            allowed.append(topic)
        else:
            refused[name] = EXCEEDED
    created = {name: CreatedTopic(name, result) for name, result in refused.items()}
    if allowed:
        creation = CreateTopics(tuple(_new_topic(topic) for topic in allowed), request.validate_only)
        try:
            decided = yield submit(context, creation, wait_ms_of(request.timeout))
            created |= {each.name: each for each in decided}
        except KafkaError as error:
            created |= {topic.name: CreatedTopic(topic.name, refusal(error)) for topic in allowed}
        for topic in allowed:
            if created[topic.name].result.code is not ErrorCode.NONE:
                quota.give_back(_new_partitions(context, topic))
    settings = _Settings(context, call)
    rows = [_created(context, call, topic, created[name], settings) for name, topic in topics.items()]
    return make.CreateTopicsResponse(throttle_time=quota.throttle_time(), topics=tuple(rows))


def _new_partitions(context: Context, topic: Any) -> int:
    if topic.num_partitions > 0:
        return int(topic.num_partitions)
    return len(topic.assignments) or int(
        broker_setting("num.partitions", context.image, context.settings) or 1
    )


def _new_topic(topic: Any) -> NewTopic:
    return NewTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        tuple((each.partition_index, tuple(each.broker_ids)) for each in topic.assignments),
        {each.name: each.value for each in topic.configs},
    )


class _Settings:
    """Configs of new topics. Most topics of a request have the same, and describing a topic's three dozen configs
    costs more than creating it, so that equal configs are described once."""

    def __init__(self, context: Context, call: Call) -> None:
        self._context, self._call = context, call
        self._described: dict[tuple[tuple[str, str], ...], tuple[Any, ...]] = {}

    def of(self, topic: Any) -> tuple[Any, ...]:
        own = tuple((each.name, each.value) for each in topic.configs)
        if own not in self._described:
            self._described[own] = self._describe(own)
        return self._described[own]

    def _describe(self, own: tuple[tuple[str, str], ...]) -> tuple[Any, ...]:
        # With an empty topic name, since a topic that was only validated is not in the image.
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
        if context.permits(call.session, Operation.DESCRIBE_CONFIGS, AclResourceType.TOPIC, topic.name):
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
        """Whether it has a name or an id, and not both."""
        return (self.name is None) != (self.id == NO_UUID)


@in_steps
def delete_topics(context: Context, call: Call) -> Steps[Any]:
    """DeleteTopics 1 to 6: delete topics by name or id. Needs DELETE on the topic.

    An unknown topic gets UNKNOWN_TOPIC_OR_PARTITION or UNKNOWN_TOPIC_ID. A topic that is named twice gets
    INVALID_REQUEST, in one row; so does a row with both name and id, or with neither. A client without DESCRIBE learns
    neither whether a topic exists nor its name. A client above its quota of changes gets THROTTLING_QUOTA_EXCEEDED.

    Version notes: 3 has TOPIC_DELETION_DISABLED where `delete.topic.enable` is false (before, INVALID_REQUEST); 4 is
    flexible; 5 adds messages, and before it a client above its quota is served, and muted; 6 ids.
    """
    make, request = call.make, call.message
    if call.version >= 6:
        topics = [TopicToDelete(each.name, uuid_in(each.topic_id)) for each in request.topics]
    else:
        topics = [TopicToDelete(name) for name in request.topic_names]
    counts = Counter(topics)
    topics = _distinct(topics)
    rows: list[DeletedTopic | None] = [
        _named_twice(each) if each.is_sound and counts[each] > 1 else _undeletable(context, call, each)
        for each in topics
    ]
    topics, rows = _without_aliases(context, topics, rows)
    quota = MutationQuota(context, call, strict_since=5)
    for at, topic in enumerate(topics):
        if rows[at] is None and not quota.admits(_partitions_of(context, topic)):
            rows[at] = DeletedTopic(topic.name, topic.id, EXCEEDED)
    # The controller's results have names first, then ids.
    names = [at for at, row in enumerate(rows) if row is None and topics[at].name is not None]
    ids = [at for at, row in enumerate(rows) if row is None and topics[at].name is None]
    if names or ids:
        deletion = DeleteTopics(
            tuple(topics[at].name or "" for at in names), tuple(topics[at].id for at in ids)
        )
        try:
            deleted = yield submit(context, deletion, wait_ms_of(request.timeout))
        except KafkaError as error:
            result = _in_version(refusal(error), call.version)
            deleted = [DeletedTopic(topics[at].name, topics[at].id, result) for at in (*names, *ids)]
        for at, row in zip((*names, *ids), deleted, strict=True):
            rows[at] = row
            if row.result.code is not ErrorCode.NONE:
                quota.give_back(_partitions_of(context, topics[at]))
    results = [_deleted(call, row) for row in rows if row is not None]
    return make.DeleteTopicsResponse(throttle_time=quota.throttle_time(), responses=tuple(results))


def _partitions_of(context: Context, topic: TopicToDelete) -> int:
    """The partitions of a topic; 0 if it does not exist."""
    image = context.image
    found = image.topic_by_id(topic.id) if topic.name is None else image.topics.get(topic.name)
    return 0 if found is None else len(found.partitions)


def _in_version(result: Result, version: int) -> Result:
    if result.code is ErrorCode.TOPIC_DELETION_DISABLED and version < 3:
        return Result(ErrorCode.INVALID_REQUEST, result.message)
    return result


def _distinct(topics: list[TopicToDelete]) -> list[TopicToDelete]:
    """Each topic once, in order. Invalid rows are all kept."""
    seen: set[TopicToDelete] = set()
    kept = []
    for each in topics:
        if not each.is_sound or each not in seen:
            kept.append(each)
        seen.add(each)
    return kept


def _named_twice(topic: TopicToDelete, topic_id: Uuid | None = None) -> DeletedTopic:
    which = "A topic id" if topic.name is None else f"Topic {topic.name}"
    result = Result(ErrorCode.INVALID_REQUEST, f"{which} is named twice.")
    return DeletedTopic(topic.name, topic.id if topic_id is None else topic_id, result)


def _without_aliases(
    context: Context, topics: list[TopicToDelete], rows: list[DeletedTopic | None]
) -> tuple[list[TopicToDelete], list[DeletedTopic | None]]:
    """Without ids of topics that are also requested by name; the rows of those names get an error."""
    requested = {each.id for each, row in zip(topics, rows, strict=True) if row is None and each.name is None}
    aliases: set[Uuid] = set()
    for at, (name, _) in enumerate(topics):
        topic = None if name is None else context.image.topics.get(name)
        if topic is not None and rows[at] is None and topic.id in requested:
            rows[at] = _named_twice(topics[at], topic.id)
            aliases.add(topic.id)
    kept = [at for at, each in enumerate(topics) if each.name is not None or each.id not in aliases]
    return [topics[at] for at in kept], [rows[at] for at in kept]


def _undeletable(context: Context, call: Call, topic_to_delete: TopicToDelete) -> DeletedTopic | None:
    """The row of a topic that is rejected before the controller is asked; None if it is not."""

    may_delete_all = context.permits(call.session, Operation.DELETE, AclResourceType.CLUSTER, CLUSTER_NAME)

    def may(operation: Operation, name: str) -> bool:
        return may_delete_all or context.authorize(call.session, operation, AclResourceType.TOPIC, name)

    name, topic_id = topic_to_delete
    if name is None and topic_id == NO_UUID:
        return DeletedTopic(
            None, NO_UUID, Result(ErrorCode.INVALID_REQUEST, "The topic has neither name nor id.")
        )
    if name is not None and topic_id != NO_UUID:
        return DeletedTopic(
            name,
            topic_id,
            Result(ErrorCode.INVALID_REQUEST, "The topic has both name and id; send one of them."),
        )
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


@in_steps
def create_partitions(context: Context, call: Call) -> Steps[Any]:
    """CreatePartitions 0 to 3: grow topics to a number of partitions, assigned by the controller or the client. Needs
    ALTER on the topic.

    A topic that is named twice gets INVALID_REQUEST, a number that is not larger INVALID_PARTITIONS. `validate_only`
    changes nothing. A client above its quota of changes gets THROTTLING_QUOTA_EXCEEDED.

    Version notes: 2 is flexible; before 3 a client above its quota is served, and muted.
    """
    make, request = call.make, call.message
    allowed = [
        topic
        for topic in request.topics
        if context.authorize(call.session, Operation.ALTER, AclResourceType.TOPIC, topic.name)
    ]
    quota = MutationQuota(context, call, strict_since=3)
    added = {topic.name: _added(context, topic) for topic in allowed}
    refused = {topic.name for topic in allowed if not quota.admits(added[topic.name])}
    results: dict[str, Result] = dict.fromkeys(refused, EXCEEDED)
    allowed = [topic for topic in allowed if topic.name not in refused]
    if allowed:
        growth = CreatePartitions(tuple(_grown(topic) for topic in allowed), request.validate_only)
        try:
            grown = yield submit(context, growth, wait_ms_of(request.timeout))
            results |= {each.topic: each.result for each in grown}
        except KafkaError as error:
            results |= {topic.name: refusal(error) for topic in allowed}
        for topic in allowed:
            if results[topic.name].code is not ErrorCode.NONE:
                quota.give_back(added[topic.name])
    rows = []
    for topic in request.topics:
        code, message = results.get(topic.name, DENIED_TOPIC)
        rows.append(make.CreatePartitionsTopicResult(name=topic.name, error_code=code, error_message=message))
    return make.CreatePartitionsResponse(throttle_time=quota.throttle_time(), results=tuple(rows))


def _added(context: Context, topic: Any) -> int:
    """By how many partitions a topic is to grow; 0 if it does not exist."""
    found = context.image.topics.get(topic.name)
    return 0 if found is None else max(0, topic.count - len(found.partitions))


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
