"""Finds the partitions under a path, and reads the checkpoints of their directory.

A path is a Penstock data directory (`logs/` and `meta/`), a Kafka log directory (an entry of `log.dirs`) or a
partition directory. Nothing is written, and each small file is read once, so that a plan sees a single state of it.
"""

import os
from typing import Final, NamedTuple

from penstock.arrow.errors import BadOption
from penstock.base.ids import Offset, TopicPartition
from penstock.base.internal_topics import INTERNAL_TOPICS, METADATA_TOPIC
from penstock.storage import checkpoints as ck
from penstock.storage import names
from penstock.storage.checkpoint_reader import read_saved_offsets
from penstock.storage.checkpoints import Checkpoint
from penstock.storage.errors import BadCheckpoint
from penstock.storage.layout import is_log, is_log_directory
from penstock.vfs import Vfs, read_file

HIDDEN_TOPICS: Final = INTERNAL_TOPICS | {METADATA_TOPIC}
"""Read only if they are named."""


class LogLocation(NamedTuple):
    """A partition and its directory. Small and picklable."""

    partition: TopicPartition
    directory: str
    log_start: Offset = 0
    """Log start offset in the checkpoint; 0 if it has none."""
    durable_to: Offset = 0
    """Recovery point in the checkpoint: damage below it is not a torn end."""
    is_kafkas: bool = False
    """Whether only Kafka wrote the directory: Kafka does not write empty transaction indexes."""
    checkpoint: str = ""
    """Path of Penstock's checkpoint, which lists the segments; empty if there is none."""


def find_logs(vfs: Vfs, path: str) -> list[LogLocation]:
    """The partitions under a path, by topic and number."""
    path = os.path.abspath(_local(path))
    stat = vfs.stat(path)
    if stat is None or not stat.is_dir:
        raise BadOption(
            f"path is {path}, which {'is not a directory' if stat else 'does not exist'}, expected {_EXPECTED}"
        )
    entries = vfs.list_dir(path)
    partition = names.parse_partition_dir(os.path.basename(path))
    if any(is_log(entry) for entry in entries):
        if partition is None:
            raise BadOption(
                f"path is {path}, which has segments but not the name of a partition, expected a directory "
                "named TOPIC-PARTITION"
            )
        above = os.path.dirname(path)
        if not is_log_directory(vfs.list_dir(above)):
            return [LogLocation(partition, path)]
        return [_read_checkpoints(vfs, above).location(partition, path)]
    if any(entry.is_dir and entry.name == "logs" for entry in entries) and not is_log_directory(entries):
        path = f"{path}/logs"
        entries = vfs.list_dir(path)
    elif not is_log_directory(entries):
        raise BadOption(f"path is {path}, which is not a log directory, expected {_EXPECTED}")
    known = _read_checkpoints(vfs, path)
    found = [
        known.location(partition, f"{path}/{entry.name}")
        for entry in entries
        if entry.is_dir and (partition := names.parse_partition_dir(entry.name)) is not None
    ]
    return sorted(found)


_EXPECTED = "a data directory (logs/ and meta/), a Kafka log directory or a partition directory (.log files)"


def _local(path: str) -> str:
    scheme, colon, rest = path.partition(":")
    if not colon or "/" in scheme or not rest.startswith("/"):
        return path
    if scheme != "file":
        raise BadOption(f"path is {path}, expected a directory of a disk that every executor has mounted")
    return "/" + rest.lstrip("/")


class _Checkpoints(NamedTuple):
    """The checkpoints of a log directory."""

    log_starts: dict[TopicPartition, Offset]
    recovery_points: dict[TopicPartition, Offset]
    is_kafkas: bool
    checkpoint: str

    def location(self, partition: TopicPartition, directory: str) -> LogLocation:
        return LogLocation(
            partition,
            directory,
            self.log_starts.get(partition, 0),
            self.recovery_points.get(partition, 0),
            self.is_kafkas,
            self.checkpoint,
        )


def _read_checkpoints(vfs: Vfs, logs: str) -> _Checkpoints:
    above = os.path.dirname(logs)
    metas = [f"{logs}.meta", *([f"{above}/meta"] if os.path.basename(logs) == "logs" else [])]
    meta = next((each for each in metas if vfs.stat(f"{each}/{ck.BROKER_ID}") is not None), None)
    marks = read_saved_offsets(vfs, logs, meta or metas[0])
    broken = next((each for each in marks.findings if each.path.endswith(ck.LOG_STARTS)), None)
    starts = marks.log_starts
    if meta is not None and (broken is not None or vfs.stat(f"{logs}/{ck.LOG_STARTS}") is None):
        starts, broken = _our_starts(vfs, f"{meta}/{ck.CHECKPOINT}"), None
    if broken is not None:
        raise BadOption(f"path is {logs}, whose log start offsets cannot be read: {broken}")
    return _Checkpoints(
        starts, marks.recovery_points, meta is None, f"{meta}/{ck.CHECKPOINT}" if meta else ""
    )


def _our_starts(vfs: Vfs, path: str) -> dict[TopicPartition, Offset]:
    """Penstock's copy of Kafka's file."""
    try:
        starts = Checkpoint.decode(read_file(vfs, path), path).log_starts
    except (FileNotFoundError, BadCheckpoint):
        return {}
    parsed = {names.parse_partition_dir(name): offset for name, offset in starts.items()}
    return {partition: offset for partition, offset in parsed.items() if partition is not None}
