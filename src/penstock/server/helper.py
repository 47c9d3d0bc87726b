"""A child process that runs many functions, for those whose imports take longer than their work.

    parent --- stdin:  length, pickled function ---------------> helper
           <-- stdout: length, pickled result or exception -----

Functions run one at a time. After an idle period the process is ended, which frees its memory; the next function
starts a new one. The process exits as soon as its standard input ends, which means that the parent has died.
"""

import os
import pickle
import subprocess
import sys
import threading
from contextlib import suppress
from queue import SimpleQueue
from typing import IO, Any

from penstock.server.child import ChildFailed, answer_to, answers_out, start_child

NICENESS = 5
"""A client waits for the result, but the broker's requests have priority."""

_LENGTH_BYTES = 8


class Helper:
    """`run` is called from one thread at a time; `stop` at any time, from another."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_stopped = False

    def run(self, work: bytes) -> Any:
        """Run a pickled function and wait for its result."""
        if self._process is not None and self._process.poll() is not None:
            self.end_process()  # killed while it was idle: this function is not affected
        with self._guard:
            if self._is_stopped:
                raise ChildFailed("the work was cancelled before it started")
            if self._process is None:
                self._process = start_child("penstock.server.helper")
            process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(BrokenPipeError):  # the process is dead; reading the answer reports it
            process.stdin.write(len(work).to_bytes(_LENGTH_BYTES, "big"))
            process.stdin.write(work)
            process.stdin.flush()
        size = process.stdout.read(_LENGTH_BYTES)
        answer = process.stdout.read(int.from_bytes(size, "big")) if len(size) == _LENGTH_BYTES else b""
        if not answer:
            self.end_process()
            raise ChildFailed(f"the child process exited with status {process.returncode} before it answered")
        result, error = pickle.loads(answer)
        if error is not None:
            raise error
        return result

    def end_process(self) -> None:
        """End the process; the next function starts a new one. Not to be called while a function runs."""
        with self._guard:
            process, self._process = self._process, None
        if process is not None:
            process.kill()
            with suppress(BrokenPipeError), process:
                pass  # on exit the pipes are closed and the exit status is awaited

    def stop(self) -> None:
        """End the process for good, busy or not; a running `run` raises `ChildFailed`."""
        with self._guard:
            self._is_stopped = True
            process = self._process
        if process is not None:
            process.kill()


def main() -> None:
    """Run functions in the helper process until the parent exits."""
    os.nice(NICENESS)
    out = answers_out()
    work: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_receive, args=(sys.stdin.buffer, work), daemon=True).start()
    while True:
        answer = answer_to(work.get())
        out.write(len(answer).to_bytes(_LENGTH_BYTES, "big"))
        out.write(answer)
        out.flush()


def _receive(stream: IO[bytes], work: SimpleQueue[bytes]) -> None:
    while len(size := stream.read(_LENGTH_BYTES)) == _LENGTH_BYTES:
        count = int.from_bytes(size, "big")
        data = stream.read(count)
        if len(data) < count:
            break
        work.put(data)
    os._exit(0)  # the parent has exited
