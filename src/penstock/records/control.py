"""Control records: written by brokers to a partition, and skipped by consumers.

The key is a version and a type, two int16. The value of a transaction's end marker is a version (int16)
and the epoch of the coordinator that wrote it (int32), which fences deposed coordinators.
"""

from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from penstock.base.ids import NO_LEADER_EPOCH, LeaderEpoch, Offset, ProducerId, TimestampMs

from .batch import Record
from .builder import BatchBuilder
from .errors import CorruptBatch

KEY = Struct(">hh")
END_TXN_VALUE = Struct(">hi")
VERSION = 0
"""Version of keys and of end marker values. Later versions are read as this one, as in Kafka."""


class ControlType(IntEnum):
    UNKNOWN = -1
    """Any unknown type, which is skipped."""
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


_TYPES = {int(kind): kind for kind in ControlType}


class ControlRecord(NamedTuple):
    type: ControlType
    coordinator_epoch: int | None
    """Set for ABORT and COMMIT; None for other types."""
    version: int
    """Of the key."""


def control_key(kind: ControlType) -> bytes:
    return KEY.pack(VERSION, kind)


def end_txn_marker(
    producer_id: ProducerId,
    producer_epoch: int,
    commit: bool,
    coordinator_epoch: int,
    timestamp: TimestampMs,
    base_offset: Offset = 0,
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH,
) -> bytes:
    """The batch that ends a transaction: one control record, and no sequence number."""
    builder = BatchBuilder(
        base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
        leader_epoch=leader_epoch,
    )
    kind = ControlType.COMMIT if commit else ControlType.ABORT
    builder.append(control_key(kind), END_TXN_VALUE.pack(VERSION, coordinator_epoch), timestamp)
    return builder.build()


def parse_control(record: Record) -> ControlRecord:
    key = record.key
    if key is None or len(key) < KEY.size:
        found = "none" if key is None else f"{len(key)} bytes"
        raise CorruptBatch(
            f"the control record at offset {record.offset} needs a key of {KEY.size} bytes, has {found}"
        )
    version, number = KEY.unpack_from(key)
    if version < 0:
        raise CorruptBatch(
            f"the control record at offset {record.offset} has key version {version}, 0 expected"
        )
    kind = _TYPES.get(number, ControlType.UNKNOWN)
    if kind not in (ControlType.ABORT, ControlType.COMMIT):
        return ControlRecord(kind, None, version)
    value = record.value
    if value is None or len(value) < END_TXN_VALUE.size:
        found = "none" if value is None else f"{len(value)} bytes"
        raise CorruptBatch(
            f"the {kind.name} marker at offset {record.offset} needs a value of {END_TXN_VALUE.size} bytes, "
            f"has {found}"
        )
    value_version, coordinator_epoch = END_TXN_VALUE.unpack_from(value)
    if value_version < 0:
        raise CorruptBatch(
            f"the {kind.name} marker at offset {record.offset} has value version {value_version}, 0 expected"
        )
    return ControlRecord(kind, coordinator_epoch, version)
