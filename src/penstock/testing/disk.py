"""The disk of a broker in a test: the real one, which the test can fill or make fail.

    broker.disk.fill()
    ...
    broker.disk.clear()

It also has all rules of `FaultyDisk`: `broker.disk.fail("sync", path="*/orders-0/*")`.
"""

import time
from typing import Any

from penstock.vfs import FaultyDisk, RealDisk


class BrokerDisk(FaultyDisk):
    def __init__(self) -> None:
        super().__init__(RealDisk(), sleep=time.sleep)

    def fill(self) -> None:
        """Fill the disk: writes that need room fail with ENOSPC until `clear`."""
        self.capacity = self.used

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as the real disk: child processes, which compact logs, get no faults."""
        return RealDisk, ()
