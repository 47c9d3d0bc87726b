"""Exports a data directory to a directory of an older system.

Everything is written to `DIR.unfinished`, which is renamed when all of it is on disk: DIR is complete or does not
exist, and an interrupted export starts again.

All records from the log start on are exported, except control records and records of aborted transactions. Records of
open transactions are exported. The first file is named by the log start. If the log ends with a control record, an
empty last file is named by the log end, so that the older system assigns the same next offset.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.base.errors import KafkaError
from penstock.base.ids import Offset, ProducerId, TopicPartition
from penstock.records import Record, RecordBatch
from penstock.storage.directory import LogDirectory
from penstock.storage.errors import CorruptLog
from penstock.storage.log import Log
from penstock.storage.scan import scan_batches
from penstock.vfs import File, Vfs, parent, remove_tree

from .codec import RECORD_BYTES_MAX
from .errors import LegacyError
from .importer import Progress
from .layout import OWN_TOPICS, Format, check_topic

SEGMENT_BYTES = 1 << 30
"""Kafka's default, which both systems expect."""

WRITE_BYTES = 1 << 20

UNFINISHED = ".unfinished"


class Exported(NamedTuple):
    partition: TopicPartition
    records: int
    log_start: Offset
    log_end: Offset


@dataclass
class ExportReport:
    exported: list[Exported] = field(default_factory=list)
    control: int = 0
    """Control records left out."""
    aborted: int = 0
    """Records of aborted transactions left out."""
    undecided: int = 0
    """Exported records of open transactions."""
    headers: int = 0
    """Headers that the format cannot hold."""
    headers_records: int = 0
    """Records that lost a header."""

    @property
    def records(self) -> int:
        return sum(each.records for each in self.exported)


def export_directory(
    directory: LogDirectory,
    target: str,
    format_: Format,
    *,
    topics: Iterable[str] | None = None,
    segment_bytes: int = SEGMENT_BYTES,
    progress: Progress = lambda _done, _total: None,
) -> ExportReport:
    """Export topics of an open data directory to a new directory; internal ones only if named."""
    logs = _choose(directory, topics)
    target = target.rstrip("/")
    vfs, draft = directory.vfs, target + UNFINISHED
    report = ExportReport()
    total = sum(log.size_bytes for log in logs)
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        progress(done, total)

    try:
        _make_way(vfs, target, draft)
        try:
            for log in logs:
                report.exported.append(_export(log, format_, draft, segment_bytes, report, advance))
            _sync_names(vfs, draft, format_, logs)
            vfs.rename(draft, target)
        except BaseException:
            remove_tree(vfs, draft)
            raise
        vfs.sync_dir(parent(target))
    except OSError as error:
        raise LegacyError(
            f"cannot export to {error.filename or target}: {error.strerror or error}"
        ) from error
    return report


def _choose(directory: LogDirectory, topics: Iterable[str] | None) -> list[Log]:
    where = directory.layout.logs
    there = {partition.topic for partition in directory.logs}
    wanted = there - OWN_TOPICS if topics is None else set(topics)
    for topic in sorted(wanted):
        check_topic(topic, where)
        if topic not in there:
            raise LegacyError(f"there is no topic {topic} in {where}")
    if not wanted:
        raise LegacyError(f"{where} has no topics to export")
    return [log for partition, log in sorted(directory.logs.items()) if partition.topic in wanted]


def _make_way(vfs: Vfs, target: str, draft: str) -> None:
    stat = vfs.stat(target)
    if stat is not None:
        if not stat.is_dir or vfs.list_dir(target):
            raise LegacyError(f"{target} already exists: expected no such directory, or an empty one")
        vfs.remove_dir(target)
    remove_tree(vfs, draft)
    vfs.make_dirs(draft)


def _sync_names(vfs: Vfs, draft: str, format_: Format, logs: list[Log]) -> None:
    root = format_.root_of(draft)
    for topic in {log.partition.topic for log in logs}:
        vfs.sync_dir(f"{root}/{topic}")
    vfs.sync_dir(root)
    vfs.sync_dir(draft)


