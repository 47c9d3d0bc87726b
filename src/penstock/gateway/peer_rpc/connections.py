"""Which connection to another broker something is asked on.

On one connection answers come in the order of the requests. So what is quick shares a few, and what waits has one to
itself; it is used again when the wait is over, so that there are as many as waits at the same time.
"""

from typing import Final

SHARED: Final = 4
"""Connections for what is quick: one partition that is slow to replicate holds up a quarter of the others."""


class Lanes:
    def __init__(self) -> None:
        self._free: list[int] = []
        self._count = 0

    @staticmethod
    def shared(about: int) -> str:
        """The purpose of a request that is quick; the same for what is about the same thing, and so in order."""
        return f"doors-{about % SHARED}"

    def to_wait(self) -> str:
        """The purpose of one that waits; `free` it."""
        if not self._free:
            self._count += 1
            self._free.append(self._count)
        return f"doors-waiting-{self._free.pop()}"

    def free(self, lane: str) -> None:
        self._free.append(int(lane.rpartition("-")[2]))
