"""Rewrites final errors to retriable ones while this broker may have been deposed as leader.

A leader that is cut off, or pauses, may have been deposed without knowing. If it was, its ISR no longer fetches from
it, so it commits nothing, and acks=all requests that wait fail after a while (`stalled_commit`). But it can still
return errors, some of which are final for clients: a client that wrote to the new leader meanwhile and comes back
would get OUT_OF_ORDER_SEQUENCE_NUMBER or INVALID_TXN_STATE, and give up. So a leader that may be deposed returns
NOT_LEADER_OR_FOLLOWER instead, and a coordinator NOT_COORDINATOR: clients refresh metadata and retry.

All else works as before: while no controller is available, leaders keep leading. So UNKNOWN_MEMBER_ID and
ILLEGAL_GENERATION are not rewritten: a member must be able to rejoin before a controller is back.
"""

from typing import Final

from penstock.base.errors import ErrorCode, KafkaError
from penstock.replica.partition import Partition

FINAL_ERRORS: Final = frozenset(
    {
        # to producers
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        # of transactions
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        # to consumers, which would reset to `auto.offset.reset`
        ErrorCode.OFFSET_OUT_OF_RANGE,
        # to members of groups and to admin clients
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNRELEASED_INSTANCE_ID,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.NON_EMPTY_GROUP,
    }
)
"""Errors that clients do not retry, and that depend on state which a newer leader may have changed."""


def may_be_outdated(partition: Partition, code: ErrorCode) -> bool:
    """Whether an error is final and a newer leader might not return it."""
    return code in FINAL_ERRORS and partition.may_be_deposed


def retriable_if_deposed(partition: Partition, error: KafkaError) -> KafkaError:
    """The error itself, or NOT_LEADER_OR_FOLLOWER in place of one that may be outdated."""
    if not may_be_outdated(partition, error.code):
        return error
    return KafkaError(
        f"This broker may no longer lead {partition.name}; refresh metadata and retry. Its own answer was: {error}",
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    )