def _export(
    log: Log,
    format_: Format,
    draft: str,
    segment_bytes: int,
    report: ExportReport,
    advance: Callable[[int], None],
) -> Exported:
    """One partition."""
    path = f"{format_.root_of(draft)}/{log.partition.topic}/{log.partition.partition}"
    log_start, log_end, last_stable = log.log_start, log.log_end, log.last_stable
    aborted = _Aborted(log)
    writer = _SegmentWriter(log.vfs, path, format_, log.partition, segment_bytes, log_start)
    try:
        for segment in log.segments[log.segments.index_of(log_start) :]:
            file = segment.file()
            for position, batch in scan_batches(file, 0, segment.size):
                advance(batch.size)
                if batch.last_offset < log_start:
                    continue
                try:
                    batch.check_crc()
                    if batch.is_control:
                        report.control += batch.count
                    elif batch.is_transactional and aborted.covers(batch):
                        report.aborted += batch.count
                    else:
                        written = _write_batch(batch, log_start, writer, report)
                        if batch.is_transactional and batch.base_offset >= last_stable:
                            report.undecided += written
                except LegacyError:
                    raise
                except KafkaError as error:
                    raise CorruptLog(file.path, position, str(error)) from error
        writer.finish(log_end)
    finally:
        writer.close()
    log.vfs.sync_dir(path)
    return Exported(log.partition, writer.records, log_start, log_end)


def _write_batch(
    batch: RecordBatch, log_start: Offset, writer: "_SegmentWriter", report: ExportReport
) -> int:
    written = 0
    for record in batch.records():
        if record.offset < log_start:
            continue
        headers_left = writer.write(record)
        written += 1
        if headers_left:
            report.headers += headers_left
            report.headers_records += 1
    return written


class _Aborted:
    """The aborted transactions of a log, by producer."""

    def __init__(self, log: Log) -> None:
        self._spans: dict[ProducerId, list[tuple[Offset, Offset]]] = {}
        for each in log.aborted(log.log_start, log.log_end):
            self._spans.setdefault(each.producer_id, []).append((each.first_offset, each.last_offset))
        for spans in self._spans.values():
            spans.sort()

    def covers(self, batch: RecordBatch) -> bool:
        """Whether a transactional batch belongs to one of them; a producer has one transaction at a time."""
        spans = self._spans.get(batch.producer_id, [])
        index = bisect_right(spans, batch.base_offset, key=lambda span: span[0]) - 1
        return index >= 0 and batch.base_offset <= spans[index][1]


class _SegmentWriter:
    """Writes one partition's files, in steps of a megabyte."""

    def __init__(
        self,
        vfs: Vfs,
        path: str,
        format_: Format,
        partition: TopicPartition,
        segment_bytes: int,
        log_start: Offset,
    ) -> None:
        self.records = 0
        self._vfs = vfs
        self._path = path
        self._format = format_
        self._partition = partition
        self._encode = format_.codec(partition).encode
        self._segment_bytes = segment_bytes
        self._next_offset = log_start
        self._pieces: list[bytes] = []
        self._pieces_bytes = 0
        self._written = 0
        vfs.make_dirs(path)
        self._file: File | None = self._create(log_start)

    def write(self, record: Record) -> int:
        """Write one record; return the number of lost headers."""
        data, headers_left = self._encode(record)
        size = len(data)
        if size > RECORD_BYTES_MAX:
            raise LegacyError(
                f"{self._partition} has a record of {size} bytes at offset {record.offset}; "
                f"expected at most {RECORD_BYTES_MAX}"
            )
        filled = self._written + self._pieces_bytes
        if filled and filled + size > self._segment_bytes:
            self._seal()
            self._file = self._create(record.offset)
        self._pieces.append(data)
        self._pieces_bytes += size
        if self._pieces_bytes >= WRITE_BYTES:
            self._write_pieces()
        self._next_offset = record.offset + 1
        self.records += 1
        return headers_left

    def finish(self, log_end: Offset) -> None:
        self._seal()
        if log_end > self._next_offset:
            self._file = self._create(log_end)
            self._seal()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _create(self, base_offset: Offset) -> File:
        self._written = 0
        return self._vfs.open(
            f"{self._path}/{self._format.segment_name(base_offset)}", write=True, create=True
        )

    def _write_pieces(self) -> None:
        assert self._file is not None
        if self._pieces:
            self._file.pwrite([b"".join(self._pieces)], self._written)
            self._written += self._pieces_bytes
            self._pieces, self._pieces_bytes = [], 0

    def _seal(self) -> None:
        assert self._file is not None
        self._write_pieces()
        self._file.sync()
        self.close()
