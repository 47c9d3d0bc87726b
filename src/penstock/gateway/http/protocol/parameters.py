"""Values in paths, queries and bodies: names of topics, numbers of partitions, and points in time.

Each has a pattern, which both the validation and the OpenAPI document use, and a function that reads it. The patterns
keep to what JSON Schema, ECMAScript and Python read the same way: no look-around, digits as `[0-9]`.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final, TypeAlias

from msgspec import Meta

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import Offset, TimestampMs
from penstock.gateway.http.protocol.messages import HttpError, Request
from penstock.gateway.peer_rpc.routed_partition import RoutedPartition, find_partition
from penstock.gateway.shared.topics import find_topic
from penstock.handlers.support.context import Context
from penstock.metadata.controller.topics import NAME_LENGTH_MAX
from penstock.metadata.image import Topic

TOPIC_NAME: Final = (
    "^([a-zA-Z0-9_-]|[.][a-zA-Z0-9_-]|[.][.][a-zA-Z0-9._-])[a-zA-Z0-9._-]*$"  # not a dot, nor two of them
)
"""Kafka's rule, without the length."""


def is_topic_name(text: str) -> bool:
    return len(text) <= NAME_LENGTH_MAX and re.fullmatch(TOPIC_NAME, text) is not None


TopicName: TypeAlias = Annotated[
    str,
    Meta(min_length=1, max_length=NAME_LENGTH_MAX, pattern=TOPIC_NAME, examples=["orders"]),
]

_YEAR = "(19[7-9][0-9]|[2-9][0-9]{3})"
_LEAP_YEAR = "(19(7[26]|8[048]|9[26])|[2-9][0-9](0[48]|[2468][048]|[13579][26])|([2468][048]|[3579][26])00)"
_DATE = (
    f"({_YEAR}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)"
    f"|02-(0[1-9]|1[0-9]|2[0-8]))|{_LEAP_YEAR}-02-29)"
)
_HOUR = "([01][0-9]|2[0-3])"
_TIME = f"{_HOUR}(:[0-5][0-9](:[0-5][0-9]([.,][0-9]{{1,9}})?)?)?"
_ZONE = f"(Z|[+ -]{_HOUR}:?[0-5][0-9])"

MOMENT: Final = f"^([0-9]{{1,15}}|{_DATE}([T ]{_TIME}{_ZONE}?)?)$"
"""Input of `parse_moment` in its usual forms: milliseconds since 1970, or a valid date and time. The space stands for
a plus sign that is not escaped in the query."""


def one_of(*patterns: str) -> str:
    """A pattern that matches what one of these matches."""
    return f"^({'|'.join(each.removeprefix('^').removesuffix('$') for each in patterns)})$"


def whole_numbers(low: int, high: int) -> str:
    """A pattern for the whole numbers of a range, without leading zeros.

    whole_numbers(-1, 12) -> ^(-1|[0-9]|1[0-2])$
    """
    found = []
    if low < 0:
        found += [f"-{each}" for each in _spans(max(-high, 1), -low)]
    if high >= 0:
        found += _spans(max(low, 0), high)
    return f"^({'|'.join(found)})$"


def _spans(low: int, high: int) -> list[str]:
    """Patterns for the numbers from low to high, both 0 or more, by number of digits."""
    found = []
    while low <= high:
        length = len(str(low))
        if low == 10 ** (length - 1) and (most := len(str(high + 1)) - 1) > length:
            found.append(f"[1-9][0-9]{{{length - 1},{most - 1}}}")  # all numbers with so many digits
            low = 10**most
            continue
        end = min(high, 10**length - 1)
        found += _same_length(str(low), str(end))
        low = end + 1
    return found


def _same_length(low: str, high: str) -> list[str]:
    """Patterns for numbers with equal numbers of digits: those with the first digit of `low`, those between, those
    with the first digit of `high`."""
    if not low:
        return [""]
    first, last, rest = int(low[0]), int(high[0]), len(low) - 1
    if first == last:
        return [low[0] + each for each in _same_length(low[1:], high[1:])]
    found = []
    if low[1:] != "0" * rest:
        found += [low[0] + each for each in _same_length(low[1:], "9" * rest)]
        first += 1
    above = []
    if high[1:] != "9" * rest:
        above = [high[0] + each for each in _same_length("0" * rest, high[1:])]
        last -= 1
    if first <= last:
        digits = str(first) if first == last else f"[{first}-{last}]"
        found.append(digits + {0: "", 1: "[0-9]"}.get(rest, f"[0-9]{{{rest}}}"))
    return found + above


GROUP_CHARS_MAX: Final = 4_096
"""Limit of a group's name in a target: percent-encoded it still fits into 64 KB."""

PARTITION_MAX: Final = 2**31 - 1
_PARTITION_DIGITS_MAX: Final = 10

_OFFSET_DIGITS_MAX: Final = 18
OFFSET_MAX: Final = 10**_OFFSET_DIGITS_MAX - 1
"""Largest offset in a path or a body."""


def topic_in(context: Context, request: Request) -> Topic:
    """The topic in the path."""
    return find_topic(context, request.path["topic"])


def partition_in(context: Context, request: Request) -> RoutedPartition:
    """The same for a partition, led by any broker."""
    topic = topic_in(context, request)
    return find_partition(context, topic.name, number_in(request))


def number_in(request: Request) -> int:
    text = request.path["partition"]
    if not (
        text.isascii()
        and text.isdigit()
        and len(text) <= _PARTITION_DIGITS_MAX
        and int(text) <= PARTITION_MAX
    ):
        raise HttpError(400, "bad_parameter", f"the partition is {text[:20]!r}, expected a number such as 0")
    return int(text)


def offset_in(request: Request) -> Offset:
    text = request.path["offset"]
    if not (text.isascii() and text.isdigit() and len(text) <= _OFFSET_DIGITS_MAX):
        raise HttpError(400, "bad_parameter", f"the offset is {text[:20]!r}, expected a number such as 42")
    return int(text)


_MILLISECOND_DIGITS_MAX = 15
"""Largest number of milliseconds: the year 30,000."""


def parse_moment(name: str, text: str) -> TimestampMs:
    """The timestamp in a parameter."""
    if text.isascii() and text.isdigit() and len(text) <= _MILLISECOND_DIGITS_MAX:
        return int(text)
    # In a query a plus sign that is not escaped is a space.
    for each in (text, "+".join(text.rsplit(" ", 1))):
        try:
            moment = datetime.fromisoformat(each)
        except ValueError:
            continue
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        # East of Greenwich the first hours of 1970 are before the epoch.
        since = max(moment - _EPOCH, timedelta())
        if moment.year >= _EPOCH.year:
            return (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000
    raise KafkaError(
        f"{name} is {text!r}, expected milliseconds since 1970 or a time such as 2026-01-31T12:00:00Z",
        ErrorCode.INVALID_REQUEST,
    )


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
