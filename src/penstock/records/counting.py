"""Counts the records of fetched batches by their headers, for metrics.

Reads a limited number of headers: walking over ten thousand batches of one record would cost more than reading and
sending them.
"""

from struct import Struct
from typing import Final

from .batch import CONTROL_MASK, HEADER_BYTES, LENGTH_AT, LOG_OVERHEAD

HEADERS_READ_MAX: Final = 64
"""Enough to count 1 MB in batches of the default size (16 KB) exactly."""

_unpack = Struct(">i9xh34xi").unpack_from
"""Length, attributes and record count, from the length field on."""


def records_in(data: bytes | bytearray | memoryview, size: int | None = None) -> int:
    """Number of records without markers. A partial last batch is not counted.

    Beyond `HEADERS_READ_MAX` batches the count is extrapolated; likewise if the data is only the start of `size`
    bytes.
    """
    count = at = 0
    end = len(data) if size is None else size
    for _ in range(HEADERS_READ_MAX):
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
