"""A pool of receive buffers, reused once no reply refers to them.

Answers are slices of the buffer that they came in, so a buffer is in use while an answer is kept. Fetched megabytes
are looked at for a moment only, and fresh memory costs more than what is received into it: the kernel gives it page by
page, and a bytearray is filled with zeros first. So large buffers are kept, and taken again when they are free.

A bytearray refuses to change its size while anyone looks at it. That is how it is known to be free.
"""

from typing import Final

COUNT_MAX: Final = 2
"""While one answer comes, the last one is being read, and the one before has not been let go of yet."""
SPARE_BYTES_MIN: Final = 128 << 10
"""Smaller ones cost next to nothing."""
SPARE_BYTES_MAX: Final = 32 << 20
"""Larger ones are rare, and are not worth the memory that they would hold while nothing comes."""
STEP_BYTES: Final = 1 << 20
"""Large ones have a multiple of it: answers to the same question differ a little in size."""


class BufferPool:
    def __init__(self) -> None:
        self._buffers: list[bytearray] = []

    def keep(self, buffer: bytearray) -> None:
        """Have it again later; of too many, the one that was kept first goes."""
        if SPARE_BYTES_MIN <= len(buffer) <= SPARE_BYTES_MAX:
            self._buffers = [*self._buffers, buffer][-COUNT_MAX:]

    def take_or_make(self, bytes_min: int) -> bytearray:
        """One that is free and has as many bytes, whatever they are; or else a new one."""
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
