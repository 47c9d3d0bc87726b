"""A small tmpfs for one broker's data, which can really be full."""

import os
import shutil
import subprocess
from pathlib import Path

BYTES_MAX = 1 << 30

FILL_TRIES_MAX = 100
"""A broker under load writes several times a second; one attempt takes a few milliseconds."""


def refusal(directory: Path) -> str | None:
    """Return why no file system can be mounted here; None if one can."""
    if shutil.which("mount") is None:
        return "the command mount was not found"
    tried = directory / "mount-try"
    tried.mkdir()
    try:
        result = _run("mount", "-t", "tmpfs", "-o", "size=1m", "penstock-chaos", str(tried))
        if result.returncode:
            return f"mounting is not allowed: {result.stderr.strip()}"
        _run("umount", str(tried))
        return None
    finally:
        tried.rmdir()


class MemoryMount:
    """A mounted tmpfs; the constructor mounts it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        _check("mount", "-t", "tmpfs", "-o", f"size={BYTES_MAX}", "penstock-chaos", str(path))

    def fill(self) -> None:
        """Shrink the file system to its contents, so that no room is left. The kernel refuses a smaller size, and the
        broker may write between the two calls: then the size is read again."""
        for tries_left in range(FILL_TRIES_MAX, 0, -1):
            found = os.statvfs(self.path)
            used = (found.f_blocks - found.f_bfree) * found.f_frsize
            try:
                _check("mount", "-o", f"remount,size={max(used, found.f_frsize)}", str(self.path))
                return
            except OSError:
                if tries_left == 1:
                    raise

    def empty(self) -> None:
        """Restore the room."""
        _check("mount", "-o", f"remount,size={BYTES_MAX}", str(self.path))

    def close(self, *, keep: bool) -> None:
        """Unmount it; with `keep`, copy its contents to the underlying directory."""
        beside = self.path.with_name(f"{self.path.name}.kept")
        if keep:
            shutil.copytree(self.path, beside, symlinks=True)
        _check("umount", str(self.path))
        if keep:
            self.path.rmdir()
            beside.rename(self.path)


def _run(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(words, capture_output=True, text=True, check=False)


def _check(*words: str) -> None:
    result = _run(*words)
    if result.returncode:
        raise OSError(f"{' '.join(words)}: {result.stderr.strip()}")
