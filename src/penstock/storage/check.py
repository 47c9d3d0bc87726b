"""Checks the files of logs against each other.

    batches              valid header and CRC; with `deep` each record  `.log`
    offsets              increase, within and across segments           `.log`, file names
    indexes              match the batches                              `.index`, `.timeindex`, `.txnindex`
    leader epochs        match the batches                              `leader-epoch-checkpoint`
    producers            match a replay of the log                      `.snapshot`, `.sequences`
    checkpoints          are within the log                             in the parent directory

Nothing is written. Files are read once, front to back, in bounded memory, and findings are yielded at once. Normal
conditions are notes: leftovers that the next start removes, preallocated index files of Kafka, offsets that
compaction removed, and everything that the next start rebuilds after a crash.
"""

from collections import Counter
from collections.abc import Iterator

from penstock.base.ids import Offset, TopicPartition, uuid_text
from penstock.storage import checkpoints as ck
from penstock.storage import names
from penstock.storage.check_partition import PartitionCheck, check_batches_file
from penstock.storage.checkpoint_reader import (
    SavedOffsets,
    SavedPartition,
    SmallFileReader,
    read_saved_offsets,
)
from penstock.storage.checkpoints import Extent
from penstock.storage.findings import Finding, Progress, Tally, ignore_progress
from penstock.vfs import Vfs

FINDINGS_PER_FILE_MAX = 20
"""A file of garbage is one problem, not a million."""


# -- a whole directory ------------------------------------------------------------------------------------


def check_directory(
    vfs: Vfs,
    logs: str,
    meta: str,
    *,
    deep: bool = False,
    tally: Tally | None = None,
    report: Progress = ignore_progress,
) -> Iterator[Finding]:
    """Check every partition below `logs`, and the checkpoints against them."""
    tally = tally or Tally()
    marks = read_saved_offsets(vfs, logs, meta)
    yield from _counted(iter(marks.findings), tally)
    topic_ids: dict[str, tuple[bytes, str]] = {}
    seen = set()
    for entry in vfs.list_dir(logs):
        path = f"{logs}/{entry.name}"
        if not entry.is_dir:
            if entry.name.endswith(".checkpoint"):
                yield from _counted(check_batches_file(vfs, path), tally)
            continue
        if names.is_leaving(entry.name):
            yield from _counted(iter([Finding("note", path, None, "a deleted or stray partition")]), tally)
            continue
        partition = names.parse_partition_dir(entry.name)
        if partition is None:
            continue
        seen.add(partition)
        known = marks.known(partition)
        yield from check_partition(vfs, path, known, deep=deep, tally=tally, report=report)
        yield from _counted(_check_segments(vfs, path, partition, marks), tally)
        yield from _counted(_check_topic_id(vfs, path, partition.topic, topic_ids), tally)
    yield from _counted(_check_strangers(marks, seen), tally)


def _check_segments(
    vfs: Vfs, directory: str, partition: TopicPartition, marks: SavedOffsets
) -> Iterator[Finding]:
    """Check that every segment in the checkpoint exists and has at least its size."""
    for hole in marks.known(partition).holes:
        yield Finding(
            "error", directory, None, f"{hole} are missing, as an earlier start of the broker found"
        )
    if not _missing_from(vfs, directory, marks.known(partition)):
        return
    # The log may be in use and compacted meanwhile. A checkpoint read after the listing has the change.
    for base_offset, size, found in _missing_from(
        vfs, directory, read_saved_offsets(vfs, marks.logs, marks.meta).known(partition)
    ):
        path = f"{directory}/{names.segment_file(base_offset, names.LOG)}"
        expected = f"{size} bytes at least, by checkpoint.json"
        shown = "no file" if found is None else f"{found} bytes"
        yield Finding("error", path, None, "the segment is missing or truncated", shown, expected)


def _missing_from(vfs: Vfs, directory: str, known: SavedPartition) -> list[tuple[Offset, int, int | None]]:
    """Base offset, expected size and size found of each missing or truncated segment below the recovery point."""
    point = known.our_point
    if point is None or point.offset != known.recovery_point:
        return []
    listed = ((names.parse_segment_file(entry.name), entry.size) for entry in vfs.list_dir(directory))
    sizes = {
        each.base_offset: size for each, size in listed if each and each.kind == names.LOG and not each.state
    }
    extents = [*known.segments, Extent(point.segment, point.position)]
    ends = [*(each.base_offset for each in extents[1:]), point.offset]
    return [
        (base_offset, size, sizes.get(base_offset))
        for (base_offset, size), end in zip(extents, ends, strict=True)
        if sizes.get(base_offset, 0) < size
        and end > (known.log_start or 0)
        and (
            base_offset != point.segment or base_offset not in sizes
        )  # otherwise `_check_our_point` reports it
    ]


def _check_topic_id(
    vfs: Vfs, directory: str, topic: str, topic_ids: dict[str, tuple[bytes, str]]
) -> Iterator[Finding]:
    """Check that all partitions of a topic have the same id."""
    path = f"{directory}/{names.PARTITION_METADATA}"
    topic_id = SmallFileReader(vfs, [])(path, ck.decode_partition_metadata, None)
    if topic_id is None:
        return
    first, where = topic_ids.setdefault(topic, (topic_id, path))
    if first != topic_id:
        found, expected = uuid_text(topic_id), f"{uuid_text(first)}, as in {where}"
        yield Finding("error", path, 0, f"the id differs from that of topic {topic}", found, expected)


def _check_strangers(marks: SavedOffsets, seen: set[TopicPartition]) -> Iterator[Finding]:
    for name, offsets in (
        (ck.RECOVERY_POINTS, marks.recovery_points),
        (ck.LOG_STARTS, marks.log_starts),
        (ck.HIGH_WATERMARKS, marks.high_watermarks),
        (ck.CLEANER_POINTS, marks.cleaner_points),
    ):
        for partition in sorted(set(offsets) - seen):
            yield Finding("note", f"{marks.logs}/{name}", None, f"{partition} is not in this directory")


def _counted(findings: Iterator[Finding], tally: Tally) -> Iterator[Finding]:
    """Count findings, and limit their number per file."""
    of_file: Counter[str] = Counter()
    for finding in findings:
        if finding.severity == "error":
            tally.errors += 1
        else:
            tally.notes += 1
        of_file[finding.path] += 1
        if of_file[finding.path] <= FINDINGS_PER_FILE_MAX:
            yield finding
    for path, count in of_file.items():
        if count > FINDINGS_PER_FILE_MAX:
            more = f"{count - FINDINGS_PER_FILE_MAX} more findings in this file are left out"
            yield Finding("note", path, None, more)


# -- one partition ----------------------------------------------------------------------------------------


def check_partition(
    vfs: Vfs,
    directory: str,
    known: SavedPartition = SavedPartition(),  # noqa: B008  # immutable
    *,
    deep: bool = False,
    tally: Tally | None = None,
    report: Progress = ignore_progress,
) -> Iterator[Finding]:
    """Check one partition's directory."""
    tally = tally or Tally()
    tally.partitions += 1
    return _counted(PartitionCheck(vfs, directory, known, deep, tally, report=report).run(), tally)
