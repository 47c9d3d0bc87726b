"""What the process asks of malloc, where it is glibc's."""

from contextlib import suppress


def give_back_freed_memory() -> None:
    """Hand to the system what was freed and lies between what was not; elsewhere nothing happens."""
    import ctypes  # noqa: PLC0415  # some milliseconds, which a start need not wait for

    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
