"""The control records that the quorum writes to the metadata log and its snapshots.

A control record's key has its type (`records.ControlType`). The value begins with its version.
"""

from struct import Struct as Packing
from typing import ClassVar

from penstock.base.ids import Uuid
from penstock.records import ControlType
from penstock.records.structs import (
    INT16,
    INT32,
    INT64,
    STRING,
    UINT16,
    UUID,
    CorruptStruct,
    Struct,
    array,
    body_of,
    read_whole,
    struct,
    wire,
)

_VERSION = Packing(">h")


class ControlMessage(Struct):
    TYPE: ClassVar[ControlType] = ControlType.UNKNOWN
    LATEST: ClassVar[int] = 0
    version: int = wire(INT16)


class Voter(Struct):
    id: int = wire(INT32)
    directory_id: Uuid = wire(UUID, since=1)


class LeaderChangeMessage(ControlMessage):
    """The first record of an epoch: its leader, the voters, and those that granted their vote.

    Kafka 4.3 declares version 1, with directories, but writes version 0 and reads nothing else.
    """

    TYPE: ClassVar = ControlType.LEADER_CHANGE
    LATEST: ClassVar = 1
    leader_id: int = wire(INT32)
    voters: tuple[Voter, ...] = wire(array(struct(Voter)))
    granting_voters: tuple[Voter, ...] = wire(array(struct(Voter)))


class SnapshotHeaderRecord(ControlMessage):
    TYPE: ClassVar = ControlType.SNAPSHOT_HEADER
    last_contained_log_timestamp: int = wire(INT64)


class SnapshotFooterRecord(ControlMessage):
    """The last record of a snapshot; a snapshot without it is incomplete."""

    TYPE: ClassVar = ControlType.SNAPSHOT_FOOTER


class KRaftVersionRecord(ControlMessage):
    TYPE: ClassVar = ControlType.KRAFT_VERSION
    kraft_version: int = wire(INT16)


class VoterEndpoint(Struct):
    name: str = wire(STRING)
    host: str = wire(STRING)
    port: int = wire(UINT16)


class KRaftVersionRange(Struct):
    min_level: int = wire(INT16)
    max_level: int = wire(INT16)


class QuorumVoter(Struct):
    id: int = wire(INT32)
    directory_id: Uuid = wire(UUID)
    endpoints: tuple[VoterEndpoint, ...] = wire(array(struct(VoterEndpoint)))
    kraft_version: KRaftVersionRange = wire(struct(KRaftVersionRange))


class VotersRecord(ControlMessage):
    TYPE: ClassVar = ControlType.KRAFT_VOTERS
    voters: tuple[QuorumVoter, ...] = wire(array(struct(QuorumVoter)))


MESSAGES: dict[ControlType, type[ControlMessage]] = {
    kind.TYPE: kind for kind in ControlMessage.__subclasses__()
}


def encode_control(message: ControlMessage) -> bytes:
    """Encode the value of a control record; its key is `records.control_key(message.TYPE)`."""
    out = bytearray()
    body_of(type(message), message.version).write(out, message)
    return bytes(out)


def decode_control(kind: ControlType, value: bytes) -> ControlMessage:
    if kind not in MESSAGES:
        raise CorruptStruct(f"a {kind.name} control record does not belong in a metadata log")
    if len(value) < _VERSION.size:
        raise CorruptStruct(f"a {kind.name} control record has {len(value)} bytes, too few for a version")
    message = MESSAGES[kind]
    (version,) = _VERSION.unpack_from(value)
    if not 0 <= version <= message.LATEST:
        raise CorruptStruct(
            f"a {kind.name} control record has version {version}, expected 0 to {message.LATEST}"
        )
    return message(**read_whole(message, version, value))
