"""Kafka's records of `__transaction_state`: one key for each transactional id, its latest state as the value.

A key begins with its type (two bytes, always 0), a value with its version (two bytes). The rest are Kafka 4.3's own
schemas. Keys are not flexible, so that compaction finds the same bytes for the same id for ever. Values are
version 0, or 1, which is flexible and has the fields of KIP-890 as tags; Kafka writes version 1 wherever the
cluster's `transaction.version` is 1 or more. A value of None is a tombstone: the id has expired.
"""

from struct import Struct as Packing
from typing import ClassVar, NamedTuple

from penstock.base.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from penstock.records.structs import (
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    CorruptStruct,
    Struct,
    array,
    body_of,
    read_whole,
    struct,
    wire,
)

TRANSACTION_LOG_TYPE = 0
_TYPE_OR_VERSION = Packing(">h")
_NEVER = 2**15
"""No version is this high: what is flexible since it never is."""


class TransactionLogKey(Struct):
    FLEXIBLE_SINCE: ClassVar[int] = _NEVER
    transactional_id: str = wire(STRING)


class PartitionsSchema(Struct):
    topic: str = wire(STRING)
    partition_ids: tuple[int, ...] = wire(array(INT32))


class TransactionLogValue(Struct):
    FLEXIBLE_SINCE: ClassVar[int] = 1
    LATEST: ClassVar[int] = 1
    version: int = 1
    producer_id: int = wire(INT64)
    previous_producer_id: int = wire(INT64, NO_PRODUCER_ID, since=1, tag=0)
    next_producer_id: int = wire(INT64, NO_PRODUCER_ID, since=1, tag=1)
    producer_epoch: int = wire(INT16)
    next_producer_epoch: int = wire(INT16, NO_PRODUCER_EPOCH, since=1, tag=3)
    """Of transactions that are prepared in two phases (KIP-939), which Kafka 4.3 does not write yet."""
    transaction_timeout_ms: int = wire(INT32)
    transaction_status: int = wire(INT8)
    transaction_partitions: tuple[PartitionsSchema, ...] | None = wire(
        array(struct(PartitionsSchema)), nullable=True
    )
    """None where the state is Empty."""
    transaction_last_update_timestamp_ms: int = wire(INT64)
    transaction_start_timestamp_ms: int = wire(INT64)
    client_transaction_version: int = wire(INT16, 0, since=1, tag=2)


class Record(NamedTuple):
    """What is written to the partition: a key and a value, or a tombstone."""

    key: bytes
    value: bytes | None


def encode_key(transactional_id: str) -> bytes:
    out = bytearray(_TYPE_OR_VERSION.pack(TRANSACTION_LOG_TYPE))
    body_of(TransactionLogKey, 0).write(out, TransactionLogKey(transactional_id=transactional_id))
    return bytes(out)


def decode_key(data: bytes) -> str | None:
    """The transactional id; None for a type that a later Kafka may have, and that is not acted on."""
    if _number(data, "key") != TRANSACTION_LOG_TYPE:
        return None
    return str(read_whole(TransactionLogKey, 0, data, _TYPE_OR_VERSION.size)["transactional_id"])


def encode_value(value: TransactionLogValue) -> bytes:
    out = bytearray(_TYPE_OR_VERSION.pack(value.version))
    body_of(TransactionLogValue, value.version).write(out, value)
    return bytes(out)


def decode_value(data: bytes) -> TransactionLogValue:
    """Kafka passes over a version that it does not know. It is refused here: what an id is doing must be known."""
    version = _number(data, "value")
    if not 0 <= version <= TransactionLogValue.LATEST:
        raise CorruptStruct(
            f"a transaction's state has version {version}, expected 0 to {TransactionLogValue.LATEST}"
        )
    return TransactionLogValue(
        version=version, **read_whole(TransactionLogValue, version, data, _TYPE_OR_VERSION.size)
    )


def _number(data: bytes, what: str) -> int:
    if len(data) < _TYPE_OR_VERSION.size:
        raise CorruptStruct(
            f"the {what} of a transaction's record has {len(data)} bytes, expected at least {_TYPE_OR_VERSION.size}"
        )
    number: int = _TYPE_OR_VERSION.unpack_from(data)[0]
    return number
