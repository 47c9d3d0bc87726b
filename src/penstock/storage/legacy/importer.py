"""Imports a directory of an older system into a data directory: all of it or nothing.

    1. look     find topics and files, refuse what cannot be imported; nothing is written
    2. fill     write each partition to a directory with the name of a deleted one
    3. publish  rename each directory to its partition's name

An import that is interrupted in step 2 leaves only directories of deleted partitions, which a node, Kafka or the next
import removes. If it is interrupted in step 3, the published partitions are complete, and a second import with
`skip_existing` imports the rest.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from penstock.base.ids import NO_TIMESTAMP, LeaderEpoch, Offset, TimestampMs, TopicPartition
from penstock.base.settings import LogSettings
from penstock.records import BatchBuilder, empty_batch
from penstock.storage import names
from penstock.storage.checkpoints import RecoveryPoint
from penstock.storage.directory import DirectoryRemoval, LogDirectory
from penstock.storage.log import Log
from penstock.storage.recovery import create_log, open_log
from penstock.storage.scan import RELATIVE_OFFSET_MAX

from .errors import LegacyError
from .layout import Format, SourceFile, SourceTopics, find_topics
from .reader import Damage, PartitionReader

if TYPE_CHECKING:
    from random import Random

BATCH_BYTES = 1 << 16
"""Size of batches: large compared with the header, small enough for lookups."""

WRITE_BYTES = 1 << 20
"""Bytes written at once."""

LEADER_EPOCH: LeaderEpoch = 0
"""The epoch of the partition's first leader."""

Progress = Callable[[int, int], None]
"""Called with the bytes done and the total bytes."""


class Imported(NamedTuple):
    """One imported partition."""

    partition: TopicPartition
    records: int
    log_start: Offset
    log_end: Offset


@dataclass
class ImportReport:
    imported: list[Imported] = field(default_factory=list)
    made: list[TopicPartition] = field(default_factory=list)
    """Empty partitions, for numbers that the source skips."""
    existing: list[TopicPartition] = field(default_factory=list)
    """Partitions that were skipped because they have records."""
    cut: list[Damage] = field(default_factory=list)
    skipped: list[Damage] = field(default_factory=list)
    derived: int = 0
    """Index files of the source, which were not read."""
    left: list[str] = field(default_factory=list)
    """Files and directories of the source that are not records of a topic."""
    cleared: int = 0
    """Remains of deleted partitions and unfinished imports, removed first."""

    @property
    def records(self) -> int:
        return sum(each.records for each in self.imported)


def import_directory(
    source: str,
    format_: Format,
    directory: LogDirectory,
    *,
    now_ms: TimestampMs,
    rng: "Random",
    settings: LogSettings | None = None,
    skip_corrupt: bool = False,
    skip_existing: bool = False,
    progress: Progress = lambda _done, _total: None,
) -> ImportReport:
    """Import every topic of an older system into an open data directory, which the caller closes.

    Raises `LegacyError` with nothing imported.
    """
    try:
        found = find_topics(directory.vfs, source, format_)
        job = _Import(
            directory, format_, found, now_ms, rng, settings or LogSettings(), skip_corrupt, progress
        )
        return job.run(source, skip_existing=skip_existing)
    except OSError as error:
        raise LegacyError(f"cannot import {error.filename or source}: {error.strerror or error}") from error


class _Staged(NamedTuple):
    """A partition that is written and synced, but not published."""

    path: str
    imported: Imported
    recovery_point: RecoveryPoint


class _NoPoints:
    """Saves nothing: an unpublished partition has no checkpoint entry."""

    def save_recovery_point(self, partition: TopicPartition, point: RecoveryPoint) -> None: ...

    def save_log_start(self, partition: TopicPartition, offset: Offset) -> None: ...

    def leave_out(self, partition: TopicPartition, segments: Collection[Offset]) -> None: ...


