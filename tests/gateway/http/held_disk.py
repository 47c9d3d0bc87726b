"""`penstock`, on a disk whose syncs take as long as a file is there: `held_disk.py FILE up ...`.

So a test can kill a node for certain when a record is written and nobody has been answered.
"""

import os
import sys
import time
from pathlib import Path

_sync = os.fdatasync
_hold = Path(sys.argv.pop(1))


def _sync_when_free(descriptor: int) -> None:
    while _hold.exists():
        time.sleep(0.002)
    _sync(descriptor)


def _refuse(*_: int) -> int:
    raise OSError("the kernel syncs nothing here by itself: it would not wait")


os.fdatasync = _sync_when_free  # type: ignore[assignment]
os.eventfd = _refuse  # type: ignore[assignment]

if __name__ == "__main__":
    from penstock.cli.main import main

    main()
