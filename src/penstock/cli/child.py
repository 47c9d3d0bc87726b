"""Runs Penstock commands as child processes of another command, until a signal stops it."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import IO

STOP_S_MAX = 90.0
"""A child that takes longer to stop is killed."""


@contextmanager
def child_of(
    arguments: list[str], stdout: int | IO[str], stderr: IO[str]
) -> Iterator["subprocess.Popen[str]"]:
    """Run a penstock command as a child process; stop it with SIGTERM, and kill it if it does not end.

    The child gets no PENSTOCK_SERVER: it talks to the nodes that this command started.
    """
    # In its own session, so that Ctrl-C reaches only this process, which stops its children in order.
    child = subprocess.Popen(
        [sys.executable, "-m", "penstock", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        text=True,
        env={name: value for name, value in os.environ.items() if name != "PENSTOCK_SERVER"},
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


SignalHandler = Callable[[int, FrameType | None], None]


@contextmanager
def stopped_by_signals(stop: threading.Event, handler: SignalHandler | None = None) -> Iterator[None]:
    """Ctrl-C and SIGTERM set `stop`, or call the handler."""
    call: SignalHandler = handler or (lambda *_: stop.set())
    before = {each: signal.signal(each, call) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, previous in before.items():
            signal.signal(each, previous)
