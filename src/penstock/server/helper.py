"""A child process that stays for a while, for work that needs modules which take longer to import than it takes.

    parent --- stdin:  length, pickled work ---------------------------> helper
           <-- stdout: length, pickled result, or what was raised ------

It does one piece after the other. Left alone for long enough it is let go, with all that it has in memory; the next
piece of work starts another. It ends at once when its standard input does: then its parent is gone, by whatever death.
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
"""Somebody waits for it, but others come first."""

_LENGTH_BYTES = 8


class Helper:
    """`run` is called from one thread at a time; `stop` at any time, from another."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_stopped = False

    def run(self, work: bytes) -> Any:
        """Do pickled work and wait for it."""
        with self._guard:
            if self._is_stopped:
                raise ChildFailed("the work was given up before it began")
            if self._process is None:
                self._process = start_child("penstock.server.helper")
            process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(BrokenPipeError):  # it is dead, as the answer will show
            process.stdin.write(len(work).to_bytes(_LENGTH_BYTES, "big"))
            process.stdin.write(work)
            process.stdin.flush()
        size = process.stdout.read(_LENGTH_BYTES)
        answer = process.stdout.read(int.from_bytes(size, "big")) if len(size) == _LENGTH_BYTES else b""
        if not answer:
            self.let_go()
            raise ChildFailed(f"the child process ended with {process.returncode} and no answer")
        result, error = pickle.loads(answer)
        if error is not None:
            raise error
        return result

    def let_go(self) -> None:
        """End the process; the next piece of work has another. Not while one runs."""
        with self._guard:
            process, self._process = self._process, None
        if process is not None:
            process.kill()
            with suppress(BrokenPipeError), process:
                pass  # leaving closes the pipes and waits

    def stop(self) -> None:
        """End it, at work or not: `run` raises."""
        with self._guard:
            self._is_stopped = True
            process = self._process
        if process is not None:
            process.kill()


def main() -> None:
    """The child's side."""
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
    os._exit(0)  # the parent is gone
