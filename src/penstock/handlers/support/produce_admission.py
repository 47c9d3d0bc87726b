"""Whether a producer may write to a partition, and the error of a rejected batch."""

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.internal_topics import INTERNAL_TOPICS
from penstock.handlers.support.context import Context, Session
from penstock.metadata.acls import AclResourceType, Operation
from penstock.replica import ALL_IN_SYNC, Partition
from penstock.replica.deposed_leader import retriable_if_deposed
from penstock.wire import ProduceRequest, TopicKey

_ACKS = (0, 1, ALL_IN_SYNC)


def admit(
    context: Context,
    session: Session,
    client_id: str | None,
    request: ProduceRequest,
    topic: TopicKey,
    number: int,
) -> Partition:
    """The partition, if this producer may write to it."""
    if request.acks not in _ACKS:
        raise KafkaError(f"acks is {request.acks}, expected 0, 1 or -1", ErrorCode.INVALID_REQUIRED_ACKS)
    partition = context.replicas.led(topic, number)
    if partition is None:
        check_name(context, session, Operation.WRITE, topic)
        partition = context.replicas.find(topic, number)
    if not context.authorize(session, Operation.WRITE, AclResourceType.TOPIC, partition.topic):
        raise denied(session, Operation.WRITE, partition.topic)
    if partition.topic in INTERNAL_TOPICS and client_id != "__admin_client":
        raise KafkaError(
            f"{partition.topic} is internal: only coordinators write to it", ErrorCode.INVALID_TOPIC_EXCEPTION
        )
    if partition.topic == context.audit_topic:
        raise KafkaError(
            f"{partition.topic} is the topic of the audit: only brokers write to it",
            ErrorCode.INVALID_TOPIC_EXCEPTION,
        )
    return partition


def check_name(context: Context, session: Session, operation: Operation, topic: TopicKey) -> None:
    """Deny the client a topic before it learns whether there is such a topic and which broker leads it."""
    if isinstance(topic, bytes):
        known = context.image.topic_by_id(topic)
        name = None if known is None else known.name
    else:
        name = topic
    if name is not None and not context.authorize(session, operation, AclResourceType.TOPIC, name):
        raise denied(session, operation, name)


def denied(session: Session, operation: Operation, topic: str) -> KafkaError:
    return KafkaError(
        f"{session.principal} is not authorized to {operation.name} {topic}",
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    )


def no_records(partition: Partition) -> KafkaError:
    return KafkaError(
        f"{partition.name}: the request has no records for this partition", ErrorCode.INVALID_RECORD
    )


def batch_error(
    context: Context, topic: TopicKey, number: int, records: memoryview | None, error: KafkaError
) -> KafkaError:
    """The error to reply with for a rejected batch. The partition remembers a batch that the producer will retry."""
    partition = context.replicas.led(topic, number)
    if partition is not None:
        error = retriable_if_deposed(partition, error)
    context.replicas.note_refused(topic, number, records, error)
    return error
