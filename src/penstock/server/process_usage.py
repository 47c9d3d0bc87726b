"""What this process takes of the machine, as the system tells it."""

import os
import resource
import sys
import time
from contextlib import suppress

from penstock.base.world import ProcessUsage

_LOADED_AT = time.time()
"""Where the system does not say when the process began: some milliseconds later than that."""


def process_usage() -> ProcessUsage:
    used = resource.getrusage(resource.RUSAGE_SELF)
    resident, virtual = used.ru_maxrss * (1 if sys.platform == "darwin" else 1024), 0
    started, open_files = _LOADED_AT, 0
    with suppress(OSError):  # where there is no /proc, the largest resident size so far must do
        page = resource.getpagesize()
        with open("/proc/self/statm", "rb") as file:
            virtual, resident = (int(each) * page for each in file.read().split()[:2])
        open_files = len(os.listdir("/proc/self/fd")) - 1  # without the one that lists them
        started = _started()
    return ProcessUsage(
        used.ru_utime + used.ru_stime,
        resident,
        virtual,
        open_files,
        resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        started,
    )


def _started() -> float:
    with open("/proc/self/stat", "rb") as file:
        # The name, in parentheses, may have anything in it: what follows the last one is fields 3 on.
        ticks = int(file.read().rpartition(b")")[2].split()[19])
    with open("/proc/stat", "rb") as file:
        booted = next(int(line.split()[1]) for line in file if line.startswith(b"btime"))
    return booted + ticks / os.sysconf("SC_CLK_TCK")
