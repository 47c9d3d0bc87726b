"""What is done with whole files and trees, on any disk."""

import errno

from penstock.vfs.interface import Vfs

DRAFT = ".tmp"
"""Behind the name of a file, that of its next content."""


def join(*parts: str) -> str:
    """Put parts together with one `/` between each two; empty ones are left out."""
    path = "/".join(part.rstrip("/") or "/" for part in parts if part)
    return path.replace("//", "/")


def parent(path: str) -> str:
    """The directory that holds the name: `/` for what is at the top, `.` for a bare name."""
    head, slash, _ = path.rstrip("/").rpartition("/")
    return head.rstrip("/") or slash or ("/" if path.startswith("/") else ".")


def read_file(vfs: Vfs, path: str) -> bytes:
    file = vfs.open(path)
    try:
        return file.pread(file.size(), 0)
    finally:
        file.close()


class Draft:
    """A file's next content, under another name: `replace_file` in steps, for who may not wait for the disk.

    Made here, then `sync` on any thread, `install` here, and at last `sync_dir` of its directory on any thread. Of two
    drafts for one path the later takes the earlier one's place, which must not be installed any more.
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
        """Give it its name, which `sync_dir` makes durable: after a crash there is the old content or the new."""
        self._file.close()
        self._vfs.rename(self.path + DRAFT, self.path)


def replace_file(vfs: Vfs, path: str, data: bytes) -> None:
    """Give the file this content, durably: after a crash there is the old content or the new, never a mix.

    The content goes to `<path>.tmp` first. One that a crash or a full disk left behind is written over by
    the next call, whole: so a sync that failed on it puts nothing in doubt.
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
    """Remove a file or a directory with all that is in it; what is gone already is fine.

    Durable only after `sync_dir` of the parent. A symbolic link to a directory is removed as a link: what
    it points to is left alone.
    """
    try:
        vfs.remove(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        # Linux says EISDIR of a directory, macOS EPERM.
        if error.errno not in (errno.EISDIR, errno.EPERM):
            raise
        for entry in vfs.list_dir(path):
            remove_tree(vfs, join(path, entry.name))
        vfs.remove_dir(path)
