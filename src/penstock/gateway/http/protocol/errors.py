"""Errors as HTTP status and JSON.

The code of a Kafka error is its Kafka name in lower case. The status tells the client what to do: 4xx, change the
request; 503, retry; 500, tell the operator.
"""

from typing import Any, Final

import msgspec

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.internal_topics import INTERNAL_TOPICS
from penstock.gateway.http.protocol.messages import HttpError, Response
from penstock.gateway.http.protocol.parameters import is_topic_name
from penstock.gateway.peer_rpc.messages import Conflict
from penstock.gateway.shared.login import Throttled
from penstock.registry.errors import RegistryError

_encode = msgspec.json.Encoder().encode

_E = ErrorCode

STATUSES: Final[dict[ErrorCode, int]] = {
    **dict.fromkeys(
        (
            _E.UNKNOWN_TOPIC_OR_PARTITION,
            _E.UNKNOWN_TOPIC_ID,
            _E.GROUP_ID_NOT_FOUND,
            _E.RESOURCE_NOT_FOUND,
            _E.TRANSACTIONAL_ID_NOT_FOUND,
            _E.LISTENER_NOT_FOUND,
            _E.LOG_DIR_NOT_FOUND,
            _E.UNKNOWN_MEMBER_ID,
            _E.DELEGATION_TOKEN_NOT_FOUND,
        ),
        404,
    ),
    **dict.fromkeys(
        (
            _E.CORRUPT_MESSAGE,
            _E.INVALID_FETCH_SIZE,
            _E.OFFSET_METADATA_TOO_LARGE,
            _E.INVALID_TOPIC_EXCEPTION,
            _E.INVALID_REQUIRED_ACKS,
            _E.INVALID_GROUP_ID,
            _E.INVALID_SESSION_TIMEOUT,
            _E.INVALID_COMMIT_OFFSET_SIZE,
            _E.UNSUPPORTED_VERSION,
            _E.INVALID_REPLICA_ASSIGNMENT,
            _E.INVALID_CONFIG,
            _E.INVALID_REQUEST,
            _E.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            _E.UNSUPPORTED_COMPRESSION_TYPE,
            _E.INVALID_REGULAR_EXPRESSION,
            _E.UNSUPPORTED_ASSIGNOR,
            _E.INVALID_TRANSACTION_TIMEOUT,
            _E.INVALID_UPDATE_VERSION,
            _E.INVALID_PRINCIPAL_TYPE,
            _E.UNACCEPTABLE_CREDENTIAL,
            _E.UNSUPPORTED_SASL_MECHANISM,
        ),
        400,
    ),
    **dict.fromkeys(
        (
            _E.TOPIC_AUTHORIZATION_FAILED,
            _E.GROUP_AUTHORIZATION_FAILED,
            _E.CLUSTER_AUTHORIZATION_FAILED,
            _E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            _E.TOPIC_DELETION_DISABLED,
            _E.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
            _E.DELEGATION_TOKEN_OWNER_MISMATCH,
            _E.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
        ),
        403,
    ),
    **dict.fromkeys(
        (
            _E.TOPIC_ALREADY_EXISTS,
            _E.DUPLICATE_RESOURCE,
            _E.NON_EMPTY_GROUP,
            _E.GROUP_SUBSCRIBED_TO_TOPIC,
            _E.ILLEGAL_GENERATION,
            _E.INCONSISTENT_GROUP_PROTOCOL,
            _E.REBALANCE_IN_PROGRESS,
            _E.FENCED_MEMBER_EPOCH,
            _E.STALE_MEMBER_EPOCH,
            _E.UNRELEASED_INSTANCE_ID,
            _E.FENCED_INSTANCE_ID,
            _E.MEMBER_ID_REQUIRED,
            _E.GROUP_MAX_SIZE_REACHED,
            _E.UNSTABLE_OFFSET_COMMIT,
            _E.REASSIGNMENT_IN_PROGRESS,
            _E.CONCURRENT_TRANSACTIONS,
            _E.INVALID_TXN_STATE,
            _E.PRODUCER_FENCED,
            _E.OUT_OF_ORDER_SEQUENCE_NUMBER,
            _E.DUPLICATE_SEQUENCE_NUMBER,
            # Routes reject malformed values, so these are conflicts with the state of the cluster.
            _E.OFFSET_OUT_OF_RANGE,
            _E.INVALID_TIMESTAMP,
            _E.INVALID_RECORD,
            _E.INVALID_PARTITIONS,
            _E.INVALID_REPLICATION_FACTOR,
            _E.POLICY_VIOLATION,
            _E.NO_REASSIGNMENT_IN_PROGRESS,
            _E.INVALID_PRODUCER_EPOCH,
            _E.TRANSACTION_COORDINATOR_FENCED,
            _E.SECURITY_DISABLED,
            _E.DELEGATION_TOKEN_AUTH_DISABLED,
            _E.DELEGATION_TOKEN_EXPIRED,
        ),
        409,
    ),
    **dict.fromkeys((_E.MESSAGE_TOO_LARGE, _E.RECORD_LIST_TOO_LARGE), 413),
    _E.THROTTLING_QUOTA_EXCEEDED: 429,
    **dict.fromkeys(
        (
            _E.LEADER_NOT_AVAILABLE,
            _E.NOT_LEADER_OR_FOLLOWER,
            _E.BROKER_NOT_AVAILABLE,
            _E.REPLICA_NOT_AVAILABLE,
            _E.NETWORK_EXCEPTION,
            _E.COORDINATOR_LOAD_IN_PROGRESS,
            _E.COORDINATOR_NOT_AVAILABLE,
            _E.NOT_COORDINATOR,
            _E.NOT_ENOUGH_REPLICAS,
            _E.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
            _E.NOT_CONTROLLER,
            _E.KAFKA_STORAGE_ERROR,
            _E.FENCED_LEADER_EPOCH,
            _E.UNKNOWN_LEADER_EPOCH,
            _E.OFFSET_NOT_AVAILABLE,
            _E.STALE_BROKER_EPOCH,
            _E.BROKER_ID_NOT_REGISTERED,
            _E.OPERATION_NOT_ATTEMPTED,
        ),
        503,
    ),
    _E.REQUEST_TIMED_OUT: 504,
}
"""All other errors are 500."""

