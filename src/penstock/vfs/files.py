"""Operations on whole files and directory trees, on any disk."""

import errno

from penstock.vfs.interface import Vfs

DRAFT = ".tmp"
"""Suffix of a file's next content."""


def join(*parts: str) -> str:
    """Join parts with `/`; empty ones are left out."""
    path = "/".join(part.rstrip("/") or "/" for part in parts if part)
    return path.replace("//", "/")


def parent(path: str) -> str:
    """Return the directory of a path: `/` for a name at the top, `.` for a bare name."""
    head, slash, _ = path.rstrip("/").rpartition("/")
    return head.rstrip("/") or slash or ("/" if path.startswith("/") else ".")


def read_file(vfs: Vfs, path: str) -> bytes:
    file = vfs.open(path)
    try:
        return file.pread(file.size(), 0)
    finally:
        file.close()


class Draft:
    """A file's next content under a temporary name: `replace_file` in steps, without blocking.

    Create it, `sync` on any thread, `install`, and `sync_dir` of its directory on any thread. A later draft of the
    same path replaces an earlier one, which must not be installed.
    """

    __slots__ = ("_file", "_vfs", "path")

    def __init__(self, vfs: Vfs, path: str, data: bytes) -> None:
        self.path = path
        self._vfs = vfs
        self._file = vfs.open(path + DRAFT, write=True, create=True)
        self._file.truncate(0)
        self._file.pwrite([data], 0)

    def sync(self) -> None:
        self._file.sync()

    def install(self) -> None:
        """Rename it into place, which `sync_dir` makes durable: after a crash the file has the old or the new
        content."""
        self._file.close()
        self._vfs.rename(self.path + DRAFT, self.path)


def replace_file(vfs: Vfs, path: str, data: bytes) -> None:
    """Replace a file's content durably: after a crash it has the old or the new content, never a mix.

    The content is written to `<path>.tmp` first. The next call overwrites a leftover completely, so a failed sync of
    it has no effect.
    """
    draft = path + DRAFT
    file = vfs.open(draft, write=True, create=True)
    try:
        file.truncate(0)
        file.pwrite([data], 0)
        file.sync()
    finally:
        file.close()
    vfs.rename(draft, path)
    vfs.sync_dir(parent(path))


def make_dirs_durably(vfs: Vfs, path: str) -> None:
    """Create a directory and its missing parents so that all of their names survive a power cut."""
    missing = []
    while vfs.stat(path) is None and parent(path) != path:
        missing.append(path)
        path = parent(path)
    for each in reversed(missing):
        vfs.make_dirs(each)
        vfs.sync_dir(parent(each))


def remove_tree(vfs: Vfs, path: str) -> None:
    """Remove a file or a directory with its contents, if it exists.

    Durable only after `sync_dir` of the parent. A symbolic link to a directory is removed, not its target.
    """
    try:
        vfs.remove(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        # For a directory Linux returns EISDIR, macOS EPERM.
        if error.errno not in (errno.EISDIR, errno.EPERM):
            raise
        for entry in vfs.list_dir(path):
            remove_tree(vfs, join(path, entry.name))
        vfs.remove_dir(path)
