"""Leaders and coordinators move: how long somebody who is not there is looked for.

here       the node leads, or coordinates: nothing is asked, and nothing is slower than on a node alone
there      another broker does, and is asked
nowhere    nobody does, or not yet: tried again until the time is up, then it is an error that passes
"""

from collections.abc import Callable
from typing import Final, TypeVar

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.steps import Steps, sleep
from penstock.handlers.support.context import Context

T = TypeVar("T")

PATIENCE_MS: Final = 10_000
"""Longer than an election takes, shorter than clients wait."""

RETRY_MS: Final = 50

RETRIABLE: Final = frozenset(
    (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_ID,  # to who knows the topic: the other node's image is behind
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NETWORK_EXCEPTION,
    )
)
"""What is said meanwhile."""


def is_alone(context: Context) -> bool:
    """Whether there is no other broker: what is not here is nowhere."""
    return len(context.image.brokers) <= 1


def retry_while_moving(context: Context, attempt: Callable[[], Steps[T]]) -> Steps[T]:
    """Try something until it does not fail for somebody who is not there, for so long as that makes sense."""
    world = context.world
    until_ms = world.now_ms() + PATIENCE_MS
    while True:
        try:
            return (yield from attempt())
        except KafkaError as error:
            if error.code not in RETRIABLE or is_alone(context) or world.now_ms() >= until_ms:
                raise
        yield sleep(world, RETRY_MS)
