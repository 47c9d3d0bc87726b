"""Strays: partitions on disk that no topic of the cluster's metadata claims.

A stray keeps all of its files. Its directory has Kafka's name for it, so that Kafka leaves it alone too:

    orders-0                                             a partition
    orders-0.6f0c...32 hex digits...-stray               a stray, until an operator restores or deletes it

Beside the files of the log lies `stray.json`: the topic's whole name, which Kafka cuts where it is long, the log start
offset, which is in the checkpoint files only while the partition is in use, and why it was set aside. A stray that
Kafka made has no such file; what its name and its files say is enough for it.

A partition becomes a stray where the metadata does not say what became of it: metadata that is missing is no reason to
delete records.
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
    """What `stray.json` says."""

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
    """None where the directory does not say whose partition it was."""
    size_bytes: int
    """Of the records' files."""
    log_start: Offset | None = None
    """None where nobody noted it: then the log begins with its first segment."""
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
    """Look at one. `partition` is what its name says, which its note knows better."""
    epoch = _latest_epoch(vfs, path)
    size = sum(each.size for each in vfs.list_dir(path) if each.name.endswith(names.LOG))
    topic_id = _topic_id(vfs, path)
    try:
        note = msgspec.json.decode(read_file(vfs, f"{path}/{NOTE}"), type=Note)
    except (OSError, ValueError):  # none, torn, or of another shape
        return Stray(path, partition, topic_id, size, epoch=epoch)
    if not note.topic.startswith(partition.topic) or note.partition != partition.partition:
        return Stray(path, partition, topic_id, size, epoch=epoch)
    partition = TopicPartition(note.topic, note.partition)
    log_start, epoch = max(note.log_start, 0), max(note.epoch, epoch)
    return Stray(path, partition, topic_id, size, log_start, note.reason, note.set_aside_ms, epoch)


def make_of_topic(vfs: Vfs, path: str, topic_id: Uuid) -> None:
    """Make a stray a partition of another topic. The leader epochs of its batches become 0: they count the leaders of
    the old topic, and one that is later than the new topic's leaders would be taken for damage. No checksum covers
    them. Whoever is interrupted does it again."""
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
            vfs.remove(f"{path}/{entry.name}")  # made anew from the batches
    replace_file(vfs, f"{path}/{names.PARTITION_METADATA}", ck.encode_partition_metadata(topic_id))


def _latest_epoch(vfs: Vfs, path: str) -> LeaderEpoch:
    """As its checkpoint has it, which may be behind its batches."""
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
