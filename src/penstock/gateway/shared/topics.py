"""Topics by name, created on first use if allowed."""

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.internal_topics import INTERNAL_TOPICS, OFFSETS_TOPIC
from penstock.base.steps import Steps
from penstock.gateway.shared.access import TOPIC, allow
from penstock.gateway.shared.controller_call import check, decide
from penstock.handlers.support.automatic_topics import automatic_topic
from penstock.handlers.support.context import Context, Session
from penstock.metadata.acls import Operation
from penstock.metadata.configs import broker_flag
from penstock.metadata.controller.requests import CreateTopics, NewTopic
from penstock.metadata.controller.topics import check_name
from penstock.metadata.image import Topic


def find_topic(context: Context, name: str) -> Topic:
    topic: Topic | None = context.image.topics.get(name)
    if topic is None:
        raise KafkaError(f"no such topic: {name!r}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return topic


def no_partition(topic: Topic, number: int) -> KafkaError:
    """The error for a number that no partition of the topic has."""
    return KafkaError(
        f"topic {topic.name!r} has no partition {number}, only 0 to {len(topic.partitions) - 1}",
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )


def ensure_topic(context: Context, session: Session, name: str) -> Steps[Topic]:
    """The topic; created if it does not exist, `auto.create.topics.enable` allows it and the client may create it."""
    topic: Topic | None = context.image.topics.get(name)
    if topic is not None:
        return topic
    check_name(name)
    if name in INTERNAL_TOPICS or not broker_flag(
        "auto.create.topics.enable", context.image, context.settings
    ):
        raise KafkaError(f"no such topic: {name!r}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    allow(context, session, Operation.CREATE, TOPIC, name, or_on_cluster=True)
    yield from _create(context, NewTopic(name))
    return find_topic(context, name)


def ensure_offsets_topic(context: Context) -> Steps[None]:
    """Create `__consumer_offsets` if it does not exist."""
    if OFFSETS_TOPIC not in context.image.topics:
        new = automatic_topic(OFFSETS_TOPIC, context.image, context.settings)
        assert new is not None, f"{OFFSETS_TOPIC} is created automatically"
        yield from _create(context, new)


def _create(context: Context, topic: NewTopic) -> Steps[None]:
    [created] = yield from decide(context, CreateTopics((topic,)))
    if created.result.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
        check(created.result, f"topic {topic.name!r} could not be created")
