"""Commands of Penstock's that another command runs beside itself."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

STOP_S_MAX = 90.0
"""A child that takes longer to stop is killed."""


@contextmanager
def child_of(
    arguments: list[str], stdout: int | IO[str], stderr: IO[str]
) -> Iterator["subprocess.Popen[str]"]:
    """A command of Penstock's; stopped as Ctrl-C would, and killed only if that does nothing."""
    # A session of its own: a Ctrl-C at the terminal reaches this process alone, which stops them in their order.
    child = subprocess.Popen(
        [sys.executable, "-m", "penstock", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        text=True,
        start_new_session=True,
    )
    try:
        yield child
    finally:
        if child.poll() is None:
            child.send_signal(signal.SIGTERM)
        try:
            child.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        if child.stdout is not None:
            child.stdout.close()
