"""Kafka's names of files and directories in a log directory.

A partition is a directory `<topic>-<partition>`; the files of a segment share its base offset in twenty digits. A file
that is being added or removed has a second suffix:

    00000000000000000000.log            part of the log
    00000000000000000000.log.cleaned    being written by the cleaner, removed after a crash
    00000000000000000000.log.swap       complete, replaces old segments; completed after a crash
    00000000000000000000.log.deleted    no longer part of the log, to be removed
"""

import re
from functools import lru_cache
from typing import NamedTuple

from penstock.base.ids import Offset, TopicPartition

LOG = ".log"
INDEX = ".index"
TIME_INDEX = ".timeindex"
TXN_INDEX = ".txnindex"
SNAPSHOT = ".snapshot"
SEQUENCES = ".sequences"
"""Ours, beside Kafka's `.snapshot`: the last batches of each producer; Kafka keeps one."""
TOMB = ".tomb"
"""Ours: this segment is being deleted."""
SEARCH_INDEX = ".searchindex"
"""Ours: which parts of a sealed segment cannot contain some bytes. May be deleted at any time."""

SEGMENT_KINDS = (LOG, INDEX, TIME_INDEX, TXN_INDEX)

CLEANED = ".cleaned"
SWAP = ".swap"
DELETED = ".deleted"

LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"

_FILE = re.compile(
    r"(\d{20})(\.log|\.index|\.timeindex|\.txnindex|\.snapshot|\.sequences|\.tomb|\.searchindex)(\.cleaned|\.swap|\.deleted)?"
)
_PARTITION = re.compile(r"([a-zA-Z0-9._-]{1,249})-(0|[1-9]\d{0,9})")
_LEAVING = re.compile(r"(.+)\.[0-9a-f]{32}-(delete|future|stray)")


class SegmentFile(NamedTuple):
    base_offset: Offset
    kind: str
    state: str
    """`""` for a file of the log, otherwise CLEANED, SWAP or DELETED."""


def segment_file(base_offset: Offset, kind: str, state: str = "") -> str:
    return f"{base_offset:020d}{kind}{state}"


@lru_cache(maxsize=4096)  # most partitions have files with the same names
def parse_segment_file(name: str) -> SegmentFile | None:
    found = _FILE.fullmatch(name)
    return SegmentFile(int(found[1]), found[2], found[3] or "") if found else None


def partition_dir(partition: TopicPartition) -> str:
    return f"{partition.topic}-{partition.partition}"


def parse_partition_dir(name: str) -> TopicPartition | None:
    """The partition of a directory; None for any other name, including deleted partitions."""
    found = _PARTITION.fullmatch(name)
    if found is None or is_leaving(name):
        return None
    return TopicPartition(found[1], int(found[2]))


def deleted_partition_dir(partition: TopicPartition, unique: str) -> str:
    """The name of a deleted partition until its files are removed."""
    return _leaving_dir(partition, unique, "delete")


def stray_partition_dir(partition: TopicPartition, unique: str) -> str:
    """The name of a partition that no topic claims. It keeps its records."""
    return _leaving_dir(partition, unique, "stray")


def _leaving_dir(partition: TopicPartition, unique: str, state: str) -> str:
    """As Kafka does: at most 255 characters, with a shortened topic name."""
    suffix = f"-{partition.partition}.{unique}-{state}"
    return partition.topic[: 255 - len(suffix)] + suffix


def is_leaving(name: str) -> bool:
    return _LEAVING.fullmatch(name) is not None


def is_deleted_partition_dir(name: str) -> bool:
    found = _LEAVING.fullmatch(name)
    return found is not None and found[2] == "delete"


def parse_stray_dir(name: str) -> TopicPartition | None:
    """The partition of a stray directory, by its name; None for any other name."""
    return parse_leaving_dir(name) if name.endswith("-stray") else None


def parse_leaving_dir(name: str) -> TopicPartition | None:
    """The partition of a deleted, stray or future directory."""
    found = _LEAVING.fullmatch(name)
    held = None if found is None else _PARTITION.fullmatch(found[1])
    return None if held is None else TopicPartition(held[1], int(held[2]))
