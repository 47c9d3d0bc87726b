"""Messages between the gateways of brokers: plain data, encoded as MessagePack.

    request   [kind, fields]
    reply     [0, result]  or  [1, code, message]  or  [2, code, message, assignments]: a conflict with a group's state

A broker answers a kind that it does not know with INVALID_REQUEST, so that releases can be mixed in a cluster. Fields
are only added at the end, with a default.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import Offset, TimestampMs, Uuid
from penstock.coordinator.groups import requests as groups
from penstock.gateway.shared.log_inspection import PartitionView

Assignments: TypeAlias = Mapping[str, Sequence[int]]
"""Partitions by topic; a topic of which the member has none now, too."""


class Conflict(Exception):
    def __init__(self, code: str, message: str, assignments: Assignments | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.assignments = assignments
        """What the member has now; None where nobody said who asks, or it is no member."""


ANSWER, REFUSAL, CONFLICT = 0, 1, 2


class _Letter(msgspec.Struct, array_like=True, frozen=True):
    """Written as a list, so that what a newer node has more is passed over."""


# -- partitions ------------------------------------------------------------------------------------------------


class Line(_Letter, frozen=True):
    """A record to be written."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    idempotency_key: str | None = None


class Write(_Letter, frozen=True):
    """To the leader of the partitions."""

    topic: str
    topic_id: Uuid
    lines: tuple[Line, ...]


class Written(_Letter, frozen=True):
    """What became of a record."""

    partition: int
    offset: Offset
    code: int = 0
    message: str = ""
    is_in_doubt: bool = False
    """It failed, and may be written all the same."""

    @property
    def error(self) -> KafkaError | None:
        """What is wrong. Whoever sends a record knows its partition: who does not is behind."""
        if not self.code:
            return None
        code = _code(self.code)
        if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            code = ErrorCode.LEADER_NOT_AVAILABLE
        return KafkaError(self.message, code)


class FindKeys(_Letter, frozen=True):
    """Which of these idempotency keys a node knows."""

    topic_id: Uuid
    digests: tuple[bytes, ...]


KeyPlaces: TypeAlias = list[tuple[int, Offset] | None]
"""Partition and offset of each; None where it is not known."""


class Look(_Letter, frozen=True):
    """Where partitions begin and end, to their leader."""

    partitions: tuple[tuple[Uuid, int], ...]
    times: tuple[TimestampMs, ...] = ()
    """For each of these, the first record that is as late."""


class Bounds(_Letter, frozen=True):
    """A partition, as its leader sees it."""

    log_start: Offset
    last_stable: Offset
    high_watermark: Offset
    log_end: Offset
    size_bytes: int
    segments: int
    found: tuple[Offset | None, ...] = ()
    """The offset for each time that was asked for; None where no record is as late."""


class Looked(_Letter, frozen=True):
    code: int
    message: str = ""
    bounds: Bounds | None = None

    @property
    def error(self) -> KafkaError:
        """Why there are none. Who asks knows the partition: who does not is behind."""
        code = _code(self.code)
        if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            code = ErrorCode.LEADER_NOT_AVAILABLE
        return KafkaError(self.message, code)


class View(_Letter, frozen=True):
    """A topic's partitions opened up, of those that the node leads."""

    topic_id: Uuid
    numbers: tuple[int, ...]
    segments_max: int
    entries_max: int


class Shorten(_Letter, frozen=True):
    """Delete the records before an offset."""

    topic_id: Uuid
    partition: int
    before: Offset


# -- groups ----------------------------------------------------------------------------------------------------


class Join(_Letter, frozen=True):
    group: str
    consumer: str
    topics: tuple[str, ...]
    session_ms: int


class Leave(_Letter, frozen=True):
    group: str
    consumer: str


class Consume(_Letter, frozen=True):
    group: str
    consumer: str | None
    topic: str
    partition: int
    records_max: int
    wait_ms: int


class ConsumedRecord(_Letter, frozen=True):
    offset: Offset
    timestamp: TimestampMs
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()
    """Names as bytes, since they need not be UTF-8."""


