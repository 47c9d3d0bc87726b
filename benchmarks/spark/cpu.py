"""What a process and all that it started have used of the processors, from Linux's /proc.

A session is a Python, the Java that it started, and the Pythons that Java started. Those that have ended are counted
by whoever waited for them.
"""

import os
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def family_cpu_seconds(pid: int) -> float:
    """To a hundredth of a second, as the kernel counts."""
    children: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = path.read_text()
        except OSError:  # it has ended meanwhile
            continue
        # The name may hold anything, parentheses too; what follows the last one are numbers, from the third field on.
        fields = text.rpartition(")")[2].split()
        member = int(path.parent.name)
        children.setdefault(int(fields[1]), []).append(member)
        ticks[member] = sum(
            map(int, fields[11:15])
        )  # its own, and of those it waited for: user and system each
    total, left = 0, [pid]
    while left:
        member = left.pop()
        total += ticks.get(member, 0)
        left += children.get(member, [])
    return total / _TICKS
