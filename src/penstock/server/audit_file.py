"""The file of the audit (`audit.file`): lines are appended on a thread, in the order in which they come.

When the file reaches `audit.file.max.bytes` it is renamed to FILE.1, FILE.1 to FILE.2 and so on; `FILES_KEPT` of them
stay. The file is opened for each write, so another program may rename it too. While the disk is slow or full, lines
wait in memory, `WAITING_BYTES_MAX` at most; then they are dropped and counted.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final

from penstock.base.metrics import AuditMeter
from penstock.base.world import World
from penstock.server.log_limit import LogLimit
from penstock.vfs import Vfs

logger = logging.getLogger(__name__)

FILES_KEPT: Final = 9
WAITING_BYTES_MAX: Final = 4 << 20


class AuditFile:
    """An `AuditSink`."""

    def __init__(self, world: World, vfs: Vfs, path: str, bytes_max: int, meter: AuditMeter) -> None:
        """Raises OSError if the file cannot be opened for writing."""
        self._world = world
        self._vfs = vfs
        self._path = path
        self._bytes_max = bytes_max
        self._meter = meter
        self._failures = LogLimit(world)
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._is_writing = False
        self._closed: Callable[[], None] | None = None
        vfs.open(path, write=True, create=True).close()

    def __call__(self, lines: Sequence[str]) -> None:
        for line in lines:
            data = line.encode() + b"\n"
            if self._waiting_bytes + len(data) > WAITING_BYTES_MAX:
                self._meter.dropped["file"] += 1
                continue
            self._waiting.append(data)
            self._waiting_bytes += len(data)
        self._write_waiting()

    def close(self, done: Callable[[], None]) -> None:
        """Call `done` when everything is written, or cannot be."""
        self._closed = done
        if not self._is_writing:
            done()

    def _write_waiting(self) -> None:
        if self._is_writing or not self._waiting:
            return
        lines, self._waiting, self._waiting_bytes = self._waiting, [], 0
        self._is_writing = True

        def written(_: None, error: Exception | None) -> None:
            self._is_writing = False
            if error is not None:
                self._meter.dropped["file"] += len(lines)
                self._failures.warning(
                    logger, "%d lines of the audit are not written to %s: %s", len(lines), self._path, error
                )
            self._write_waiting()
            if self._closed is not None and not self._is_writing:
                self._closed()

        self._world.beside(lambda: self._append(b"".join(lines)), written)

    def _append(self, data: bytes) -> None:
        found = self._vfs.stat(self._path)
        size = 0 if found is None else found.size
        if size and size + len(data) > self._bytes_max:
            self._rotate()
            size = 0
        file = self._vfs.open(self._path, write=True, create=True)
        try:
            file.pwrite([data], size)
        except OSError:
            file.truncate(size)  # a part of a line would spoil the next one
            raise
        finally:
            file.close()

    def _rotate(self) -> None:
        for number in range(FILES_KEPT - 1, 0, -1):
            if self._vfs.stat(f"{self._path}.{number}") is not None:
                self._vfs.rename(f"{self._path}.{number}", f"{self._path}.{number + 1}")
        self._vfs.rename(self._path, f"{self._path}.1")
