"""Strays: partition directories that the cluster metadata does not place on this broker.

A stray keeps all of its files. Its directory has the name that Kafka gives to strays:

    orders-0                                             a partition
    orders-0.6f0c...32 hex digits...-stray               a stray, until an operator restores or deletes it

`stray.json` has the topic's full name, which Kafka shortens in the directory name, the log start offset, which the
checkpoint files no longer have, and the reason. A stray made by Kafka has no such file: its directory name and files
are enough.

A partition becomes a stray if the metadata does not say that it was deleted. Missing metadata never deletes records.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from penstock.base.ids import NO_LEADER_EPOCH, LeaderEpoch, Offset, TimestampMs, TopicPartition, Uuid
from penstock.records.batch import LEADER_EPOCH_AT
from penstock.storage import checkpoints as ck
from penstock.storage import names
from penstock.storage.epochs import LeaderEpochs
from penstock.storage.errors import BadCheckpoint
from penstock.storage.findings import read_through
from penstock.vfs import Vfs, read_file, replace_file

NOTE: Final = "stray.json"


class Note(msgspec.Struct, frozen=True, rename="camel"):
    """Contents of `stray.json`."""

    topic: str
    partition: int
    log_start: Offset
    reason: str
    set_aside_ms: TimestampMs
    epoch: LeaderEpoch = NO_LEADER_EPOCH


class Stray(NamedTuple):
    path: str
    partition: TopicPartition
    topic_id: Uuid | None
    """None if the directory has no `partition.metadata`."""
    size_bytes: int
    """Size of the log files."""
    log_start: Offset | None = None
    """None if unknown: then the log starts at its first segment."""
    reason: str = ""
    set_aside_ms: TimestampMs = -1
    epoch: LeaderEpoch = NO_LEADER_EPOCH
    """The latest leader epoch of its records."""

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


def write_note(vfs: Vfs, directory: str, note: Note) -> None:
    replace_file(vfs, f"{directory}/{NOTE}", msgspec.json.encode(note))


def find_strays(vfs: Vfs, logs: str) -> Iterator[Stray]:
    """All strays of a log directory, by name."""
    for entry in vfs.list_dir(logs):
        partition = names.parse_stray_dir(entry.name) if entry.is_dir else None
        if partition is not None:
            yield read_stray(vfs, f"{logs}/{entry.name}", partition)


def read_stray(vfs: Vfs, path: str, partition: TopicPartition) -> Stray:
    """Read one stray. `partition` is parsed from its name; `stray.json` takes precedence."""
    epoch = _latest_epoch(vfs, path)
    size = sum(each.size for each in vfs.list_dir(path) if each.name.endswith(names.LOG))
    topic_id = _topic_id(vfs, path)
    try:
        note = msgspec.json.decode(read_file(vfs, f"{path}/{NOTE}"), type=Note)
    except (OSError, ValueError):  # missing, torn or another format
        return Stray(path, partition, topic_id, size, epoch=epoch)
    if not note.topic.startswith(partition.topic) or note.partition != partition.partition:
        return Stray(path, partition, topic_id, size, epoch=epoch)
    partition = TopicPartition(note.topic, note.partition)
    log_start, epoch = max(note.log_start, 0), max(note.epoch, epoch)
    return Stray(path, partition, topic_id, size, log_start, note.reason, note.set_aside_ms, epoch)


def make_of_topic(vfs: Vfs, path: str, topic_id: Uuid) -> None:
    """Make a stray a partition of another topic. The leader epochs of its batches become 0: an epoch of the old topic
    that is later than those of the new one would count as damage. The CRC does not cover epochs. May be repeated after
    an interruption."""
    for entry in vfs.list_dir(path):
        if entry.name.endswith(names.LOG):
            file = vfs.open(f"{path}/{entry.name}", write=True)
            try:
                for piece in read_through(file, 0, entry.size):
                    if piece.batch is not None and piece.batch.leader_epoch > 0:
                        file.pwrite([bytes(4)], piece.position + LEADER_EPOCH_AT)
                file.sync()
            finally:
                file.close()
        elif entry.name == names.LEADER_EPOCHS:
            vfs.remove(f"{path}/{entry.name}")  # rebuilt from the batches
    replace_file(vfs, f"{path}/{names.PARTITION_METADATA}", ck.encode_partition_metadata(topic_id))


def _latest_epoch(vfs: Vfs, path: str) -> LeaderEpoch:
    """The latest epoch in its checkpoint file, which may be older than its batches."""
    file = f"{path}/{names.LEADER_EPOCHS}"
    try:
        return LeaderEpochs.decode(read_file(vfs, file), file).latest
    except (OSError, BadCheckpoint):
        return NO_LEADER_EPOCH


def _topic_id(vfs: Vfs, path: str) -> Uuid | None:
    file = f"{path}/{names.PARTITION_METADATA}"
    try:
        return ck.decode_partition_metadata(read_file(vfs, file), file)
    except (OSError, BadCheckpoint):
        return None
