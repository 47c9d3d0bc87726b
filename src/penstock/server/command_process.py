"""Runs a `penstock` command in a process of its own, with low priority and bounded output and time.

A thread waits for the process, and reports to the event loop. The process is killed when its caller cancels, which a
node that stops does too, and when it takes too long or says too much.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import IO, Final

from penstock.gateway.shared.simulations import Ended

SECONDS_MAX: Final = 120.0
OUTPUT_BYTES_MAX: Final = 16 << 20
COMPLAINT_BYTES_MAX: Final = 64 << 10
NICENESS: Final = 10


def start_command(arguments: Sequence[str], done: Callable[[Ended], None]) -> Callable[[], None]:
    """A `StartCommand`. Called on the event loop's thread."""
    running = _Running(arguments, done, asyncio.get_running_loop())
    running.thread.start()
    return running.cancel


class _Running:
    def __init__(
        self, arguments: Sequence[str], done: Callable[[Ended], None], loop: asyncio.AbstractEventLoop
    ) -> None:
        self._arguments = arguments
        self._done = done
        self._loop = loop
        self._guard = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_cancelled = False
        self.thread = threading.Thread(target=self._run, name="penstock-command", daemon=True)

    def cancel(self) -> None:
        with self._guard:
            self._is_cancelled = True
            if self._process is not None:
                self._process.kill()

    def _run(self) -> None:
        """On the thread. Whatever happens, the caller is told: it waits."""
        try:
            ended = self._result()
        except OSError as error:  # no room for a file, or for a process
            ended = Ended(-1, b"", f"its process could not be run: {error.strerror or error}")
        if ended is not None:
            with suppress(RuntimeError):  # the loop is closed: the node has stopped
                self._loop.call_soon_threadsafe(self._report, ended)

    def _result(self) -> Ended | None:
        """What the command said; None if it was cancelled before it began."""
        with tempfile.TemporaryFile() as complaints:
            with self._guard:
                if self._is_cancelled:
                    return None
                self._process = process = _start(self._arguments, complaints)
            timer = threading.Timer(SECONDS_MAX, process.kill)
            timer.start()
            with process:
                assert process.stdout is not None
                output = process.stdout.read(OUTPUT_BYTES_MAX)
                if process.stdout.read(1):
                    process.kill()
                    output = b""
            timer.cancel()
            complaints.seek(0)
            complaint = complaints.read(COMPLAINT_BYTES_MAX).decode("utf-8", "replace")
        return Ended(process.returncode, output, complaint or f"it ended with status {process.returncode}")

    def _report(self, ended: Ended) -> None:
        if not self._is_cancelled:
            self._done(ended)


def _start(arguments: Sequence[str], complaints: IO[bytes]) -> "subprocess.Popen[bytes]":
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "penstock", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=complaints,
        # It imports from the same directories as this process.
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    with suppress(OSError):  # it has ended already
        os.setpriority(os.PRIO_PROCESS, process.pid, NICENESS)
    return process
