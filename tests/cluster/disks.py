"""Disks of real processes that fill, fail or are slow while the process runs.

Tmpfs         a small file system of its own, which a ballast file fills; needs root
FailingDisk   a library in front of the system calls of one process (`failing_disk.c`); needs a C compiler
"""

import errno
import os
import shutil
import subprocess
from pathlib import Path
from types import TracebackType

SOURCE = Path(__file__).with_name("failing_disk.c")


class Tmpfs:
    """A small file system, mounted at a directory."""

    def __init__(self, at: Path, size_bytes: int = 32 << 20) -> None:
        self._at = at
        self._size_bytes = size_bytes

    @staticmethod
    def refusal() -> str | None:
        """Why there can be none here; None where there can."""
        if os.geteuid():
            return "only root mounts file systems"
        if shutil.which("mount") is None:
            return "the command mount is not there"
        return None

    def __enter__(self) -> "Tmpfs":
        self._at.mkdir(parents=True, exist_ok=True)
        mount = ["mount", "-t", "tmpfs", "-o", f"size={self._size_bytes}", "tmpfs", str(self._at)]
        subprocess.run(mount, check=True, capture_output=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        subprocess.run(["umount", "--lazy", str(self._at)], check=True, capture_output=True)

    @property
    def _ballast(self) -> Path:
        return self._at / "ballast"

    def fill(self) -> None:
        """Leave no room."""
        with self._ballast.open("ab", buffering=0) as ballast:
            for size in (1 << 20, 4096, 1):
                try:
                    while True:
                        ballast.write(bytes(size))
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise

    def make_room(self) -> None:
        self._ballast.unlink()


class FailingDisk:
    """The files below a directory, for the process that is started with `environment`."""

    def __init__(self, below: Path, workshop: Path) -> None:
        """`workshop` is a directory for what is needed beside it."""
        self._control = workshop / f"{below.name}.control"
        self._library = workshop / "failing_disk.so"
        self._below = below
        if not self._library.exists():
            compiler = shutil.which("cc") or "cc"
            flags = ["-shared", "-fPIC", "-O1", "-o", str(self._library), str(SOURCE), "-ldl"]
            subprocess.run([compiler, *flags], check=True, capture_output=True)
        self.work()

    @staticmethod
    def refusal() -> str | None:
        """Why there can be none here; None where there can."""
        return "there is no C compiler" if shutil.which("cc") is None else None

    @property
    def environment(self) -> dict[str, str]:
        return {
            "LD_PRELOAD": str(self._library),
            "FAILING_DISK_BELOW": str(self._below),
            "FAILING_DISK_CONTROL": str(self._control),
        }

    def _say(self, text: str) -> None:
        draft = self._control.with_suffix(".draft")
        draft.write_text(text)
        draft.rename(self._control)

    def work(self) -> None:
        self._say("none 0 0")

    def fail_writes(self) -> None:
        self._say(f"write {errno.EIO} 0")

    def fail_syncs(self) -> None:
        self._say(f"sync {errno.EIO} 0")

    def become_read_only(self) -> None:
        self._say(f"change {errno.EROFS} 0")

    def become_slow(self, sync_ms: int) -> None:
        """Each sync takes so long."""
        self._say(f"sync 0 {sync_ms}")
