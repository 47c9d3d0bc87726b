"""A pool of receive buffers, reused once no reply refers to them.

Replies are slices of the buffer that they were received into, so a buffer is in use while a reply is kept. Fetched
records are used for a short time only, and new memory costs more than receiving into it: the kernel maps it page by
page, and a bytearray is filled with zeros first. So large buffers are kept, and reused when they are free.

A bytearray cannot be resized while a memoryview of it exists, which shows whether it is free.
"""

from typing import Final

COUNT_MAX: Final = 2
"""While one reply arrives, the last one is read, and the one before may not have been released yet."""
SPARE_BYTES_MIN: Final = 128 << 10
"""Smaller buffers are not pooled: they cost little."""
SPARE_BYTES_MAX: Final = 32 << 20
"""Larger buffers are rare, and would hold memory while idle."""
STEP_BYTES: Final = 1 << 20
"""Sizes are rounded up to a multiple of this: replies to similar requests differ a little in size."""


class BufferPool:
    def __init__(self) -> None:
        self._buffers: list[bytearray] = []

    def keep(self, buffer: bytearray) -> None:
        """Keep a buffer for reuse. If there are too many, the oldest is dropped."""
        if SPARE_BYTES_MIN <= len(buffer) <= SPARE_BYTES_MAX:
            self._buffers = [*self._buffers, buffer][-COUNT_MAX:]

    def take_or_make(self, bytes_min: int) -> bytearray:
        """A free buffer of at least this size, with any content, or a new one."""
        for index, buffer in enumerate(self._buffers):
            if len(buffer) >= bytes_min and _is_free(buffer):
                return self._buffers.pop(index)
        return bytearray(-(-bytes_min // STEP_BYTES) * STEP_BYTES if bytes_min > STEP_BYTES else bytes_min)


def _is_free(buffer: bytearray) -> bool:
    try:
        buffer.append(buffer.pop())
    except BufferError:
        return False
    return True
