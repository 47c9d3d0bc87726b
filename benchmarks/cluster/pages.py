"""Memory that is touched before anything is measured.

The files of three nodes are written into pages that the machine has to hand out. A virtual machine's host gives it a
page when it is first written to, and may take it back when it lies idle: that first write costs more than all that a
broker does with the bytes, on whichever side it happens to fall. So as much memory as a round is about to fill is
written to and given back right before it.
"""

import mmap
import os

_SHARE_MAX = 0.5
"""Of what is free: nobody else's pages are to be pushed out for it."""


def touch(size: int) -> None:
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    length = min(size, int(free * _SHARE_MAX))
    if length > 0:
        mmap.mmap(-1, length, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE).close()
