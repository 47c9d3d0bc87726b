"""Creates and deletes topics, and adds partitions to them."""

import re
from collections import Counter
from collections.abc import Sequence

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import Uuid, random_uuid, uuid_text
from penstock.base.internal_topics import METADATA_TOPIC
from penstock.base.outcome import Outcome
from penstock.metadata import records as s
from penstock.metadata.configs import broker_flag, broker_setting
from penstock.metadata.image import (
    ClusterImage,
    PartitionRegistration,
    Resource,
    ResourceType,
    Topic,
    collision_key,
)
from penstock.metadata.snapshot import partition_record
from penstock.records.structs import NO_UUID

from .configs import altered
from .elections import default_directory
from .placement import UsableBroker, place
from .requests import (
    OK,
    ConfigChange,
    ConfigOp,
    CreatedTopic,
    CreatePartitions,
    CreateTopics,
    DeletedTopic,
    DeleteTopics,
    MorePartitions,
    NewTopic,
    Result,
    TopicResult,
    refused,
)
from .view import ControllerView

NAME_LENGTH_MAX = 249
"""A file name's 255 characters, less a dash and five digits for the partition."""
_NAME = re.compile(r"[a-zA-Z0-9._-]+")
PARTITIONS_MAX = 10_000
"""Limit of one request, as in Kafka: a larger batch would take the quorum too long."""


def check_name(name: str) -> None:
    """Check Kafka's rules for topic names."""
    if not name:
        problem = "a topic's name is empty"
    elif name in (".", ".."):
        problem = f"{name!r} cannot be a topic's name"
    elif len(name) > NAME_LENGTH_MAX:
        problem = f"a topic's name has {len(name)} characters, {NAME_LENGTH_MAX} are the most"
    elif not _NAME.fullmatch(name):
        problem = f"{name!r} has other characters than letters, digits, dots, underscores and dashes"
    else:
        return
    raise KafkaError(problem, ErrorCode.INVALID_TOPIC_EXCEPTION)


def create_topics(view: ControllerView, request: CreateTopics) -> Outcome[tuple[CreatedTopic, ...]]:
    counts = Counter(topic.name for topic in request.topics)
    records: list[s.AnyRecord] = []
    replies = []
    names: set[str] = set()
    budget = PARTITIONS_MAX
    for topic in request.topics:
        try:
            if counts[topic.name] > 1:
                raise KafkaError(f"the request names topic {topic.name} twice", ErrorCode.INVALID_REQUEST)
            _check_new_name(view.image, topic.name, names)
            is_first = not view.image.topics and not names
            made, reply = _created(view, topic, budget, is_first)
        except KafkaError as error:
            replies.append(CreatedTopic(topic.name, refused(error)))
            continue
        names.add(topic.name)
        budget -= reply.partitions
        records += made
        replies.append(reply)
    return Outcome(tuple(replies), () if request.validate_only else tuple(records))


