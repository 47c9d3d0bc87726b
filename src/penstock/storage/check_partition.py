"""Checks the files of one partition against each other, in one pass over its batches."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from penstock.base.errors import KafkaError
from penstock.base.ids import NO_LEADER_EPOCH, Offset
from penstock.records import HEADER_BYTES, ControlType, RecordBatch, parse_control
from penstock.records.batch import CODEC_MASK
from penstock.storage import checkpoints as ck
from penstock.storage import names
from penstock.storage.check_indexes import Marker, OffsetIndexCheck, TimeIndexCheck, TxnIndexCheck
from penstock.storage.checkpoint_reader import SavedPartition, SmallFileReader, unreadable
from penstock.storage.checkpoints import RecoveryPoint
from penstock.storage.epochs import LeaderEpochs
from penstock.storage.errors import BadCheckpoint
from penstock.storage.findings import Finding, Progress, SegmentPiece, Severity, Tally, read_through
from penstock.storage.producers import Producer, Producers
from penstock.storage.scan import RELATIVE_OFFSET_MAX, BatchPosition
from penstock.storage.snapshots import decode_sequences, decode_snapshot, load_snapshot
from penstock.vfs import File, Vfs, read_file

KRAFT_SNAPSHOT = re.compile(r"\d{20}-\d{10}\.checkpoint")
"""Snapshots of the metadata log, which hold record batches too."""

_PROGRESS_BYTES = 1 << 20
_LEFTOVERS = (names.CLEANED, names.SWAP, names.DELETED, names.TOMB, ".cut", ".tmp")
_CODECS = 5


class _Segment(NamedTuple):
    base: Offset
    next_base: Offset | None
    """Base offset of the next segment; None for the last, which is active."""

    @property
    def is_active(self) -> bool:
        return self.next_base is None


class PartitionCheck:
    """One pass over a partition, from its first batch to its last."""

    def __init__(
        self, vfs: Vfs, directory: str, known: SavedPartition, deep: bool, tally: Tally, report: Progress
    ) -> None:
        self.vfs = vfs
        self.directory = directory
        self.known = known
        self.deep = deep
        self.tally = tally
        self.report = report
        self.epochs: LeaderEpochs | None = None
        self.epoch_reported = NO_LEADER_EPOCH
        self.expected: Offset = 0
        """Lowest offset that the next batch may have."""
        self.missing = 0
        """Number of offsets without a record, as compaction leaves them."""
        self.is_after_damage = False
        """The last piece was damaged: offsets missing now are damaged, not compacted."""
        self.producers = Producers()
        self.can_replay = False
        """Whether `producers` is exact: all batches so far were whole and sound."""
        self.open_with_records: dict[int, bool] = {}
        """Whether the log has records of an open transaction, by producer id."""
        self.snapshots: list[Offset] = []
        """Snapshots not reached yet, the last first."""
        self.unreported_bytes = 0

    def path_of(self, base_offset: Offset, kind: str) -> str:
        return f"{self.directory}/{names.segment_file(base_offset, kind)}"

    def is_durable(self, offset: Offset) -> bool:
        """Whether everything up to an offset, including indexes, must be on disk."""
        return self.known.clean or offset < (self.known.recovery_point or 0)

    def run(self) -> Iterator[Finding]:
        bases: list[Offset] = []
        others: list[tuple[Offset, str]] = []
        for entry in self.vfs.list_dir(self.directory):
            path = f"{self.directory}/{entry.name}"
            parsed = names.parse_segment_file(entry.name)
            if entry.name.endswith(_LEFTOVERS):
                yield Finding("note", path, None, f"a leftover of {entry.size} bytes, not part of the log")
            elif KRAFT_SNAPSHOT.fullmatch(entry.name):
                yield from check_batches_file(self.vfs, path)
            elif parsed is not None and parsed.kind == names.LOG:
                bases.append(parsed.base_offset)
            elif parsed is not None:
                others.append((parsed.base_offset, parsed.kind))
        yield from self._small_files()
        self.snapshots = sorted((base for base, kind in others if kind == names.SNAPSHOT), reverse=True)
        for base, kind in others:
            if kind in names.SEGMENT_KINDS and base not in bases:
                yield Finding("note", self.path_of(base, kind), None, "an index without a log file")
            elif kind == names.SEQUENCES:
                yield from self._check_sequences(base)
        if not bases:
            yield Finding("error", self.directory, None, "no segment", "no .log file", "at least one")
            return
        bases.sort()
        self._begin(bases[0])
        for base, following in zip(bases, [*bases[1:], None], strict=True):
            yield from self._check_segment(_Segment(base, following))
        self.report(self.unreported_bytes)
        end = max(self.expected, bases[-1])
        yield from self._check_snapshots(end)
        yield from self._check_points(bases, end)
        if self.missing:
            yield Finding(
                "note",
                self.directory,
                None,
                f"{self.missing} offsets have no record, as after compaction",
            )

    def _small_files(self) -> Iterator[Finding]:
        findings: list[Finding] = []
        read = SmallFileReader(self.vfs, findings)
        read(f"{self.directory}/{names.PARTITION_METADATA}", ck.decode_partition_metadata, None)
        self.epochs = read(f"{self.directory}/{names.LEADER_EPOCHS}", LeaderEpochs.decode, LeaderEpochs())
        if findings and findings[-1].path.endswith(names.LEADER_EPOCHS):
            self.epochs = None
        yield from findings

    def _begin(self, first: Offset) -> None:
        self.expected = first
        self.producers = Producers(first)
        self.can_replay = first == 0 or load_snapshot(self.vfs, self.directory, first, self.producers)
        # Records of transactions that are open in the snapshot are before the log start.
        self.open_with_records = {
            producer_id: False
            for producer_id, each in self.producers.by_id.items()
            if each.txn_first_offset is not None
        }

    # -- segments ---------------------------------------------------------------------------------------

    def _check_segment(self, segment: _Segment) -> Iterator[Finding]:
        self.tally.segments += 1
        base = segment.base
        index = OffsetIndexCheck(self.vfs, self.path_of(base, names.INDEX), base)
        times = TimeIndexCheck(self.vfs, self.path_of(base, names.TIME_INDEX), base)
        txns = TxnIndexCheck(self.vfs, self.path_of(base, names.TXN_INDEX), base)
        file = None
        try:
            # Index sizes are read before the log size: a live log only grows.
            file = self.vfs.open(self.path_of(base, names.LOG))
            size = file.size()
            for each in (index, times, txns):
                yield from each.begin()
            if size:
                yield from self._check_missing(segment, index, times)
            for piece in read_through(file, 0, size, floor=base):
                self._count(piece.size)
                if piece.batch is None or not piece.is_sound:
                    yield _damage(file.path, piece)
                    yield from index.skip(piece.position + piece.size)
                    times.skip()
                    self.can_replay, self.is_after_damage = False, True
                    self.producers.pass_hole(self.expected)
                    self.open_with_records = {}
                    continue
                batch, is_placed = piece.batch, self._is_placed(segment, piece.batch)
                yield from self._check_batch(segment, file, piece.position, batch)
                if is_placed:
                    spot = BatchPosition(
                        piece.position, piece.size, batch.base_offset, batch.last_offset, batch.max_timestamp
                    )
                    yield from index.see(spot)
                    yield from times.see(spot)
                    yield from self._replay(segment, file, spot, batch, txns)
                else:
                    yield from index.skip(piece.position + piece.size)
                    times.skip()
                    self.can_replay = False
                if segment.next_base is None or batch.last_offset < segment.next_base:
                    self.expected = batch.next_offset
            yield from index.finish(size)
            is_sealed = not segment.is_active or self.known.clean
            yield from times.finish(self.expected, is_complete=is_sealed)
            yield from txns.finish(max(self.expected, segment.next_base or 0))
        except FileNotFoundError:
            return  # deleted or compacted during the check
        finally:
            for each in (index, times, txns):
                each.close()
            if file is not None:
                file.close()

    def _is_placed(self, segment: _Segment, batch: RecordBatch) -> bool:
        """Whether a batch's offsets are plausible. The CRC does not cover them."""
        end = segment.base + RELATIVE_OFFSET_MAX + 1 if segment.next_base is None else segment.next_base
        return (
            self.expected <= batch.base_offset <= batch.last_offset < end
            and segment.base <= batch.base_offset
        )

    def _count(self, size: int) -> None:
        self.tally.bytes += size
        self.unreported_bytes += size
        if self.unreported_bytes >= _PROGRESS_BYTES:
            self.report(self.unreported_bytes)
            self.unreported_bytes = 0

    def _check_missing(
        self, segment: _Segment, index: OffsetIndexCheck, times: TimeIndexCheck
    ) -> Iterator[Finding]:
        """Check that a sealed segment has its indexes; those of the active one may not be written yet."""
        for check in (index, times):
            if not check.is_missing:
                continue
            if self.is_durable(segment.base) or not segment.is_active:
                last = segment.next_base or segment.base
                severity: Severity = "error" if self.is_durable(last - 1) or not self._is_behind() else "note"
                yield Finding(severity, check.path, None, "the index is missing", "no file", "an index")

    def _is_behind(self) -> bool:
        """Whether the next start will scan past a recovery point."""
        return not self.known.clean and self.known.recovery_point is not None

    # -- batches ----------------------------------------------------------------------------------------

    def _check_batch(
        self, segment: _Segment, file: File, position: int, batch: RecordBatch
    ) -> Iterator[Finding]:
        def wrong(problem: str, found: str, expected: str) -> Finding:
            return Finding("error", file.path, position, problem, found, expected)

        self.tally.batches += 1
        first, last = batch.base_offset, batch.last_offset
        if first < segment.base:
            expected = f"{segment.base} or more, by the file name"
            yield wrong("the batch is before its segment", f"offset {first}", expected)
        elif first < self.expected:
            yield wrong("offsets go back", f"offset {first}", f"{self.expected} or more")
        if segment.next_base is not None and last >= segment.next_base:
            expected = f"less than {segment.next_base}, where the next segment begins"
            yield wrong("the batch reaches into the next segment", f"last offset {last}", expected)
        elif last - segment.base > RELATIVE_OFFSET_MAX:
            expected = f"{segment.base + RELATIVE_OFFSET_MAX} at most"
            yield wrong("the batch is too far from the segment's start", f"last offset {last}", expected)
        if not 0 <= batch.count <= batch.last_offset_delta + 1:
            found = f"{batch.count} records in {batch.last_offset_delta + 1} offsets"
            yield wrong("the batch counts more records than offsets", found, "at most one for each")
        if batch.attributes & CODEC_MASK >= _CODECS:
            yield wrong("the codec is unknown", str(batch.attributes & CODEC_MASK), "0 to 4")
        yield from self._check_epoch(file, position, batch)
        gap = 0 if self.is_after_damage else max(first - self.expected, 0)
        gap += max(batch.last_offset_delta + 1 - batch.count, 0)
        self.is_after_damage = False
        if gap:
            self.missing += gap
            self.can_replay = False
        if self.deep:
            yield from self._check_records(file, position, batch)
        else:
            self.tally.records += max(batch.count, 0)

    def _check_epoch(self, file: File, position: int, batch: RecordBatch) -> Iterator[Finding]:
        epoch = batch.leader_epoch
        if self.epochs is None or epoch in (NO_LEADER_EPOCH, self.epoch_reported):
            return
        if batch.base_offset < (self.known.log_start or 0):
            return  # epochs below the log start are dropped
        known = self.epochs.epoch_at(batch.base_offset)
        if known == epoch:
            return
        self.epoch_reported = epoch
        path = f"{self.directory}/{names.LEADER_EPOCHS}"
        if epoch > self.epochs.latest and not self.is_durable(batch.base_offset):
            yield Finding("note", path, None, f"does not have epoch {epoch} from {batch.base_offset} on yet")
            return
        if not self.epochs.entries:
            self.epochs = None
            problem = "the leader epochs are lost"
            yield Finding("error", path, None, problem, "none", f"epoch {epoch} from {batch.base_offset} on")
            return
        yield Finding(
            "error",
            file.path,
            position,
            f"the batch's leader epoch is not the one that {path} has for offset {batch.base_offset}",
            f"epoch {epoch}",
            f"epoch {known}" if known >= 0 else "none, as in the file",
        )

    def _check_records(self, file: File, position: int, batch: RecordBatch) -> Iterator[Finding]:
        def wrong(severity: Severity, problem: str, found: str, expected: str) -> Finding:
            return Finding(severity, file.path, position, problem, found, expected)

        expected, largest = batch.base_offset, -1
        try:
            for record in batch.records():
                self.tally.records += 1
                if not expected <= record.offset <= batch.last_offset:
                    bounds = f"{expected} to {batch.last_offset}"
                    yield wrong("error", "a record is out of order", f"offset {record.offset}", bounds)
                expected = record.offset + 1
                largest = max(largest, record.timestamp)
                if batch.is_control:
                    parse_control(record)
        except KafkaError as error:
            yield wrong("error", "the records cannot be decoded", str(error), f"{batch.count} records")
            return
        if batch.count and largest != batch.max_timestamp:
            yield wrong(
                "note",
                "the batch's largest timestamp is not that of its records",
                f"timestamp {batch.max_timestamp}",
                f"{largest}",
            )

    # -- producers and transactions ---------------------------------------------------------------------

    def _replay(
        self, segment: _Segment, file: File, spot: BatchPosition, batch: RecordBatch, txns: TxnIndexCheck
    ) -> Iterator[Finding]:
        yield from self._check_snapshots(batch.base_offset)
        if not batch.has_producer_id:
            self.producers.end_offset = batch.next_offset
            yield from txns.skip(batch.base_offset)
            return
        try:
            marker = self._apply(batch)
        except KafkaError as error:
            self.can_replay = False
            yield Finding(
                "error",
                file.path,
                spot.position,
                "the marker cannot be decoded",
                str(error),
                "the end of a transaction",
            )
            return
        if batch.is_control and batch.count == 0:
            yield from txns.skip(batch.next_offset)
            return
        must_have = not segment.is_active or self.is_durable(batch.base_offset)
        yield from txns.see(
            batch.base_offset, batch.last_offset, marker, is_exact=self.can_replay, must_have=must_have
        )

    def _apply(self, batch: RecordBatch) -> Marker | None:
        """Apply a batch to the replay; return the end of a transaction, if it is one."""
        aborted = self.producers.apply(batch)
        producer_id = batch.producer_id
        if not batch.is_control:
            if batch.is_transactional:
                has_records = self.open_with_records.get(producer_id, False) or batch.count > 0
                self.open_with_records[producer_id] = has_records
            return None
        types = [parse_control(record).type for record in batch.records()]
        if not any(each in (ControlType.ABORT, ControlType.COMMIT) for each in types):
            return None
        has_records = self.open_with_records.pop(producer_id, False)
        return Marker(batch.base_offset, producer_id, ControlType.ABORT in types, aborted, has_records)

    def _check_snapshots(self, offset: Offset) -> Iterator[Finding]:
        """Compare the snapshots up to an offset with the replay."""
        while self.snapshots and self.snapshots[-1] <= offset:
            at = self.snapshots.pop()
            path = self.path_of(at, names.SNAPSHOT)
            try:
                producers = decode_snapshot(read_file(self.vfs, path), path)
            except FileNotFoundError:
                continue
            except BadCheckpoint as error:
                yield unreadable(path, error)
                continue
            # A snapshot below the log, or within a batch, cannot be compared.
            if self.can_replay and at >= self.expected:
                yield from self._compare(path, producers)

    def _compare(self, path: str, snapshot: dict[int, Producer]) -> Iterator[Finding]:
        for producer_id, found in snapshot.items():
            expected = self.producers.by_id.get(producer_id)
            if expected is None:
                problem = f"producer {producer_id} has written nothing to this log"
                yield Finding("error", path, None, problem, _show_producer(found), "no such producer")
            elif not _agree(found, expected):
                yield Finding(
                    "error",
                    path,
                    None,
                    f"producer {producer_id} differs from the log",
                    _show_producer(found),
                    _show_producer(expected),
                )
        forgotten = len(self.producers.by_id.keys() - snapshot.keys())
        if forgotten:
            yield Finding(
                "note", path, None, f"{forgotten} producers of the log are missing, as expired ones are"
            )

    def _check_sequences(self, offset: Offset) -> Iterator[Finding]:
        path = self.path_of(offset, names.SEQUENCES)
        try:
            decode_sequences(read_file(self.vfs, path), path)
        except FileNotFoundError:
            return
        except BadCheckpoint as error:
            yield unreadable(path, error)

    # -- checkpoints ------------------------------------------------------------------------------------

    def _check_points(self, bases: list[Offset], end: Offset) -> Iterator[Finding]:
        known, logs = self.known, self.directory.rpartition("/")[0]
        soft: Severity = "error" if known.clean else "note"
        for name, what, offset, severity in (
            (ck.RECOVERY_POINTS, "the recovery point", known.recovery_point, "error"),
            (ck.LOG_STARTS, "the log start", known.log_start, "error"),
            (ck.HIGH_WATERMARKS, "the high watermark", known.high_watermark, soft),
            (ck.CLEANER_POINTS, "the cleaner's point", known.cleaner_point, soft),
        ):
            if offset is not None and not 0 <= offset <= end:
                problem = f"{what} of {self.directory.rpartition('/')[2]} is outside the log"
                found, expected = f"offset {offset}", f"at most {end}, the log's end"
                yield Finding(severity, f"{logs}/{name}", None, problem, found, expected)  # type: ignore[arg-type]
        if known.clean and known.recovery_point is not None and known.recovery_point < end:
            yield Finding(
                "error",
                f"{logs}/{ck.RECOVERY_POINTS}",
                None,
                f"after a clean stop the recovery point of {self.directory.rpartition('/')[2]} is not the log's end",
                f"offset {known.recovery_point}",
                f"{end}, by the last batch",
            )
        for offset in self.snapshots:
            severity = "error" if self.is_durable(offset - 1) else "note"
            path = self.path_of(offset, names.SNAPSHOT)
            found, expected = f"offset {offset}", f"at most {end}"
            yield Finding(severity, path, None, "the snapshot's offset is past the log end", found, expected)  # type: ignore[arg-type]
        if known.our_point is not None and known.our_point.offset == known.recovery_point:
            yield from self._check_our_point(known.our_point, bases, end)

    def _check_our_point(self, point: RecoveryPoint, bases: list[Offset], end: Offset) -> Iterator[Finding]:
        """Check that the position of the recovery point in `checkpoint.json` is the start of a batch or the end of the
        file."""
        if point.segment not in bases:
            return  # compacted or deleted since: recovery searches for the offset
        path = self.path_of(point.segment, names.LOG)
        file = self.vfs.open(path)
        try:
            size = file.size()
            header = file.pread(HEADER_BYTES, max(point.position, 0))
        finally:
            file.close()
        problem = f"the recovery point {point.offset} is not at its position in checkpoint.json"
        if not 0 <= point.position <= size:
            yield Finding(
                "error", path, size, problem, f"position {point.position}", f"at most {size}, the file's size"
            )
        elif len(header) == HEADER_BYTES and point.offset <= end:
            found = int.from_bytes(header[:8], "big", signed=True)
            if found < point.offset:
                yield Finding(
                    "error", path, point.position, problem, f"offset {found}", f"{point.offset} or more"
                )


def _agree(found: Producer, expected: Producer) -> bool:
    """Whether a snapshot's entry matches the replay. Snapshots have only the last batch."""
    same_epoch = found.coordinator_epoch in (-1, expected.coordinator_epoch)
    return (
        same_epoch
        and found.epoch == expected.epoch
        and found.last_sequence == expected.last_sequence
        and found.last_offset == expected.last_offset
        and found.txn_first_offset == expected.txn_first_offset
    )


def _show_producer(producer: Producer) -> str:
    begun = "" if producer.txn_first_offset is None else f", a transaction from {producer.txn_first_offset}"
    return (
        f"epoch {producer.epoch}, last sequence {producer.last_sequence} at offset {producer.last_offset}, "
        f"coordinator epoch {producer.coordinator_epoch}{begun}"
    )


def check_batches_file(vfs: Vfs, path: str) -> Iterator[Finding]:
    """Check a file of record batches that is not part of a log."""
    file = vfs.open(path)
    try:
        for piece in read_through(file, 0, file.size()):
            if not piece.is_sound:
                yield _damage(path, piece)
    finally:
        file.close()


def _damage(path: str, piece: SegmentPiece) -> Finding:
    return Finding("error", path, piece.position, piece.problem, piece.found, piece.expected)
