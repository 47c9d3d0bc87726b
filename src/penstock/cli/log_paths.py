"""Determines what kind of log directory a path is, and what it contains.

data directory    DIR/logs, DIR/meta                      Penstock's
log directory     DIR/meta.properties, DIR/orders-0       Kafka's log.dirs
partition         DIR/00000000000000000000.log            one log
"""

import os.path
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from penstock.base.ids import TopicPartition
from penstock.cli.output import Refused
from penstock.storage import checkpoints as ck
from penstock.storage import names
from penstock.storage.checkpoint_reader import SavedOffsets, read_saved_offsets
from penstock.storage.layout import is_log, is_log_directory, layout_of
from penstock.vfs import Vfs

Directory = Annotated[Path, typer.Argument(metavar="DIR", help="A data, log or partition directory.")]


class LogPath(NamedTuple):
    logs: str | None
    """The log directory with the checkpoint files; None for a partition outside of a log directory."""
    meta: str
    partitions: tuple[str, ...]
    """Paths, sorted by topic and partition number."""
    is_partition: bool

    def marks(self, vfs: Vfs) -> SavedOffsets:
        return SavedOffsets("", "") if self.logs is None else read_saved_offsets(vfs, self.logs, self.meta)

    @staticmethod
    def partition_of(path: str) -> TopicPartition | None:
        return names.parse_partition_dir(os.path.basename(os.path.abspath(path)))

    def log_bytes(self, vfs: Vfs) -> int:
        """Total size of all .log files."""
        return sum(
            entry.size
            for path in self.partitions
            for entry in vfs.list_dir(path)
            if entry.name.endswith(names.LOG)
        )


def locate(vfs: Vfs, path: str) -> LogPath:
    stat = vfs.stat(path)
    if stat is None:
        raise Refused(f"{path}: no such directory")
    if not stat.is_dir:
        raise Refused(f"{path} is a file, not a directory; `penstock log dump` shows files")
    path = os.path.normpath(path)
    entries = vfs.list_dir(path)
    if any(is_log(entry) for entry in entries) or (
        LogPath.partition_of(path) and any(entry.name == names.PARTITION_METADATA for entry in entries)
    ):
        return _partition(vfs, path)
    if is_log_directory(entries):
        return _log_directory(vfs, path, _meta_of(vfs, path))
    if any(entry.is_dir and entry.name == "logs" for entry in entries):
        layout = layout_of(vfs, path)
        return _log_directory(vfs, layout.logs, layout.meta)
    raise Refused(
        f"{path} is not a log directory: expected a data directory (logs/ and meta/), a log directory "
        f"({ck.META_PROPERTIES}) or a partition (.log files)"
    )


def _meta_of(vfs: Vfs, logs: str) -> str:
    """Directory of Penstock's files: `meta` beside `logs` in a data directory, otherwise `<name>.meta`."""
    whole = os.path.abspath(logs)
    beside = os.path.join(os.path.dirname(whole), "meta")
    if os.path.basename(whole) == "logs" and vfs.stat(beside) is not None:
        return beside if os.path.isabs(logs) else os.path.relpath(beside)
    return layout_of(vfs, logs if os.path.basename(logs) not in (".", "..") else whole).meta


def _log_directory(vfs: Vfs, logs: str, meta: str) -> LogPath:
    found = [
        (partition, f"{logs}/{entry.name}")
        for entry in vfs.list_dir(logs)
        if entry.is_dir and (partition := names.parse_partition_dir(entry.name)) is not None
    ]
    return LogPath(logs, meta, tuple(path for _, path in sorted(found)), is_partition=False)


def _partition(vfs: Vfs, path: str) -> LogPath:
    whole = os.path.abspath(path)
    above = os.path.dirname(whole)
    if "/" not in path:
        path = whole if path in (".", "..") else f"./{path}"
    if not os.path.isabs(path):
        above = os.path.dirname(path)
    is_known = LogPath.partition_of(path) is not None and is_log_directory(vfs.list_dir(above))
    return LogPath(above if is_known else None, _meta_of(vfs, above), (path,), is_partition=True)
