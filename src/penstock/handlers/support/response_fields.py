"""Fields that many responses have: ids, errors, and authorized operations."""

from collections.abc import Iterable
from datetime import timedelta
from uuid import UUID

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import Uuid
from penstock.metadata.acls import CLUSTER_NAME, AclResourceType, Operation
from penstock.metadata.controller.requests import Result
from penstock.records.structs import NO_UUID

from .context import Context, Session

NO_THROTTLE = timedelta()

OPERATIONS_NOT_REQUESTED = -(2**31)
"""Authorized operations of a response whose request does not include them."""

TOPIC_OPERATIONS = (
    Operation.READ,
    Operation.WRITE,
    Operation.CREATE,
    Operation.DELETE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)
GROUP_OPERATIONS = (
    Operation.READ,
    Operation.DELETE,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)
CLUSTER_OPERATIONS = (
    Operation.CREATE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.CLUSTER_ACTION,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
    Operation.IDEMPOTENT_WRITE,
)


def uuid_in(uuid: UUID | None) -> Uuid:
    return NO_UUID if uuid is None else uuid.bytes


def uuid_out(uuid: Uuid) -> UUID | None:
    return None if uuid == NO_UUID else UUID(bytes=uuid)


def client_host(session: Session) -> str:
    """A client's host as Kafka writes it: a slash, and the address in Java's format, without the port."""
    return f"/{session.client_address}"


def refusal(error: KafkaError) -> Result:
    return Result(error.code, str(error))


def topic_operations(context: Context, session: Session, topic: str) -> int:
    """A bit for each authorized operation: bit 3 for READ."""
    return _bits(
        operation
        for operation in TOPIC_OPERATIONS
        if context.permits(session, operation, AclResourceType.TOPIC, topic)
    )


def group_operations(context: Context, session: Session, group: str) -> int:
    return _bits(
        operation
        for operation in GROUP_OPERATIONS
        if context.permits(session, operation, AclResourceType.GROUP, group)
    )


def cluster_operations(context: Context, session: Session) -> int:
    """The same for the cluster; 0 for a client without DESCRIBE."""
    allowed = [
        operation
        for operation in CLUSTER_OPERATIONS
        if context.permits(session, operation, AclResourceType.CLUSTER, CLUSTER_NAME)
    ]
    return _bits(allowed) if Operation.DESCRIBE in allowed else 0


def _bits(operations: Iterable[Operation]) -> int:
    return sum(1 << operation for operation in operations)


DENIED_TOPIC = Result(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "not authorized for this topic")
DENIED_CLUSTER = Result(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "not authorized for the cluster")