class ConsumedRecords(_Letter, frozen=True):
    records: tuple[ConsumedRecord, ...]
    next_offset: Offset


class Commit(_Letter, frozen=True):
    group: str
    consumer: str | None
    topic: str
    partition: int
    offset: Offset


class _Kind(NamedTuple):
    asked: Any
    """The type of what is asked."""
    reply: Any


def _of_groups(*asked: type[Any]) -> dict[str, _Kind]:
    """Requests to a coordinator, as they are."""
    return {each.__name__: _Kind(each, type(groups.refusal(_any(each), ErrorCode.NONE))) for each in asked}


def _any(request_type: type[Any]) -> Any:
    """A request of a type: its reply has the same type, whatever is in it."""
    return request_type.__new__(request_type, *("" for _ in request_type._fields))


KINDS: Final[Mapping[str, _Kind]] = {
    "Write": _Kind(Write, list[Written]),
    "FindKeys": _Kind(FindKeys, KeyPlaces),
    "Look": _Kind(Look, list[Looked]),
    "View": _Kind(View, list[PartitionView]),
    "Shorten": _Kind(Shorten, int),
    "Join": _Kind(Join, dict[str, list[int]]),
    "Leave": _Kind(Leave, None),
    "Consume": _Kind(Consume, ConsumedRecords),
    "Commit": _Kind(Commit, None),
    **_of_groups(
        groups.OffsetCommit,
        groups.OffsetFetch,
        groups.ListGroups,
        groups.DescribeGroups,
        groups.DeleteGroups,
        groups.ConsumerGroupDescribe,
    ),
}

_encode = msgspec.msgpack.Encoder().encode
_open = msgspec.msgpack.Decoder(tuple[str, msgspec.Raw]).decode
_readers = {name: msgspec.msgpack.Decoder(kind.asked).decode for name, kind in KINDS.items()}
_replies = {name: msgspec.msgpack.Decoder(kind.reply).decode for name, kind in KINDS.items()}
_envelope = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_number = msgspec.msgpack.Decoder(int).decode
_text = msgspec.msgpack.Decoder(str).decode
_assignments = msgspec.msgpack.Decoder(dict[str, list[int]] | None).decode


def _code(number: int) -> ErrorCode:
    try:
        return ErrorCode(number)
    except ValueError:  # of a newer release
        return ErrorCode.UNKNOWN_SERVER_ERROR


def write(asked: Any) -> bytes:
    return _encode((type(asked).__name__, asked))


def read(data: bytes) -> Any:
    """What is asked; a KafkaError with INVALID_REQUEST where it cannot be understood."""
    try:
        kind, body = _open(data)
        return _readers[kind](body)
    except KeyError:
        raise KafkaError(f"{kind[:64]!r} is nothing that can be asked", ErrorCode.INVALID_REQUEST) from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise KafkaError(f"a letter cannot be read: {error}", ErrorCode.INVALID_REQUEST) from error


def write_reply(answer: Any) -> bytes:
    if isinstance(answer, Conflict):
        assignments: Mapping[str, Sequence[int]] | None = answer.assignments
        return _encode((CONFLICT, answer.code, str(answer), assignments))
    if isinstance(answer, KafkaError):
        return _encode((REFUSAL, int(answer.code), str(answer)))
    return _encode((ANSWER, answer))


def read_reply(asked: Any, data: bytes) -> Any:
    """The answer to what was asked, or the KafkaError or Conflict that it was answered with."""
    try:
        what, *parts = _envelope(data)
        match _number(what):
            case 0:
                return _replies[type(asked).__name__](parts[0])
            case 1:
                return KafkaError(_text(parts[1]), _code(_number(parts[0])))
            case 2:
                return Conflict(_text(parts[0]), _text(parts[1]), _assignments(parts[2]))
        raise ValueError(f"a reply begins with {_number(what)}")
    except (msgspec.MsgspecError, ValueError, IndexError, RecursionError) as error:
        return KafkaError(f"another node's answer cannot be read: {error}", ErrorCode.UNKNOWN_SERVER_ERROR)
