"""Parses the lines of a client into commands.

    AUTH <user> <password>                          log in
    TOPIC <topic> <key> <length>                    write a message; its bytes follow the line
    <topic>:<group>:<partition>[:<toOffset>]        send messages from the group's offset on; -1 for all partitions
    ACK                                             the last message is processed: commit its offset
    SET_OFFSET <topic>:<group> <offset|BEGIN|END>   set the group's offset in all partitions

Fields are separated by one space. Group, key, user and password may be percent-encoded, the topic may not.

`RULES` has what a client must be authorized for.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from penstock.base.ids import Offset
from penstock.client.line_text import decode_group, decode_key
from penstock.gateway.shared.access import ANYONE, GROUP, TOPIC, Need, Rule
from penstock.gateway.shared.login import Password
from penstock.metadata.acls import Operation

ALL_PARTITIONS = -1

END = -1
"""Instead of an offset: the end of each partition, as in Kafka's ListOffsets."""

_DIGITS_MAX = 19
_NUMBER_MAX = 2**63 - 1
_PARTITION_MAX = 2**31 - 1

_USAGE = {
    "AUTH": "AUTH <user> <password>",
    "TOPIC": "TOPIC <topic> <key> <length>",
    "SET_OFFSET": "SET_OFFSET <topic>:<group> <offset|BEGIN|END>",
    "read": "<topic>:<group>:<partition>[:<toOffset>]",
}


class Produce(NamedTuple):
    topic: str
    key: bytes | None
    length: int


class Read(NamedTuple):
    topic: str
    group: str
    partition: int
    """Or `ALL_PARTITIONS`."""
    to_offset: Offset | None
    """The last offset to send, in each partition; None for a stream without an end."""


class SetOffset(NamedTuple):
    topic: str
    group: str
    offset: Offset | None
    """None for the start of each partition; `END` for its end."""


class Ack(NamedTuple):
    pass


class Auth(NamedTuple):
    given: Password


Command: TypeAlias = Produce | Read | SetOffset | Ack | Auth

_READS: Final = Rule((Need(Operation.READ, GROUP, "group"), Need(Operation.READ, TOPIC, "topic")))

RULES: Final[Mapping[type[Any], Rule]] = {
    Auth: ANYONE,
    Produce: Rule(shows=(Need(Operation.WRITE, TOPIC, "topic"),), creates=True),
    Read: _READS,
    Ack: _READS,
    SetOffset: _READS,
}
"""By command. ACK needs what the request for the message needs."""

_ACK = Ack()


class BadCommand(Exception):
    """A line that is not a valid command; the message is for the client."""

    def __init__(self, message: str, payload_bytes: int | None = 0) -> None:
        super().__init__(message)
        self.payload_bytes = payload_bytes
        """Bytes after the line that are not a command; None if that is not known."""


def parse(line: bytes) -> Command:
    line = line.rstrip(b" ")
    if line.startswith(b"TOPIC "):
        return _produce(line)
    if line == b"ACK":
        return _ACK
    word = line.split(b" ", 1)[0]
    if word == b"SET_OFFSET":
        return _set_offset(line)
    if word == b"AUTH":
        return _auth(line)
    if word == b"TOPIC":
        raise BadCommand(f"expected {_USAGE['TOPIC']}", None)
    if word == b"ACK":
        raise BadCommand("ACK takes no arguments: it acknowledges the last message")
    if b":" not in line:
        raise BadCommand(
            f"{_shown(line)!r} is not a command, expected TOPIC, ACK, SET_OFFSET or {_USAGE['read']}"
        )
    return _read(line)


def _produce(line: bytes) -> Produce:
    try:
        _, topic, key, length_text = line.split(b" ")
    except ValueError:
        raise BadCommand(f"expected {_USAGE['TOPIC']}", None) from None
    length = _number(length_text)
    if length is None:
        # What follows may be a message or commands, and a message must never be taken for commands.
        raise BadCommand(f"the length is {_shown(length_text)!r}, expected a number of bytes", None)
    try:
        return Produce(_topic(topic), decode_key(key), length)
    except ValueError as error:
        raise BadCommand(f"invalid key: {error}", length) from None
    except BadCommand as error:
        error.payload_bytes = length
        raise


def _read(line: bytes) -> Read:
    fields = line.split(b":")
    if not 3 <= len(fields) <= 4:
        raise BadCommand(f"expected {_USAGE['read']}")
    topic, group, partition_text, *rest = fields
    partition = ALL_PARTITIONS if partition_text == b"-1" else _number(partition_text, _PARTITION_MAX)
    if partition is None:
        raise BadCommand(f"the partition is {_shown(partition_text)!r}, expected a number, or -1 for all")
    to_offset: int | None = None
    if rest:
        to_offset = _number(rest[0])
        if to_offset is None:
            raise BadCommand(f"the offset is {_shown(rest[0])!r}, expected a number from 0 on")
    return Read(_topic(topic), _group(group), partition, to_offset)


def _set_offset(line: bytes) -> SetOffset:
    fields = line.split(b" ")
    names = fields[1].split(b":") if len(fields) == 3 else []
    if len(names) != 2:
        raise BadCommand(f"expected {_USAGE['SET_OFFSET']}")
    offset: int | None = None
    if fields[2] == b"END":
        offset = END
    elif fields[2] != b"BEGIN":
        offset = _number(fields[2])
        if offset is None:
            raise BadCommand(
                f"the offset is {_shown(fields[2])!r}, expected a number from 0 on, BEGIN or END"
            )
    return SetOffset(_topic(names[0]), _group(names[1]), offset)


def _auth(line: bytes) -> Auth:
    """No error shows any part of the line."""
    fields = line.split(b" ")
    try:
        _, user, password = (decode_group(each) for each in fields)
    except ValueError:
        raise BadCommand(
            f"expected {_USAGE['AUTH']}, with spaces and % in them percent-encoded as %20 and %25"
        ) from None
    return Auth(Password(user, password))


def _topic(word: bytes) -> str:
    """As text; whether it is a name is seen to where topics are made and found."""
    try:
        return word.decode("ascii")
    except UnicodeDecodeError:
        raise BadCommand(f"{_shown(word)!r} is not a topic name") from None


def _group(word: bytes) -> str:
    try:
        group = decode_group(word)
    except UnicodeDecodeError:
        raise BadCommand(f"{_shown(word)!r} is not a group id: it is not UTF-8") from None
    except ValueError as error:
        raise BadCommand(f"{_shown(word)!r} is not a group id: {error}") from None
    if not group:
        raise BadCommand("the group id is empty")
    if any(each.isspace() for each in word.decode()):
        raise BadCommand("the group id has a space: encode it as %20")
    return group


def _number(word: bytes, most: int = _NUMBER_MAX) -> int | None:
    """None for what is no number, or none of 64 bits; thousands of digits are not even looked at."""
    if not word.isdigit() or len(word) > _DIGITS_MAX:
        return None
    number = int(word)
    return number if number <= most else None


SHOWN_MAX = 60
"""Of what a client sent, in an error about it."""


def _shown(word: bytes) -> str:
    text = word[: SHOWN_MAX + 1].decode("utf-8", "backslashreplace")
    return text if len(word) <= SHOWN_MAX else text[:SHOWN_MAX] + "..."
