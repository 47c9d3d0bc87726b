"""What the quorum itself writes: control records of the metadata log and its snapshots, and `quorum-state`.

A control record's key says which of these its value is (`records.ControlType`). The value begins with its
own version, which says how the rest reads. The file `quorum-state` holds, as JSON, the epoch that a node has
reached and whom it voted for in it.
"""

# ruff: noqa: RUF009  (`wire` makes a dataclass field, as `dataclasses.field` does)

from dataclasses import dataclass
from struct import Struct as Packing
from typing import Any, ClassVar

import msgspec

from penstock.records import ControlType

from .codec import (
    INT16,
    INT32,
    INT64,
    NO_UUID,
    STRING,
    UINT16,
    UUID,
    CorruptMetadata,
    Struct,
    array,
    body_of,
    read_whole,
    struct,
    wire,
)
from .ids import Uuid, uuid_from_text, uuid_text

_VERSION = Packing(">h")


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlMessage(Struct):
    TYPE: ClassVar[ControlType] = ControlType.UNKNOWN
    LATEST: ClassVar[int] = 0
    version: int = wire(INT16)


@dataclass(frozen=True, slots=True, kw_only=True)
class Voter(Struct):
    id: int = wire(INT32)
    directory_id: Uuid = wire(UUID, since=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderChangeMessage(ControlMessage):
    """The first record of an epoch: who leads it, and who made it so."""

    TYPE: ClassVar = ControlType.LEADER_CHANGE
    LATEST: ClassVar = 1
    leader_id: int = wire(INT32)
    voters: tuple[Voter, ...] = wire(array(struct(Voter)))
    granting_voters: tuple[Voter, ...] = wire(array(struct(Voter)))


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotHeaderRecord(ControlMessage):
    TYPE: ClassVar = ControlType.SNAPSHOT_HEADER
    last_contained_log_timestamp: int = wire(INT64)


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotFooterRecord(ControlMessage):
    """The last record of a snapshot; one without it was never finished."""

    TYPE: ClassVar = ControlType.SNAPSHOT_FOOTER


@dataclass(frozen=True, slots=True, kw_only=True)
class KRaftVersionRecord(ControlMessage):
    TYPE: ClassVar = ControlType.KRAFT_VERSION
    kraft_version: int = wire(INT16)


@dataclass(frozen=True, slots=True, kw_only=True)
class VoterEndpoint(Struct):
    name: str = wire(STRING)
    host: str = wire(STRING)
    port: int = wire(UINT16)


@dataclass(frozen=True, slots=True, kw_only=True)
class KRaftVersionRange(Struct):
    min_level: int = wire(INT16)
    max_level: int = wire(INT16)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumVoter(Struct):
    id: int = wire(INT32)
    directory_id: Uuid = wire(UUID)
    endpoints: tuple[VoterEndpoint, ...] = wire(array(struct(VoterEndpoint)))
    kraft_version: KRaftVersionRange = wire(struct(KRaftVersionRange))


@dataclass(frozen=True, slots=True, kw_only=True)
class VotersRecord(ControlMessage):
    TYPE: ClassVar = ControlType.KRAFT_VOTERS
    voters: tuple[QuorumVoter, ...] = wire(array(struct(QuorumVoter)))


MESSAGES: dict[ControlType, type[ControlMessage]] = {
    kind.TYPE: kind
    for kind in (
        LeaderChangeMessage,
        SnapshotHeaderRecord,
        SnapshotFooterRecord,
        KRaftVersionRecord,
        VotersRecord,
    )
}


def encode_control(message: ControlMessage) -> bytes:
    """The value of the control record; its key is `records.control_key(message.TYPE)`."""
    out = bytearray()
    body_of(type(message), message.version).write(out, message)
    return bytes(out)


def decode_control(kind: ControlType, value: bytes) -> ControlMessage:
    if kind not in MESSAGES:
        raise CorruptMetadata(f"a {kind.name} control record has no place in a metadata log")
    if len(value) < _VERSION.size:
        raise CorruptMetadata(f"a {kind.name} control record has {len(value)} bytes, less than a version")
    message = MESSAGES[kind]
    (version,) = _VERSION.unpack_from(value)
    if not 0 <= version <= message.LATEST:
        raise CorruptMetadata(f"a {kind.name} control record has version {version}, {message.LATEST} known")
    return message(**read_whole(message, version, value))


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumState:
    """What a voter must never forget: the epoch it has reached, its leader, and its own vote in it.

    Version 0 is what Kafka writes for a fixed set of voters, version 1 for one that can change.
    """

    leader_id: int = -1
    leader_epoch: int = 0
    voted_id: int = -1
    voted_directory_id: Uuid = NO_UUID
    """In version 1 only."""
    voters: tuple[int, ...] = ()
    """In version 0 only."""
    version: int = 1


def encode_quorum_state(state: QuorumState) -> bytes:
    elected = {"leaderId": state.leader_id, "leaderEpoch": state.leader_epoch, "votedId": state.voted_id}
    if state.version == 0:
        voters = [{"voterId": voter} for voter in state.voters]
        return msgspec.json.encode(
            {"clusterId": ""} | elected | {"appliedOffset": 0, "currentVoters": voters, "data_version": 0}
        )
    return msgspec.json.encode(
        elected | {"votedDirectoryId": uuid_text(state.voted_directory_id), "data_version": state.version}
    )


def decode_quorum_state(data: bytes) -> QuorumState:
    try:
        found: dict[str, Any] = msgspec.json.decode(data, type=dict[str, Any])
        version = _number(found, "data_version")
        if version not in (0, 1):
            raise CorruptMetadata(f"quorum-state has data_version {version}, 0 or 1 expected")
        return QuorumState(
            leader_id=_number(found, "leaderId"),
            leader_epoch=_number(found, "leaderEpoch"),
            voted_id=_number(found, "votedId"),
            voted_directory_id=uuid_from_text(found["votedDirectoryId"]) if version else NO_UUID,
            voters=tuple(_number(voter, "voterId") for voter in found.get("currentVoters") or ()),
            version=version,
        )
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError, ValueError) as error:
        raise CorruptMetadata(f"quorum-state cannot be read: {error!r}") from error


def _number(found: dict[str, Any], name: str) -> int:
    value = found[name]
    if not isinstance(value, int):
        raise TypeError(f"{name} is {value!r}, a number expected")
    return value
