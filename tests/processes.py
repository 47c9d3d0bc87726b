"""`penstock up` as a real process: started on a free port, waited for by its ready line, stopped or killed.

with Process(data=tmp_path / "data") as penstock:
    client.connect(penstock.bootstrap)
    penstock.kill()
    penstock.start()        # on the same ports and directory

Kafka is all that it serves, unless `http=True` or `line=True`: then on a free port as well, `http_url`, `line_port`.
"""

import os
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from penstock.server.ports import hold_port

HOST = "127.0.0.1"
COMMAND = (sys.executable, "-m", "penstock", "up")

WAIT_S_MAX = 60.0
"""Far more than anything takes; a process that is stuck fails its test instead of hanging it."""


def is_readable(stream: Any, wait_s: float) -> bool:
    """Whether something has come within a time; with `poll`, since `select` knows no descriptor above 1,023."""
    waiting = select.poll()
    waiting.register(stream, select.POLLIN)
    return bool(waiting.poll(wait_s * 1000))


class Process:
    """One node, over as many lives as a test gives it."""

    def __init__(
        self,
        *arguments: str,
        data: Path,
        port: int = 0,
        http: bool = False,
        line: bool = False,
        environment: Mapping[str, str] | None = None,
        command: tuple[str, ...] = COMMAND,
    ) -> None:
        """Arguments are further flags of `penstock up`; `data` is its directory."""
        self.data = data
        self._held: list[socket.socket] = []
        """These keep the ports below for the process, in all its lives and between them."""
        self.port = port or self._take_port()
        self._ports = {name: self._take_port() for name, is_on in (("http", http), ("line", line)) if is_on}
        self._arguments = arguments
        self._command = command
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")},
            **(environment or {}),
        }
        self._child: subprocess.Popen[str] | None = None
        self._complaints = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115  # closed with the rest
        """A file takes all that a child has to say; a pipe would fill up and hold it."""

    def __enter__(self) -> "Process":
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _take_port(self) -> int:
        self._held.append(hold_port())
        return int(self._held[-1].getsockname()[1])

    def close(self) -> None:
        self.kill()
        for held in self._held:
            held.close()
        self._held.clear()
        self._complaints.close()

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def http_url(self) -> str:
        return f"http://127.0.0.1:{self._ports['http']}"

    @property
    def line_port(self) -> int:
        return self._ports["line"]

    @property
    def pid(self) -> int:
        assert self._child is not None
        return self._child.pid

    @property
    def is_running(self) -> bool:
        return self._child is not None and self._child.poll() is None

    @property
    def stderr(self) -> str:
        """Everything that it said so far, in all its lives."""
        self._complaints.seek(0)
        return self._complaints.read()

    def launch(self) -> "Process":
        """Start it, and do not wait."""
        assert not self.is_running, "it runs already"
        self._complaints.seek(0, os.SEEK_END)
        self._child = subprocess.Popen(
            [
                *self._command,
                "--data",
                str(self.data),
                *self._listen_flags(),
                *self._arguments,
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            text=True,
            env={**self._doors(), **self._environment},
        )
        return self

    def _listen_flags(self) -> list[str]:
        return ["--kafka", f"127.0.0.1:{self.port}"]

    def _doors(self) -> dict[str, str]:
        """In the environment, so that a flag of the test's own is stronger: no two tests may want one port."""
        return {
            f"PENSTOCK_{name.upper()}_LISTENER": f"127.0.0.1:{self._ports[name]}"
            if name in self._ports
            else "off"
            for name in ("http", "line")
        }

    def start(self) -> "Process":
        """Start it, and wait for its ready line."""
        self.launch()
        line = self.read_line()
        doors = "".join(rf" {name}=127\.0\.0\.1:{port}" for name, port in self._ports.items())
        ready = re.fullmatch(
            rf"penstock ready kafka=127\.0\.0\.1:(?P<kafka>\d+){doors}( controller=\S+)?\n", line
        )
        if ready is None:
            self.kill()
            raise AssertionError(f"expected a ready line, got {line!r}; it said:\n{self.stderr}")
        self.port = int(ready["kafka"])
        return self

    def read_line(self) -> str:
        """The next line of its standard output; empty when it has ended."""
        assert self._child is not None
        assert self._child.stdout is not None
        readable = is_readable(self._child.stdout, WAIT_S_MAX)
        if not readable:
            self.kill()
            raise AssertionError(f"it said nothing for {WAIT_S_MAX:.0f} s; before that:\n{self.stderr}")
        return self._child.stdout.readline()

    def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        self.send(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        """SIGKILL; one that has ended already stays so."""
        if self._child is not None:
            self._child.kill()
            self.wait()

    def send(self, number: signal.Signals) -> None:
        assert self._child is not None
        self._child.send_signal(number)

    def wait(self) -> int:
        """Its exit code, once it has ended; negative for a signal."""
        assert self._child is not None
        try:
            code = self._child.wait(WAIT_S_MAX)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
            raise AssertionError(
                f"it did not end within {WAIT_S_MAX:.0f} s; it said:\n{self.stderr}"
            ) from None
        if self._child.stdout is not None:
            self._child.stdout.close()
        return code


class Refusal(NamedTuple):
    code: int
    out: str
    err: str


def refusal(*arguments: str, data: Path, port: int = 0, **more: Any) -> Refusal:
    """Start a node that is not to start, and have what it says and ends with."""
    process = Process(*arguments, data=data, port=port, **more)
    try:
        line = process.launch().read_line()
        return Refusal(process.wait() if not line else 0, line, process.stderr)
    finally:
        process.close()
