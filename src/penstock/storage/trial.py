"""Tests with a trial write whether a failed disk accepts records again.

Writes, syncs and removes a file beside the partitions. The write is at the size of the log that failed, so that limits
of the file size apply too. Kafka ignores files there, and a leftover is overwritten by the next trial.
"""

import errno
from contextlib import suppress
from typing import Final

from penstock.vfs import Vfs

TRIAL_FILE: Final = "trial-write.tmp"

TRIAL_BYTES: Final = 1 << 20
"""A batch of the default `message.max.bytes`: with less room the next write could fail again."""

ROOM_BYTES_MIN: Final = 2 * TRIAL_BYTES
"""With less room nothing is tried: the metadata log needs the rest."""


def trial_write(vfs: Vfs, logs: str, position: int) -> None:
    """Write to a file at a position, sync and remove it; `OSError` if the disk fails."""
    path = f"{logs}/{TRIAL_FILE}"
    if vfs.usage(logs).usable_bytes < ROOM_BYTES_MIN:
        raise OSError(errno.ENOSPC, f"fewer than {ROOM_BYTES_MIN} bytes are free", path)
    try:
        file = vfs.open(path, write=True, create=True)
        try:
            file.pwrite([bytes(TRIAL_BYTES)], position)
            file.sync()
        finally:
            file.close()
    except OSError:
        with suppress(OSError):
            vfs.remove(path)
        raise
    vfs.remove(path)