ALWAYS: Final = (400, 403, 405, 406, 413, 415, 431, 500, 503, 504)
"""Statuses that every route may return."""


class ErrorInfo(msgspec.Struct):
    """An error. Some codes have further fields."""

    code: str
    """For programs: a stable name such as `unknown_topic_or_partition`."""
    message: str
    """For people: a sentence."""


class ErrorBody(msgspec.Struct):
    """The body of every error response."""

    error: ErrorInfo


def from_kafka(error: KafkaError) -> HttpError:
    if isinstance(error, Conflict):
        more: dict[str, Any] = {} if error.assignments is None else {"assignments": error.assignments}
        return HttpError(409, error.reason, str(error), **more)
    if isinstance(error, RegistryError):
        return HttpError(error.status, "schema_registry", str(error), error_code=error.error_code)
    headers = (("Retry-After", str(error.retry_s)),) if isinstance(error, Throttled) else ()
    return HttpError(STATUSES.get(error.code, 500), error.code.name.lower(), str(error), headers)


def topic_error(error: KafkaError, topic: str) -> HttpError:
    """As `from_kafka`, but INVALID_TOPIC_EXCEPTION for a valid name is 403 if the topic is internal, and 409 if the
    name collides with another topic's."""
    if error.code is not ErrorCode.INVALID_TOPIC_EXCEPTION or not is_topic_name(topic):
        return from_kafka(error)
    return HttpError(403 if topic in INTERNAL_TOPICS else 409, error.code.name.lower(), str(error))


def error_response(error: HttpError) -> Response:
    body: dict[str, Any] = {"error": {"code": error.code, "message": str(error), **error.more}}
    return Response(error.status, _encode(body), headers=error.headers)
