"""Retries while leaders and coordinators move.

If this broker leads or coordinates, nothing is sent. If another broker does, it is called. If no broker does, the call
is retried until `RETRY_MS_MAX` have passed, and then fails with a retriable error."""

from collections.abc import Callable
from typing import Final, TypeVar

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.steps import Steps, sleep
from penstock.handlers.support.context import Context

T = TypeVar("T")

RETRY_MS_MAX: Final = 10_000
"""Longer than an election, shorter than the timeouts of clients."""

RETRY_MS: Final = 50

RETRIABLE: Final = frozenset(
    (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_ID,  # this broker knows the topic: the other's image is behind
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NETWORK_EXCEPTION,
    )
)
"""Errors while a leader or coordinator moves."""


def is_alone(context: Context) -> bool:
    """Whether this is the only broker: then no other can lead or coordinate."""
    return len(context.image.brokers) <= 1


def retry_while_moving(
    context: Context, attempt: Callable[[], Steps[T]], in_doubt: str | None = None
) -> Steps[T]:
    """Retry while the attempt fails with a `RETRIABLE` error, for at most `RETRY_MS_MAX`.

    Such an attempt may have taken effect. For attempts that change something, `in_doubt` is the message of the error
    if a later one is refused: the refusal alone would say that nothing was changed.
    """
    world = context.world
    until_ms = world.now_ms() + RETRY_MS_MAX
    has_retried = False
    while True:
        try:
            return (yield from attempt())
        except KafkaError as error:
            if error.code not in RETRIABLE or is_alone(context) or world.now_ms() >= until_ms:
                if has_retried and in_doubt is not None and error.code not in RETRIABLE:
                    raise KafkaError(in_doubt, ErrorCode.REQUEST_TIMED_OUT) from error
                raise
            has_retried = True
        yield sleep(world, RETRY_MS)
