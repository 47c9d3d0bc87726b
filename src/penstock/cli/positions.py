"""Positions in a log as users write them.

earliest, latest         the ends of each partition; beginning and end mean the same
120, -5                  an offset; N records before the log end
@1767225600000           milliseconds since 1970
2026-01-01T10:00:00Z     a time; without a zone it is UTC, a date alone is its midnight
-1h, -90s, -2d           a time ago
"""

import re
from datetime import UTC, datetime
from typing import NamedTuple

from penstock.base.ids import INT64_MAX
from penstock.cli.output import Refused

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}
_AGO = re.compile(r"-(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")


class LogPosition(NamedTuple):
    """One field is set. A negative offset counts back from the log end."""

    edge: str | None = None
    offset: int | None = None
    time_ms: int | None = None


def parse_position(text: str, now_ms: int, words: str = "earliest, latest") -> LogPosition:
    """Parse a position; `words` are the names that the error message suggests."""
    if text in ("earliest", "beginning"):
        return LogPosition(edge="earliest")
    if text in ("latest", "end"):
        return LogPosition(edge="latest")
    if re.fullmatch(r"-?\d+", text) and abs(int(text)) <= INT64_MAX:
        return LogPosition(offset=int(text))
    time_ms = parse_time(text, now_ms)
    if time_ms is None:
        raise Refused(
            f"{text!r} is not a position in a log: expected {words}, an offset, a time (2026-01-01T10:00:00Z, "
            "@MILLISECONDS) or a time ago (-1h)"
        )
    return LogPosition(time_ms=time_ms)


def parse_duration(text: str, what: str) -> int:
    """Parse `15m` or `1h` to milliseconds."""
    found = _AGO.fullmatch(f"-{text}")
    if found is None or len(text) > 20:
        raise Refused(f"{what} is {text!r}, expected a duration such as 90s, 15m or 1h")
    return int(float(found[1]) * _UNITS_MS[found[2]])


def parse_time(text: str, now_ms: int) -> int | None:
    """Milliseconds since 1970; None if the text is no time."""
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return max(0, now_ms - int(float(ago[1]) * _UNITS_MS[ago[2]]))
    if text.startswith("@"):
        digits = text[1:]
        return int(digits) if re.fullmatch(r"\d{1,18}", digits) else None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0, int(moment.timestamp() * 1000))