@dataclass
class _Import:
    directory: LogDirectory
    format: Format
    found: SourceTopics
    now_ms: TimestampMs
    rng: "Random"
    settings: LogSettings
    skip_corrupt: bool
    progress: Progress
    report: ImportReport = field(default_factory=ImportReport)
    bytes_done: int = 0
    bytes_total: int = 0

    def run(self, source: str, *, skip_existing: bool) -> ImportReport:
        self.report.derived, self.report.left = self.found.derived, self.found.left
        self.bytes_total = self.found.size_bytes
        self._refuse_existing(source, skip_existing=skip_existing)
        for leftover in self.directory.leftovers:
            leftover.run()
        self.report.cleared = len(self.directory.leftovers)
        self.directory.leftovers = []
        existing = set(self.report.existing)
        topic_ids = {topic: self._topic_id(topic) for topic in self.found.topics}
        staged: list[_Staged] = []
        try:
            for topic, partitions in self.found.topics.items():
                for number, files in sorted(partitions.items()):
                    partition = TopicPartition(topic, number)
                    if partition not in existing:
                        staged.append(self._fill(partition, files, topic_ids[topic]))
        except BaseException:
            for each in staged:
                DirectoryRemoval(self.directory.vfs, each.path).run()
            raise
        self._publish(staged, topic_ids)
        return self.report

    # -- look ------------------------------------------------------------------------------------------

    def _refuse_existing(self, source: str, *, skip_existing: bool) -> None:
        for topic, partitions in self.found.topics.items():
            for number in sorted(partitions):
                log = self.directory.logs.get(TopicPartition(topic, number))
                if log is None or log.log_end == 0:
                    continue
                if not skip_existing:
                    raise LegacyError(
                        f"{log.partition} in {self.directory.layout.logs} has offsets {log.log_start} to "
                        f"{log.log_end} already: nothing was imported from {source}"
                    )
                self.report.existing.append(log.partition)

    def _topic_id(self, topic: str) -> bytes:
        """The topic id of existing partitions, or a new one."""
        ids = (log.topic_id for (name, _), log in sorted(self.directory.logs.items()) if name == topic)
        return next(filter(None, ids), None) or self.rng.randbytes(16)

    # -- fill ------------------------------------------------------------------------------------------

    def _fill(self, partition: TopicPartition, files: list[SourceFile], topic_id: bytes) -> _Staged:
        name = names.deleted_partition_dir(partition, self.rng.randbytes(16).hex())
        path = f"{self.directory.layout.logs}/{name}"
        try:
            return self._fill_at(path, partition, files, topic_id)
        except BaseException:
            DirectoryRemoval(self.directory.vfs, path).run()
            raise

    def _fill_at(
        self, path: str, partition: TopicPartition, files: list[SourceFile], topic_id: bytes
    ) -> _Staged:
        vfs = self.directory.vfs
        log = create_log(
            partition,
            path,
            self.directory.files,
            self.settings,
            _NoPoints(),
            now_ms=self.now_ms,
            topic_id=topic_id,
        )
        reader = PartitionReader(
            vfs, files, self.format.codec(partition), skip_corrupt=self.skip_corrupt, on_read=self._advance
        )
        try:
            if reader.start > 0:
                log.restart_at(reader.start, self.now_ms)
            records = self._copy(reader, log)
            log.checkpoint(is_last=True)
        finally:
            for segment in log.segments:
                segment.forget_files()
        self.report.cut += reader.cut
        self.report.skipped += reader.skipped
        return _Staged(path, Imported(partition, records, log.log_start, log.log_end), log.recovery_point)

    def _copy(self, reader: PartitionReader, log: Log) -> int:
        """Write a reader's records to an empty log; return how many there were."""
        writer = _BatchWriter(log, self.now_ms)
        records = 0
        for offset, timestamp, key, value, headers, _ in reader:
            writer.append(offset, timestamp, key, value, headers)
            records += 1
        writer.finish()
        if reader.end > log.log_end:
            # The last offsets have no records: an empty batch keeps the log end.
            last = reader.end - 1
            batch = empty_batch(last, last, timestamp=NO_TIMESTAMP, leader_epoch=LEADER_EPOCH)
            log.append_replicated(batch, now_ms=self.now_ms)
        return records

    def _advance(self, count: int) -> None:
        self.bytes_done += count
        self.progress(self.bytes_done, self.bytes_total)

    # -- publish ---------------------------------------------------------------------------------------

    def _publish(self, staged: list[_Staged], topic_ids: dict[str, bytes]) -> None:
        vfs, logs = self.directory.vfs, self.directory.layout.logs
        for path, imported, _ in staged:
            if imported.partition in self.directory.logs:
                self.directory.delete(imported.partition, self.rng).run()
            vfs.rename(path, self.directory.path_of(imported.partition))
        vfs.sync_dir(logs)
        for each in staged:
            self._open(each)
        for topic, topic_id in topic_ids.items():
            for number in range(max(self.found.topics[topic])):
                partition = TopicPartition(topic, number)
                if partition not in self.directory.logs:
                    self.directory.create(partition, now_ms=self.now_ms, topic_id=topic_id)
                    self.report.made.append(partition)

    def _open(self, staged: _Staged) -> None:
        partition = staged.imported.partition
        log, _ = open_log(
            partition,
            self.directory.path_of(partition),
            self.directory.files,
            self.settings,
            self.directory.checkpoints,
            now_ms=self.now_ms,
            clean=True,
            recovery_point=staged.recovery_point,
        )
        self.directory.logs[partition] = log
        self.directory.checkpoints.high_watermarks[partition] = log.log_end
        if log.log_start > 0:
            self.directory.checkpoints.save_log_start(partition, log.log_start)
        self.report.imported.append(staged.imported)


class _BatchWriter:
    """Writes records with given offsets in batches to a log."""

    def __init__(self, log: Log, now_ms: TimestampMs) -> None:
        self._log = log
        self._now_ms = now_ms
        self._builder: BatchBuilder | None = None
        self._offset_max: Offset = -1
        """Last offset that the open batch may have, so that a segment can span it."""
        self._end = log.log_end
        self._pending_bytes = 0

    def append(
        self,
        offset: Offset,
        timestamp: TimestampMs,
        key: bytes | None,
        value: bytes | None,
        headers: tuple[tuple[str, bytes | None], ...],
    ) -> None:
        builder = self._builder
        if builder is None or offset > self._offset_max or builder.records_bytes >= BATCH_BYTES:
            self._close_batch()
            builder = self._builder = BatchBuilder(offset, leader_epoch=LEADER_EPOCH)
            self._offset_max = self._end + RELATIVE_OFFSET_MAX
        builder.append(key, value, timestamp, headers, offset)

    def finish(self) -> None:
        self._close_batch()
        self._log.write_staged()

    def _close_batch(self) -> None:
        if self._builder is None:
            return
        self._end = self._builder.next_offset
        data = self._builder.build()
        self._builder = None
        self._log.stage_replicated(data, now_ms=self._now_ms)
        self._pending_bytes += len(data)
        if self._pending_bytes >= WRITE_BYTES:
            self._log.write_staged()
            self._pending_bytes = 0
