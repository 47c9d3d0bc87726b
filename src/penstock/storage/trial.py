"""A trial write: does the disk below a log directory take records again?

A file beside the partitions is written, synced and removed. It has a hole as long as the log that failed, so that what
keeps a file from growing beyond a size is met too. Kafka looks at directories alone there, and a file that a crash
leaves behind is written over by the next trial.
"""

import errno
from contextlib import suppress
from typing import Final

from penstock.vfs import Vfs

TRIAL_FILE: Final = "trial-write.tmp"

TRIAL_BYTES: Final = 1 << 20
"""What must fit: a batch of the default `message.max.bytes`. With less room the next record could fail again."""

ROOM_BYTES_MIN: Final = 2 * TRIAL_BYTES
"""With less room nothing is tried: the trial would take, for a moment, what the metadata log needs."""


def trial_write(vfs: Vfs, logs: str, position: int) -> None:
    """Write to a file from a position on, sync it and remove it; `OSError` where the disk refuses."""
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
