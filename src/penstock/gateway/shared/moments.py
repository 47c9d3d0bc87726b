"""Points in time as clients write them: milliseconds since 1970, or ISO 8601, in UTC unless it says otherwise."""

from datetime import UTC, datetime, timedelta

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import TimestampMs

_DIGITS_MAX = 15
"""Of milliseconds: the year 30,000."""


def parse_moment(name: str, text: str) -> TimestampMs:
    """The moment that a parameter names."""
    if text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX:
        return int(text)
    # In a query a plus sign that is not escaped means a blank.
    for each in (text, "+".join(text.rsplit(" ", 1))):
        try:
            moment = datetime.fromisoformat(each)
        except ValueError:
            continue
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        # East of Greenwich the first hours of 1970 were still 1969, which no record is from.
        since = max(moment - _EPOCH, timedelta())
        if moment.year >= _EPOCH.year:
            return (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000
    raise KafkaError(
        f"{name} is {text!r}, expected milliseconds since 1970 or a time such as 2026-01-31T12:00:00Z",
        ErrorCode.INVALID_REQUEST,
    )


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
