"""Errors of the client, and which of them are retriable.

Every message is one sentence, and names the broker or the topic.
"""

from typing import Any

from penstock.base.errors import ErrorCode, KafkaError


class ClientError(KafkaError):
    """Base of the client's errors."""


class Unreachable(ClientError):
    """A connection could not be made."""

    code = ErrorCode.NETWORK_EXCEPTION


class ConnectionLost(ClientError):
    """A connection ended during a request: the broker may or may not have executed it."""

    code = ErrorCode.NETWORK_EXCEPTION


class TimedOut(ClientError):
    code = ErrorCode.REQUEST_TIMED_OUT


class NotServed(ClientError):
    """The broker and this client have no version of an API in common."""

    code = ErrorCode.UNSUPPORTED_VERSION


class AuthenticationFailed(ClientError):
    """The two sides do not trust each other, or only one of them uses TLS or SASL. Never retried."""

    code = ErrorCode.SASL_AUTHENTICATION_FAILED


class LoginFailed(AuthenticationFailed):
    """The broker rejected the log-in, requires one that is not configured, or failed to authenticate itself."""


class BrokerRefused(ClientError):
    """The broker returned an error; `code` is its code."""


class BrokerGone(BrokerRefused):
    """The cluster has no such broker, or no longer has it."""


class OffsetGone(ClientError):
    """A position is outside of its log, and the consumer is set not to reset it."""

    code = ErrorCode.OFFSET_OUT_OF_RANGE


NETWORK_ERRORS = (Unreachable, ConnectionLost, TimedOut)
"""After these, another broker may answer, or the same one later."""

STALE_METADATA = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.NOT_CONTROLLER,
    }
)
"""The leader has changed, or the broker does not know it yet: refresh metadata and retry."""

RETRIABLE = STALE_METADATA | {
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.BROKER_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
}
"""The codes of Kafka's RetriableException."""


def error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


def refused(what: str, code: int, message: str | None = None) -> BrokerRefused:
    """An error response as an exception: the subject, the broker's message if any, and the name of the code."""
    if not message or code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:  # Kafka's message for it is hard to read
        message = _PLAIN.get(code, "the broker refused")
    words = message.rstrip(".")
    text = words if words.lower().startswith(what.lower()) else f"{what}: {words}"
    text += f" ({error_name(code)})"
    return BrokerRefused(text, ErrorCode(code) if code in _CODES else None)


def code_of(reply: Any) -> int:
    return int(reply.error_code)


def check(what: str, reply: Any) -> None:
    """Raise the error of a response, or of a part of one, if it has one."""
    code = code_of(reply)
    if code:
        raise refused(what, code, getattr(reply, "error_message", None))


def no_partition(topic: str, partition: int, count: int) -> BrokerRefused:
    has = "1 partition" if count == 1 else f"{count} partitions"
    return BrokerRefused(
        f"topic {topic} has no partition {partition}: it has {has}, counted from 0",
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )


_CODES = frozenset(int(each) for each in ErrorCode)
_PLAIN: dict[int, str] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "there is no such topic or partition",
    ErrorCode.TOPIC_ALREADY_EXISTS: "the topic exists already",
    ErrorCode.LEADER_NOT_AVAILABLE: "the partition has no leader at the moment",
    ErrorCode.MESSAGE_TOO_LARGE: "a record is larger than the topic allows",
    ErrorCode.NOT_ENOUGH_REPLICAS: "fewer replicas are in sync than min.insync.replicas",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "the name is not valid for a topic",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "access to the topic is not allowed",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "this is not allowed on the cluster",
    ErrorCode.INVALID_GROUP_ID: "the name is not valid for a group",
    ErrorCode.GROUP_ID_NOT_FOUND: "there is no such group",
    ErrorCode.NON_EMPTY_GROUP: "the group has live members",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "live members of the group are subscribed to the topic",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "there is no such transactional id",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "the coordinator is not available at the moment",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "the coordinator is still loading",
    ErrorCode.CONCURRENT_TRANSACTIONS: "the previous transaction is still being completed",
}
