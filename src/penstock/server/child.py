"""Runs a function in a child process with low priority.

    parent --- stdin:  length, pickled function -------> child
           <-- stdout: pickled result or exception -----

The child is a fresh interpreter that imports only what the function needs. Unlike with `multiprocessing`, the user's
script or test is not run a second time. The child keeps reading its standard input and exits as soon as that ends,
which means that the parent has died: a child never writes files while the next node starts.
"""

import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import IO, Generic, TypeVar

T = TypeVar("T")

NICENESS = 10
"""Lower priority than the broker's requests."""

_LENGTH_BYTES = 8


class ChildFailed(Exception):
    """The child ended without an answer, or raised an exception that cannot be pickled."""


class Child(Generic[T]):
    """One piece of work. `run` may be called once, from any thread; `kill` at any time, from another."""

    def __init__(self, work: Callable[[], T]) -> None:
        # Here and not in `run`, so that an error of pickling is raised in the caller.
        self._work = pickle.dumps(work)
        self._guard = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_killed = False

    def run(self) -> T:
        """Do the work and wait for it."""
        with self._guard:
            if self._is_killed:
                raise ChildFailed("the work was cancelled before it started")
            self._process = process = start_child("penstock.server.child")
        assert process.stdin is not None
        assert process.stdout is not None
        # On exit the pipes are closed, which ends the child, and its exit status is awaited.
        with process:
            try:
                process.stdin.write(len(self._work).to_bytes(_LENGTH_BYTES, "big") + self._work)
                process.stdin.flush()
            except BrokenPipeError:
                pass  # the child is dead; its exit code is reported below
            answer = process.stdout.read()
        if not answer:
            raise ChildFailed(f"the child process exited with status {process.returncode} before it answered")
        result, error = pickle.loads(answer)
        if error is not None:
            raise error
        return result  # type: ignore[no-any-return]  # the function's return value, unpickled

    def kill(self) -> None:
        with self._guard:
            self._is_killed = True
            if self._process is not None:
                self._process.kill()


def start_child(module: str) -> "subprocess.Popen[bytes]":
    """Start a fresh interpreter that runs a module's `main`, with pipes to it."""
    return subprocess.Popen(
        [sys.executable, "-P", "-c", f"from {module} import main; main()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        # The child imports from the same directories as this process.
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )


def answers_out() -> IO[bytes]:
    """In a child: return the stream for answers, and send what the function prints to standard error instead."""
    out = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return out


def main() -> None:
    """Run one function in the child."""
    os.nice(NICENESS)
    out = answers_out()
    length = int.from_bytes(_read(sys.stdin.buffer, _LENGTH_BYTES), "big")
    data = _read(sys.stdin.buffer, length)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with out:
        out.write(answer_to(data))


def _read(stream: IO[bytes], count: int) -> bytes:
    data = stream.read(count)
    if len(data) < count:
        os._exit(1)  # the parent died while it wrote
    return data


def _end_with_parent() -> None:
    os.read(sys.stdin.fileno(), 1)
    os._exit(1)


def answer_to(data: bytes) -> bytes:
    """Run a pickled function; return the pickled result or exception."""
    try:
        return pickle.dumps((pickle.loads(data)(), None))
    except Exception as error:
        try:
            answer = pickle.dumps((None, error))
            pickle.loads(answer)  # some exceptions can be pickled but not unpickled
        except Exception:
            answer = pickle.dumps((None, ChildFailed(f"{type(error).__name__}: {error}")))
        return answer
