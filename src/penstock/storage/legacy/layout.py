"""Paths in a directory of each system.

    MiniKafka   DIR/logs/<topic>/<partition>/<base offset>.log
    Kafka-JR    DIR/<topic>/<partition>/<20-digit base offset>.log

Base offsets are read with any number of digits, and sorted as numbers. A topic is a directory that has a
directory with a numeric name. Everything else is ignored and listed.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.base.ids import Offset, TopicPartition
from penstock.base.internal_topics import METADATA_TOPIC, OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from penstock.vfs import Vfs

from .codec import OFFSET_MAX, Codec
from .errors import LegacyError
from .kafka_jr import KafkaJrCodec
from .minikafka import MinikafkaCodec

PARTITIONS_MAX = 10_000
"""Limit per topic. Missing partitions are created up to the highest number found."""

OWN_TOPICS = frozenset({METADATA_TOPIC, OFFSETS_TOPIC, TRANSACTIONS_TOPIC})
"""Internal topics."""

_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_PARTITION = re.compile(r"0|[1-9]\d{0,9}")
_SEGMENT = re.compile(r"(\d{1,20})\.log")
_DERIVED = re.compile(r"\d{1,20}\.(idx|timeidx|index|timeindex)")


class Format(NamedTuple):
    """One of the two systems."""

    name: str
    root: str
    """Directory in DIR with the topics; empty for DIR itself."""
    digits: int
    """Least number of digits of a base offset in a file name."""
    codec: Callable[[TopicPartition], Codec]

    def root_of(self, path: str) -> str:
        path = path.rstrip("/") or "/"
        return f"{path}/{self.root}" if self.root else path

    def segment_name(self, base_offset: Offset) -> str:
        return f"{base_offset:0{self.digits}d}.log"

    @property
    def picture(self) -> str:
        """What a directory looks like, for messages."""
        return "/".join(
            ("DIR", *([self.root] if self.root else []), "<topic>", "<partition>", "<base offset>.log")
        )


FORMATS = {
    each.name: each
    for each in (Format("minikafka", "logs", 1, MinikafkaCodec), Format("kafka-jr", "", 20, KafkaJrCodec))
}


class SourceFile(NamedTuple):
    """A segment of an older system."""

    base_offset: Offset
    path: str
    size: int


@dataclass
class SourceTopics:
    """Contents of a directory."""

    topics: dict[str, dict[int, list[SourceFile]]] = field(default_factory=dict)
    """Each partition's segments by base offset."""
    derived: int = 0
    """Number of index files, which are rebuilt and not read."""
    left: list[str] = field(default_factory=list)
    """Everything that is neither."""

    @property
    def size_bytes(self) -> int:
        return sum(file.size for topic in self.topics.values() for files in topic.values() for file in files)


def find_topics(vfs: Vfs, path: str, format_: Format) -> SourceTopics:
    """List a directory of an older system; no file is opened."""
    root = format_.root_of(path)
    stat = vfs.stat(root)
    if stat is None or not stat.is_dir:
        raise LegacyError(
            f"there is no directory {root}: {format_.name} keeps its records as {format_.picture}"
        )
    found = SourceTopics()
    if format_.root:
        entries = vfs.list_dir(path)
        found.left += [f"{path.rstrip('/')}/{each.name}" for each in entries if each.name != format_.root]
    for entry in vfs.list_dir(root):
        if not entry.is_dir or not _add_topic(vfs, f"{root}/{entry.name}", entry.name, found):
            found.left.append(f"{root}/{entry.name}")
    if not found.topics:
        raise LegacyError(f"{path} has no topics: {format_.name} keeps its records as {format_.picture}")
    return found


def _add_topic(vfs: Vfs, path: str, topic: str, found: SourceTopics) -> bool:
    """Add a directory if it is a topic."""
    entries = vfs.list_dir(path)
    numbered = [each.name for each in entries if each.is_dir and _PARTITION.fullmatch(each.name)]
    if not numbered:
        return False
    check_topic(topic, path)
    highest = max(map(int, numbered))
    if highest >= PARTITIONS_MAX:
        raise LegacyError(f"{path} has a partition {highest}, expected less than {PARTITIONS_MAX}")
    found.topics[topic] = {int(name): _segments(vfs, f"{path}/{name}", found) for name in numbered}
    found.left += [f"{path}/{each.name}" for each in entries if each.name not in set(numbered)]
    return True


def _segments(vfs: Vfs, path: str, found: SourceTopics) -> list[SourceFile]:
    files: dict[Offset, SourceFile] = {}
    for entry in vfs.list_dir(path):
        segment = None if entry.is_dir else _SEGMENT.fullmatch(entry.name)
        if segment is None:
            if entry.is_dir or not _DERIVED.fullmatch(entry.name):
                found.left.append(f"{path}/{entry.name}")
            else:
                found.derived += 1
            continue
        base_offset = int(segment[1])
        if base_offset > OFFSET_MAX:
            raise LegacyError(
                f"{path}/{entry.name} has base offset {base_offset}, expected at most {OFFSET_MAX}"
            )
        if base_offset in files:
            raise LegacyError(f"{files[base_offset].path} and {path}/{entry.name} have the same base offset")
        files[base_offset] = SourceFile(base_offset, f"{path}/{entry.name}", entry.size)
    return [file for _, file in sorted(files.items())]


def check_topic(topic: str, path: str) -> None:
    """Refuse a name that Kafka would refuse, or that is the broker's own."""
    if topic in (".", "..") or not _TOPIC.fullmatch(topic):
        raise LegacyError(
            f"{path}: {topic!r} cannot be a topic's name; "
            "expected 1 to 249 letters, digits, dots, underscores and hyphens, and not '.' or '..'"
        )
    if topic in OWN_TOPICS:
        raise LegacyError(
            f"{path}: topic {topic} holds the broker's own state and is neither imported nor exported"
        )
