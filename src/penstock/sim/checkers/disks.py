"""Checks disks at the end of a run: sound files that contain what was read, identical on every replica."""

from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import NamedTuple

from penstock.base.ids import LeaderEpoch, Offset, TopicPartition
from penstock.base.internal_topics import METADATA_TOPIC
from penstock.metadata.image import ClusterImage
from penstock.sim.checkers.history import Audited, ReplicaRead
from penstock.sim.checkers.records import Rules
from penstock.sim.checkers.violation import Violation
from penstock.sim.topic_lives import topic_name
from penstock.storage import names
from penstock.storage.check import check_directory
from penstock.storage.checkpoints import decode_partition_metadata
from penstock.storage.errors import BadCheckpoint
from penstock.storage.findings import Tally, read_through
from penstock.storage.layout import layout_of
from penstock.vfs import Vfs, read_file

DATA = "/data"


def check_disk(disk: Vfs, audited: list[Audited], rules: Rules, data: str = DATA) -> None:
    """LogMatchesReads: the files are sound, and contain what was read of each partition that is on this disk."""
    layout = layout_of(disk, data)
    findings = [
        finding
        for finding in check_directory(disk, layout.logs, layout.meta, deep=True, tally=Tally())
        if finding.severity == "error"
    ]
    if findings:
        raise Violation(f"LogMatchesReads: {findings[0]} (and {len(findings) - 1} more findings)")
    check_contents(disk, audited, rules, data)


def check_contents(
    disk: Vfs, audited: list[Audited], rules: Rules, data: str = DATA, *, is_spoilt: bool = False
) -> None:
    """LogMatchesReads, as far as it holds for a node that was killed. On a spoilt disk flipped bits may not have been
    read since: only records that are sound count."""
    logs = layout_of(disk, data).logs
    there = {entry.name for entry in disk.list_dir(logs)}
    for each in audited:
        name = directory_of(each.at)
        if name in there:
            on_disk = read_records(disk, f"{logs}/{name}")
            read = {
                record.offset: record.value
                for record in each.records
                if not is_spoilt or record.offset in on_disk
            }
            _compare(each.at, on_disk, read, rules)
        elif not rules.is_replicated and not is_spoilt:
            raise Violation(f"LogMatchesReads: {each.at} was read but is not on the disk")


def directory_of(at: TopicPartition) -> str:
    return str(at._replace(topic=topic_name(at.topic)))


def _compare(
    at: TopicPartition, on_disk: dict[Offset, bytes], read: dict[Offset, bytes], rules: Rules
) -> None:
    for offset, value in sorted(read.items()):
        found = on_disk.get(offset)
        if found == value:
            continue
        if found is None and at.topic in rules.compacted | rules.shortened:
            continue
        raise Violation(f"LogMatchesReads: {at} at {offset} was read as {value!r}, on disk it is {found!r}")


def read_records(disk: Vfs, directory: str) -> dict[Offset, bytes]:
    """Return every record of a partition's files, by offset."""
    return {offset: value for offset, (_, value) in read_batches(disk, directory).items()}


def read_batches(disk: Vfs, directory: str) -> dict[Offset, tuple[LeaderEpoch, bytes]]:
    """Return every record of a partition's files with its leader epoch, by offset."""
    records: dict[Offset, tuple[LeaderEpoch, bytes]] = {}
    for batch in _in_place(_read_log(disk, directory)):
        if batch is not None:
            records |= {offset: (batch.epoch, value) for offset, value in batch.records}
    return records


def are_records_sound(disk: Vfs) -> bool:
    """Return whether every batch of every partition is undamaged."""
    logs = layout_of(disk, DATA).logs
    directories = (entry.name for entry in disk.list_dir(logs) if entry.is_dir)
    return all(None not in _in_place(_read_log(disk, f"{logs}/{each}")) for each in directories)


class _Batch(NamedTuple):
    first: Offset
    last: Offset
    epoch: LeaderEpoch
    records: list[tuple[Offset, bytes]]


def _read_log(disk: Vfs, directory: str) -> list[_Batch | None]:
    """Return the batches of all segments; None for each range that is not a batch, or whose CRC is wrong."""
    batches: list[_Batch | None] = []
    for entry in disk.list_dir(directory):
        if entry.name.endswith(".log"):
            file = disk.open(f"{directory}/{entry.name}")
            for piece in read_through(file, 0, file.size()):
                batch = piece.batch
                if batch is None or not piece.is_sound:
                    batches.append(None)
                    continue
                records = [(each.offset, bytes(each.value or b"")) for each in batch.records()]
                batches.append(_Batch(batch.base_offset, batch.last_offset, batch.leader_epoch, records))
            file.close()
    return batches


def _in_place(batches: list[_Batch | None]) -> Iterator[_Batch | None]:
    """Yield the batches, with None also for those at an impossible position. No CRC covers a batch's offset and leader
    epoch, but its neighbours bound them. Of two that overlap, the first is right if it starts where the last ended."""
    end, epoch = 0, -1
    for batch, behind in zip_longest(batches, batches[1:]):
        is_placed = batch is not None and batch.first >= end and batch.epoch >= epoch
        if batch is not None and behind is not None:
            overlaps = batch.first != end and end <= behind.first <= batch.last
            is_placed &= not (overlaps or epoch <= behind.epoch < batch.epoch)
        if batch is None or not is_placed:
            yield None
        else:
            yield batch
            end, epoch = batch.last + 1, batch.epoch


def read_replicas(
    disk: Vfs, node: int, ends: Mapping[TopicPartition, Offset], data: str = DATA
) -> Iterator[ReplicaRead]:
    """Yield what a node has of these partitions, up to their committed ends."""
    logs = layout_of(disk, data).logs
    there = {entry.name for entry in disk.list_dir(logs)}
    for at, end in ends.items():
        if str(at) in there:
            found = read_batches(disk, f"{logs}/{at}")
            yield ReplicaRead(node, at, {offset: each for offset, each in found.items() if offset < end})


def left_behind(disk: Vfs, node: int, image: ClusterImage) -> list[str]:
    """Return directories of partitions that do not belong on the node: their topic was deleted or replaced by another
    of the same name, or the partition was moved. A directory that lost its topic id in a power cut counts too, until
    the node has written it again. Directories being deleted (`-delete`) do not count."""
    logs = layout_of(disk, DATA).logs
    found = []
    for entry in disk.list_dir(logs):
        at = names.parse_partition_dir(entry.name) if entry.is_dir else None
        if at is None or at.topic == METADATA_TOPIC:
            continue
        placed = image.partition(at.topic, at.partition)
        is_here = placed is not None and node in placed.replicas
        if not is_here or _topic_id(disk, f"{logs}/{entry.name}") != image.topics[at.topic].id:
            found.append(entry.name)
    return found


def _topic_id(disk: Vfs, directory: str) -> bytes | None:
    path = f"{directory}/{names.PARTITION_METADATA}"
    try:
        return decode_partition_metadata(read_file(disk, path), path)
    except (FileNotFoundError, BadCheckpoint):
        return None
