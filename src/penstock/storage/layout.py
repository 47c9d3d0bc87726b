"""Paths in a data directory.

    DIR/meta/   broker.id, checkpoint.json, boot, lock, ... ours
    DIR/logs/   a Kafka log directory:                      meta.properties, checkpoints, partitions

A directory that has `meta.properties` at its top is a Kafka log directory itself: then `logs/` is that
directory, and our files are beside it in `<name>.meta`.
"""

from collections.abc import Sequence
from typing import NamedTuple

from penstock.storage import checkpoints as ck
from penstock.storage import names
from penstock.storage.errors import DirectoryRefused
from penstock.vfs import Entry, Vfs


class Layout(NamedTuple):
    logs: str
    meta: str

    @property
    def idempotency(self) -> str:
        """Saved idempotency keys; created with the first one."""
        return f"{self.meta}/idempotency"


def is_log(entry: Entry) -> bool:
    """Whether it is a segment's log file."""
    parsed = names.parse_segment_file(entry.name)
    return parsed is not None and parsed.kind == names.LOG


def is_log_directory(entries: Sequence[Entry]) -> bool:
    """Whether these are the entries of a Kafka log directory: partitions and checkpoint files."""
    files = {entry.name for entry in entries if not entry.is_dir}
    if files & {ck.META_PROPERTIES, ck.RECOVERY_POINTS, ck.LOG_STARTS}:
        return True
    return any(entry.is_dir and names.parse_partition_dir(entry.name) for entry in entries)


def layout_of(vfs: Vfs, path: str) -> Layout:
    """The paths of logs and of our own files."""
    path = path.rstrip("/") or "/"
    if path.rpartition("/")[2] in (".", ".."):
        # Our files would be created inside the directory, or beside the wrong one.
        raise DirectoryRefused(f"{path}: give the directory by its own name")
    if vfs.stat(f"{path}/{ck.META_PROPERTIES}") is not None:
        return Layout(path, f"{path}.meta")
    return Layout(f"{path}/logs", f"{path}/meta")
