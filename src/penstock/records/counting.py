"""How many records there are in batches that are on their way to a reader, without looking at them one by one.

Only headers are looked at, and only so many: to walk over ten thousand batches of one record each would cost more than
reading them from the file and sending them.
"""

from struct import Struct
from typing import Final

from .batch import CONTROL_MASK, HEADER_BYTES, LENGTH_AT, LOG_OVERHEAD

LOOKS_MAX: Final = 64
"""A portion of 1 MB in batches of a client's default size (16 KB) is counted exactly."""

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
        if len(data) - at < HEADER_BYTES:
            break
        length, attributes, records = _unpack(data, at + LENGTH_AT)
        beyond = at + LOG_OVERHEAD + length
        if beyond > end:
            return count
        if not attributes & CONTROL_MASK:
            count += records
        at = beyond
    else:
        return count * end // at
    return count if size is None else count * size // max(at, 1)