def _check_new_name(image: ClusterImage, name: str, beside: set[str]) -> None:
    check_name(name)
    if name == METADATA_TOPIC:
        raise KafkaError(f"topic {name} is internal to the cluster", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if name in image.topics:
        raise KafkaError(f"topic {name} already exists", ErrorCode.TOPIC_ALREADY_EXISTS)
    key = collision_key(name)
    if key is None:
        return
    other = image.collisions.get(key) or next((each for each in beside if collision_key(each) == key), None)
    if other is not None:
        raise KafkaError(
            f"topic {name} collides with the existing topic {other}: they differ only in dots and underscores",
            ErrorCode.INVALID_TOPIC_EXCEPTION,
        )


def _created(
    view: ControllerView, topic: NewTopic, budget: int, is_first: bool
) -> tuple[list[s.AnyRecord], CreatedTopic]:
    placed = _placed(view, topic, budget, is_first)
    topic_id = _fresh_id(view)
    resource = Resource(ResourceType.TOPIC, topic.name)
    wanted = tuple(ConfigChange(name, ConfigOp.SET, value) for name, value in topic.configs.items())
    records: list[s.AnyRecord] = [s.TopicRecord(name=topic.name, topic_id=topic_id)]
    if wanted:
        records += altered(view, resource, wanted)
    for number, replicas in enumerate(placed):
        records.append(_new_partition(view.image, topic_id, number, replicas))
    return records, CreatedTopic(topic.name, OK, topic_id, len(placed), len(placed[0]))


def _placed(view: ControllerView, topic: NewTopic, budget: int, is_first: bool) -> list[s.Ids]:
    if topic.assignments:
        return _assigned(view.image, topic)
    count = _or_default(view, topic.partitions, "num.partitions")
    factor = _or_default(view, topic.replication_factor, "default.replication.factor")
    if topic.replication_factor < -1 or topic.replication_factor == 0:
        raise KafkaError(
            f"the replication factor is {factor}, expected 1 or more", ErrorCode.INVALID_REPLICATION_FACTOR
        )
    if topic.partitions < -1 or topic.partitions == 0:
        raise KafkaError(
            f"the number of partitions is {count}, expected 1 or more", ErrorCode.INVALID_PARTITIONS
        )
    if count > budget:
        raise KafkaError(
            f"a request can create at most {PARTITIONS_MAX} partitions", ErrorCode.POLICY_VIOLATION
        )
    return place(usable_brokers(view.image), count, factor, view.rng, is_first=is_first)


def _or_default(view: ControllerView, asked: int, setting: str) -> int:
    return int(broker_setting(setting, view.image, view.settings) or 1) if asked == -1 else asked


def _assigned(image: ClusterImage, topic: NewTopic) -> list[s.Ids]:
    if topic.replication_factor != -1 or topic.partitions != -1:
        raise KafkaError(
            "a replica assignment excludes a number of partitions and a replication factor: leave both at -1",
            ErrorCode.INVALID_REQUEST,
        )
    numbers = [number for number, _ in topic.assignments]
    if sorted(numbers) != list(range(len(numbers))):
        raise KafkaError(
            f"the assigned partitions are {sorted(numbers)}, expected consecutive numbers from 0",
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        )
    placed = [replicas for _, replicas in sorted(topic.assignments)]
    for number, replicas in enumerate(placed):
        _check_assignment(image, number, replicas, len(placed[0]))
    return placed


def _check_assignment(image: ClusterImage, number: int, replicas: s.Ids, factor: int) -> None:
    problem = None
    unknown = [each for each in replicas if each not in image.brokers]
    if not replicas:
        problem = "has no replicas"
    elif len(set(replicas)) != len(replicas):
        problem = f"has a broker twice in {list(replicas)}"
    elif unknown:
        problem = f"has replicas on brokers {unknown}, which are not registered"
    elif len(replicas) != factor:
        problem = f"has {len(replicas)} replicas, the first has {factor}"
    elif not any(image.is_active(each) for each in replicas):
        problem = f"has replicas only on brokers that are fenced or shutting down: {list(replicas)}"
    if problem is not None:
        raise KafkaError(f"partition {number} {problem}", ErrorCode.INVALID_REPLICA_ASSIGNMENT)


def _fresh_id(view: ControllerView) -> Uuid:
    while True:
        drawn = random_uuid(view.rng)
        if drawn not in view.image.topic_names:
            return drawn


def _new_partition(image: ClusterImage, topic_id: Uuid, number: int, replicas: s.Ids) -> s.PartitionRecord:
    isr = tuple(each for each in replicas if image.is_active(each))
    partition = PartitionRegistration(
        replicas=replicas,
        directories=tuple(default_directory(image, each) for each in replicas),
        isr=isr,
        leader=isr[0],
    )
    return partition_record(topic_id, number, partition, image.metadata_version)


def usable_brokers(image: ClusterImage) -> list[UsableBroker]:
    """Return the brokers for new replicas: all that are not shutting down."""
    return [
        UsableBroker(broker.id, broker.rack, broker.fenced)
        for _, broker in sorted(image.brokers.items())
        if broker.fenced or not broker.in_controlled_shutdown
    ]


def delete_topics(view: ControllerView, request: DeleteTopics) -> Outcome[tuple[DeletedTopic, ...]]:
    if not broker_flag("delete.topic.enable", view.image, view.settings):
        raise KafkaError("delete.topic.enable is false", ErrorCode.TOPIC_DELETION_DISABLED)
    asked: list[tuple[str | None, Uuid, Topic | None]] = []
    for wanted in request.names:
        topic = view.image.topics.get(wanted)
        asked.append((wanted, NO_UUID if topic is None else topic.id, topic))
    for wanted_id in request.ids:
        topic = view.image.topic_by_id(wanted_id)
        asked.append((None if topic is None else topic.name, wanted_id, topic))
    counts = Counter((name, topic_id) for name, topic_id, _ in asked)
    records, replies = [], []
    for name, topic_id, topic in asked:
        if topic is None and topic_id == NO_UUID:
            result = Result(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name} does not exist")
        elif topic is None:
            result = Result(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has id {uuid_text(topic_id)}")
        elif counts[name, topic_id] > 1:
            result = Result(ErrorCode.INVALID_REQUEST, f"the request names topic {name} twice")
        else:
            result = OK
            records.append(s.RemoveTopicRecord(topic_id=topic_id))
        replies.append(DeletedTopic(name, topic_id, result))
    return Outcome(tuple(replies), tuple(records))


def create_partitions(view: ControllerView, request: CreatePartitions) -> Outcome[tuple[TopicResult, ...]]:
    counts = Counter(each.topic for each in request.topics)
    records: list[s.AnyRecord] = []
    replies = []
    budget = PARTITIONS_MAX
    for each in request.topics:
        try:
            if counts[each.topic] > 1:
                raise KafkaError(f"the request names topic {each.topic} twice", ErrorCode.INVALID_REQUEST)
            made = _more_partitions(view, each, budget)
        except KafkaError as error:
            replies.append(TopicResult(each.topic, refused(error)))
            continue
        budget -= len(made)
        records += made
        replies.append(TopicResult(each.topic, OK))
    return Outcome(tuple(replies), () if request.validate_only else tuple(records))


def _more_partitions(view: ControllerView, asked: MorePartitions, budget: int) -> Sequence[s.AnyRecord]:
    topic: Topic | None = view.image.topics.get(asked.topic)
    if topic is None:
        raise KafkaError(f"topic {asked.topic} does not exist", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    held = len(topic.partitions)
    if asked.total <= held:
        raise KafkaError(
            f"topic {topic.name} has {held} partitions; {asked.total} is not more",
            ErrorCode.INVALID_PARTITIONS,
        )
    more = asked.total - held
    existing = [topic.partitions[number].replicas for number in range(held)]
    if asked.assignments is None:
        if more > budget:
            raise KafkaError(
                f"a request can create at most {PARTITIONS_MAX} partitions", ErrorCode.POLICY_VIOLATION
            )
        placed = place(usable_brokers(view.image), more, len(existing[0]), view.rng, existing)
    else:
        placed = list(asked.assignments)
        if len(placed) != more:
            raise KafkaError(
                f"the request adds {more} partitions, but assigns {len(placed)}",
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            )
        for number, replicas in enumerate(placed, held):
            _check_assignment(view.image, number, replicas, len(existing[0]))
    return [
        _new_partition(view.image, topic.id, number, replicas) for number, replicas in enumerate(placed, held)
    ]
