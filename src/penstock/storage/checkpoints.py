"""Formats of the small files of a data directory, Kafka's and ours.

Kafka's, in `logs/`:
    meta.properties                     node, cluster and directory id
    .kafka_cleanshutdown                exists between a clean stop and the next start
    recovery-point-offset-checkpoint    everything below is on disk
    log-start-offset-checkpoint         first offset that readers may see
    replication-offset-checkpoint       high watermark
    cleaner-offset-checkpoint           end of the compacted part
    <partition>/partition.metadata      the topic's id

Ours, in `meta/`: `broker.id` and `checkpoint.json`, which has the byte position of each recovery point,
so that recovery reads nothing below it, and checksums of files that have none.
"""

from typing import NamedTuple

import msgspec

from penstock.base.ids import Offset, TopicPartition, uuid_from_text, uuid_text
from penstock.storage.epochs import parse_checkpoint
from penstock.storage.errors import BadCheckpoint
from penstock.storage.txn_index import FileSum

META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEANER_POINTS = "cleaner-offset-checkpoint"

BROKER_ID = "broker.id"
CHECKPOINT = "checkpoint.json"


def encode_offsets(offsets: dict[TopicPartition, Offset]) -> bytes:
    rows = [f"{topic} {partition} {offset}\n" for (topic, partition), offset in sorted(offsets.items())]
    return f"0\n{len(rows)}\n{''.join(rows)}".encode()


def decode_offsets(data: bytes, path: str) -> dict[TopicPartition, Offset]:
    rows = parse_checkpoint(data, path, columns=3)
    return {TopicPartition(topic, int(partition)): int(offset) for topic, partition, offset in rows}


class MetaProperties(NamedTuple):
    """Contents of `meta.properties`, version 1 (KRaft)."""

    cluster_id: str
    """Empty, and not in the file, while the node does not know its cluster."""
    node_id: int
    directory_id: str

    def encode(self) -> bytes:
        cluster = f"cluster.id={self.cluster_id}\n" if self.cluster_id else ""
        return f"{cluster}directory.id={self.directory_id}\nnode.id={self.node_id}\nversion=1\n".encode()

    @classmethod
    def decode(cls, data: bytes, path: str) -> "MetaProperties":
        try:
            lines = data.decode("utf-8").splitlines()
        except UnicodeDecodeError as error:
            raise BadCheckpoint(f"{path}: {error}") from error
        pairs = (line.partition("=") for line in lines if line.strip() and not line.startswith("#"))
        properties = {name.strip(): value.strip() for name, _, value in pairs}
        # Version 0 is ZooKeeper's: it has broker.id and no directory.id.
        node = properties.get("node.id", properties.get("broker.id", ""))
        if not node.isdecimal():
            raise BadCheckpoint(f"{path}: node.id is {node!r}, expected a number")
        return cls(properties.get("cluster.id", ""), int(node), properties.get("directory.id", ""))


def encode_clean_shutdown(broker_epoch: int = -1) -> bytes:
    return b'{"version":0,"brokerEpoch":%d}' % broker_epoch


def decode_clean_shutdown(data: bytes) -> int:
    """The broker epoch; -1 if the file is empty, as in older Kafka releases."""
    try:
        return int(msgspec.json.decode(data)["brokerEpoch"])
    except (msgspec.DecodeError, KeyError, TypeError, ValueError):
        return -1


def encode_partition_metadata(topic_id: bytes) -> bytes:
    return b"version: 0\ntopic_id: %s" % uuid_text(topic_id).encode()


def decode_partition_metadata(data: bytes, path: str) -> bytes:
    """The topic's id, 16 bytes."""
    try:
        fields = dict(line.split(": ", 1) for line in data.decode("utf-8").splitlines() if line)
        version, topic_id = int(fields["version"]), uuid_from_text(fields["topic_id"])
    except (UnicodeDecodeError, ValueError, KeyError) as error:
        raise BadCheckpoint(f"{path}: not a partition.metadata file: {error}") from error
    if version != 0:
        raise BadCheckpoint(f"{path}: version {version}, expected 0")
    return topic_id


class RecoveryPoint(msgspec.Struct, frozen=True):
    """Everything below `offset`, including indexes and producer snapshot, is on disk."""

    offset: Offset
    segment: Offset
    """Base offset of the segment whose range includes `offset`."""
    position: int
    """Byte position of `offset` in that segment."""


class Hole(NamedTuple):
    """Offsets that existed and can no longer be read: see `holes`."""

    start: Offset
    end: Offset
    """First offset after it."""

    def __str__(self) -> str:
        return f"offsets {self.start} to {self.end - 1}"


class Extent(NamedTuple):
    """A segment that is on disk, at least up to a size."""

    base_offset: Offset
    size: int


class Checkpoint(msgspec.Struct):
    """`meta/checkpoint.json`."""

    version: int = 1
    clean: bool = False
    """Written by a clean stop. For humans: Kafka's clean-shutdown file decides."""
    recovery_points: dict[str, RecoveryPoint] = {}
    log_starts: dict[str, Offset] = {}
    """A copy of Kafka's file: without it deleted records would reappear."""
    kafka_files: tuple[int, ...] = ()
    """CRC-32C of Kafka's recovery point file before and after this checkpoint: with any other, Kafka wrote since."""
    txn_indexes: dict[str, dict[Offset, FileSum]] = {}
    """Checksums of the transaction indexes, which have none themselves, by partition and segment."""

    segments: dict[str, list[Extent]] = {}
    """Sealed segments below the recovery point, by partition. One that is missing was lost."""
    holes: dict[str, list[Hole]] = {}
    """Holes that were found and logged, and whose transactions are in doubt, by partition."""

    def encode(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self), indent=1)

    @classmethod
    def decode(cls, data: bytes, path: str) -> "Checkpoint":
        try:
            checkpoint = msgspec.json.decode(data, type=cls)
        except ValueError as error:  # not JSON, not UTF-8 or another format
            raise BadCheckpoint(f"{path}: {error}") from error
        if checkpoint.version != 1:
            raise BadCheckpoint(f"{path}: version {checkpoint.version}, expected 1")
        return checkpoint
