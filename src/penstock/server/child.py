"""Work in a process of its own, with low priority.

    parent --- stdin:  length, pickled work ---------------> child
           <-- stdout: pickled result, or what was raised ---

The child is a fresh interpreter that imports what the work needs and nothing of the program that started it: a
user's script or test is not run a second time, as `multiprocessing` would. It keeps reading its standard input; when
that ends, its parent is gone, by whatever death, and it ends at once: nobody writes files behind the back of the
node that starts next.
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
"""Clients come first."""

_LENGTH_BYTES = 8


class ChildFailed(Exception):
    """The child ended without an answer, or with an exception that cannot travel."""


class Child(Generic[T]):
    """One piece of work. `run` may be called once, from any thread; `kill` at any time, from another."""

    def __init__(self, work: Callable[[], T]) -> None:
        # Here and not in `run`: what cannot be pickled is a mistake of the caller.
        self._work = pickle.dumps(work)
        self._guard = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_killed = False

    def run(self) -> T:
        """Do the work and wait for it."""
        with self._guard:
            if self._is_killed:
                raise ChildFailed("the work was given up before it began")
            self._process = process = start_child("penstock.server.child")
        assert process.stdin is not None
        assert process.stdout is not None
        # Leaving closes the pipes and waits; the child's end of life is the end of its input.
        with process:
            try:
                process.stdin.write(len(self._work).to_bytes(_LENGTH_BYTES, "big") + self._work)
                process.stdin.flush()
            except BrokenPipeError:
                pass  # it is dead; its exit code says more
            answer = process.stdout.read()
        if not answer:
            raise ChildFailed(f"the child process ended with {process.returncode} and no answer")
        result, error = pickle.loads(answer)
        if error is not None:
            raise error
        return result  # type: ignore[no-any-return]  # it is what the work returned

    def kill(self) -> None:
        with self._guard:
            self._is_killed = True
            if self._process is not None:
                self._process.kill()


def start_child(module: str) -> "subprocess.Popen[bytes]":
    """A fresh interpreter that runs a module's `main`, with pipes to it."""
    return subprocess.Popen(
        [sys.executable, "-P", "-c", f"from {module} import main; main()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        # It finds the same modules, wherever this process has them from.
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )


def answers_out() -> IO[bytes]:
    """In a child: where answers go. Nothing that the work prints may get between them."""
    out = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return out


def main() -> None:
    """The child's side."""
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
    """Do pickled work; the pickled result, or what it raised."""
    try:
        return pickle.dumps((pickle.loads(data)(), None))
    except Exception as error:
        try:
            answer = pickle.dumps((None, error))
            pickle.loads(answer)  # some exceptions can be packed but not unpacked
        except Exception:
            answer = pickle.dumps((None, ChildFailed(f"{type(error).__name__}: {error}")))
        return answer
