"""What this process uses of the machine, and its limits: memory, file descriptors, malloc's settings."""

import os
import resource
import sys
import time
from contextlib import suppress

from penstock.base.world import ProcessUsage
from penstock.storage.open_files import OPEN_FILES_MAX

_LOADED_AT = time.time()
"""The start time where the system does not report one; some milliseconds late."""

DESCRIPTORS_MAX = 1 << 20
"""Some systems allow a thousand million descriptors, more than a node can use."""

OPEN_FILES_MIN = 16

RESERVED_DESCRIPTORS_MAX = 128
"""For listeners, connections to other nodes, helper processes, and files outside the logs."""

MAPPED_BYTES_MIN = 32 << 20
"""malloc maps only larger buffers individually; glibc accepts no higher threshold."""

FREED_BYTES_MAX = 32 << 20
"""Free memory that malloc keeps at the end of the heap before it returns it to the system."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Parameter numbers of glibc's `mallopt`."""


def process_usage() -> ProcessUsage:
    used = resource.getrusage(resource.RUSAGE_SELF)
    resident, virtual = used.ru_maxrss * (1 if sys.platform == "darwin" else 1024), 0
    started, open_files = _LOADED_AT, 0
    with suppress(OSError):  # without /proc, the peak resident size stands in for the current one
        page = resource.getpagesize()
        with open("/proc/self/statm", "rb") as file:
            virtual, resident = (int(each) * page for each in file.read().split()[:2])
        open_files = len(os.listdir("/proc/self/fd")) - 1  # minus the descriptor of the listing
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
        # The process name may contain parentheses: field 3 follows the last one.
        ticks = int(file.read().rpartition(b")")[2].split()[19])
    with open("/proc/stat", "rb") as file:
        booted = next(int(line.split()[1]) for line in file if line.startswith(b"btime"))
    return booted + ticks / os.sysconf("SC_CLK_TCK")


# -- file descriptors ----------------------------------------------------------------------------------


def raise_descriptor_limit() -> int:
    """Raise the soft limit on descriptors to the hard limit; return the limit in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS_MAX if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            return wanted
    return DESCRIPTORS_MAX if soft == resource.RLIM_INFINITY else soft


def open_files_max(descriptors: int) -> int:
    """Descriptors that logs may hold: half of them. The other half serves connections."""
    return max(OPEN_FILES_MIN, min(OPEN_FILES_MAX, descriptors // 2))


def connections_max(descriptors: int) -> int:
    """Connections that may be open: what logs and a reserve leave. Beyond that, libuv would silently close each new
    connection, and logs could not open their files."""
    reserve = min(RESERVED_DESCRIPTORS_MAX, descriptors // 8)
    return max(1, descriptors - open_files_max(descriptors) - reserve)


# -- malloc; no effect without glibc -------------------------------------------------------------------


def keep_freed_memory() -> None:
    """Have malloc reuse freed buffers of a megabyte.

    By default glibc maps each of them, lets the kernel zero it page by page, and unmaps it: that takes longer than
    everything else in a fetch of a megabyte.
    """
    import ctypes  # noqa: PLC0415  # takes milliseconds; the start does not wait for it

    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, MAPPED_BYTES_MIN)
        mallopt(_M_TRIM_THRESHOLD, FREED_BYTES_MAX)


def give_back_freed_memory() -> None:
    """Return freed memory to the system, also between buffers that are in use."""
    import ctypes  # noqa: PLC0415  # takes milliseconds; the start does not wait for it

    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
