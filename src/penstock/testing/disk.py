"""The disk of a broker in a test: the real one, which the test can fill or make fail.

    broker.disk.fill()
    ...
    broker.disk.clear()

All rules of `FaultyDisk` are there as well: `broker.disk.fail("sync", path="*/orders-0/*")`.
"""

import time
from typing import Any

from penstock.vfs import FaultyDisk, RealDisk


class BrokerDisk(FaultyDisk):
    def __init__(self) -> None:
        super().__init__(RealDisk(), sleep=time.sleep)

    def fill(self) -> None:
        """Have no room from now on: files that would grow get ENOSPC. `clear` ends it."""
        self.capacity = self.used

    def __reduce__(self) -> tuple[Any, ...]:
        """Child processes, which compact logs, work on the disk as it is."""
        return RealDisk, ()
