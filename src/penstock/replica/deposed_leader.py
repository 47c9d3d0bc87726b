"""What a leader says from memory when it may lead no more.

A leader that was cut off, or stood still, may have been deposed, and goes on until it hears of it. What it takes in
is never committed then, and nobody is told that it was. But a refusal waits for nothing: a client that has talked to
the newer leader meanwhile, and comes back, is told that its batch is out of order, or its transaction not open, and
gives up, though all is well. So a leader that may be deposed says NOT_LEADER_OR_FOLLOWER in place of such a last word,
and a coordinator NOT_COORDINATOR: clients ask who leads, and try again. Everything else it goes on to do: while no
controller is there, leaders are what they were. So a member that is not known, or behind, is told so as ever: it joins
again, which it could not do if it were sent to ask for a coordinator until a controller is back.
"""

from typing import Final

from penstock.base.errors import ErrorCode, KafkaError
from penstock.replica.partition import Partition

LAST_WORDS: Final = frozenset(
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
        # to readers, who begin anew wherever `auto.offset.reset` says
        ErrorCode.OFFSET_OUT_OF_RANGE,
        # to members of groups, and to who manages them
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNRELEASED_INSTANCE_ID,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.NON_EMPTY_GROUP,
    }
)
"""Refusals that rest on what a leader remembers, and that clients take for final."""


def is_hearsay(partition: Partition, code: ErrorCode) -> bool:
    """Whether a refusal would be a last word of one that may not have it."""
    return code in LAST_WORDS and partition.may_be_deposed


def as_leader(partition: Partition, error: KafkaError) -> KafkaError:
    """What a client is told in place of an error: the same, unless it is hearsay."""
    if not is_hearsay(partition, error.code):
        return error
    return KafkaError(
        f"{partition.name} may be led elsewhere by now, where this may not be so: {error}",
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    )
