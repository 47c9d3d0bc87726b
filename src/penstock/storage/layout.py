"""Where things lie in a data directory.

    DIR/meta/   broker.id, checkpoint.json, boot, lock, ... ours
    DIR/logs/   a Kafka log directory in every detail       meta.properties, checkpoints, partitions

A directory that has `meta.properties` at its top is a Kafka log directory itself: then `logs/` is that
directory, and ours stands beside it as `<name>.meta`.
"""

from collections.abc import Sequence
from typing import NamedTuple

from penstock.storage import checkpoints as ck
from penstock.storage import names
from penstock.storage.errors import DirectoryRefused
from penstock.vfs import Entry, Vfs

METADATA_TOPIC = "__cluster_metadata"
"""The controllers' log lies in the same directory, but is theirs to open."""


class Layout(NamedTuple):
    logs: str
    meta: str

    @property
    def idempotency(self) -> str:
        """Idempotency keys that were saved; there from the first one on."""
        return f"{self.meta}/idempotency"


def is_log(entry: Entry) -> bool:
    """Whether it is a segment's file of records."""
    parsed = names.parse_segment_file(entry.name)
    return parsed is not None and parsed.kind == names.LOG


def is_log_directory(entries: Sequence[Entry]) -> bool:
    """Whether a directory that has these is a log directory as Kafka knows it: partitions, and files about them."""
    files = {entry.name for entry in entries if not entry.is_dir}
    if files & {ck.META_PROPERTIES, ck.RECOVERY_POINTS, ck.LOG_STARTS}:
        return True
    return any(entry.is_dir and names.parse_partition_dir(entry.name) for entry in entries)


def layout_of(vfs: Vfs, path: str) -> Layout:
    """Where logs and our own files lie under a data directory."""
    path = path.rstrip("/") or "/"
    if path.rpartition("/")[2] in (".", ".."):
        # Our files would be made inside the directory, or beside the wrong one.
        raise DirectoryRefused(f"{path}: give the directory by its own name")
    if vfs.stat(f"{path}/{ck.META_PROPERTIES}") is not None:
        return Layout(path, f"{path}.meta")
    return Layout(f"{path}/logs", f"{path}/meta")
