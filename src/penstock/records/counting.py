"""How many records there are in batches that are on their way to a reader, without looking at them one by one.

Only headers are looked at, and only so many: to walk over ten thousand batches of one record each would cost more than
reading them from the file and sending them.
"""

from struct import Struct
from typing import Final

LOOKS_MAX: Final = 64
"""A portion of 1 MB in batches of a client's default size (16 KB) is counted exactly."""

_LENGTH_AT, _LOG_OVERHEAD, _HEADER_BYTES = 8, 12, 61
_CONTROL = 0x20
_unpack = Struct(">i9xh34xi").unpack_from
"""From a batch's length on: length, attributes, count of records."""


def records_in(data: bytes | bytearray | memoryview, size: int | None = None) -> int:
    """Records in batches, markers left out; the last batch may be cut short, and is left out then.

    Of more than `LOOKS_MAX` batches the rest is taken to be like the first ones. The same where the data is only the
    beginning of so many bytes (`size`).
    """
    count = at = 0
    end = len(data) if size is None else size
    for _ in range(LOOKS_MAX):
        if len(data) - at < _HEADER_BYTES:
            break
        length, attributes, records = _unpack(data, at + _LENGTH_AT)
        beyond = at + _LOG_OVERHEAD + length
        if beyond > end:
            return count
        if not attributes & _CONTROL:
            count += records
        at = beyond
    else:
        return count * end // at
    return count if size is None else count * size // max(at, 1)
