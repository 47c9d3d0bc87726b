"""Rewrites segments with only the latest record of each key (log compaction).

    before   A0 B1 | A2 C3 | B4 A5 B6=null |  active
    after    C3 A5 B6=null                 |  active      and later, without B6

The first pass reads the dirty part (everything since the last round) and maps each key to its latest offset
(`OffsetMap`). The second pass reads everything up to there and keeps a record if no later one has its key. Small
segments are merged.

Offsets never change, and a batch keeps its first and last offset, sequence and producer, however many of its records
are left, so consumers, producer state and replicas are not affected. Also kept, as in Kafka's cleaner (KIP-534 for the
delete horizon):

- a tombstone (null value), for `delete.retention.ms` after the round that first read it; the batch's delete horizon
has
  that time;
- a transaction marker, until its records are removed, and then as long as a tombstone;
- an empty batch, if it has the last sequence of an active producer, or the end of the cleaned range.

This module works on files alone and does not touch the log's state, so it can run in another process. `compaction`
plans a round and installs the result.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import md5
from typing import NamedTuple

from penstock.base.errors import KafkaError
from penstock.base.ids import Offset, ProducerId, TimestampMs
from penstock.records import (
    BatchBuilder,
    Codec,
    ControlType,
    Record,
    RecordBatch,
    compress,
    empty_batch,
    parse_control,
    seal,
)
from penstock.records.batch import CODEC_MASK, COUNT_AT, FLAGS_AT, HEADER_BYTES, MAX_TIMESTAMP_AT
from penstock.records.varint import decode_varint, decode_varlong
from penstock.storage import names
from penstock.storage.errors import CorruptLog
from penstock.storage.offset_map import DIGEST_BYTES, OffsetMap
from penstock.storage.open_files import OpenFiles
from penstock.storage.scan import RELATIVE_OFFSET_MAX, scan_batches
from penstock.storage.segment import Segment
from penstock.storage.txn_index import AbortedTxn
from penstock.vfs import Vfs

IO_BYTES = 1 << 20
"""Read and write in steps of this size."""


class SourceSegment(NamedTuple):
    base_offset: Offset
    end_offset: Offset
    size: int
    index_bytes: int


class ProducerEnd(NamedTuple):
    """The end of an active producer, which must be kept: its last record's batch, or the marker of its last epoch."""

    last_offset: Offset | None
    epoch: int


@dataclass(frozen=True)
class CleaningPlan:
    """Input of a round; can be sent to another process."""

    directory: str
    segments: tuple[SourceSegment, ...]
    """From the first segment up to `end`."""
    first_dirty: Offset
    end: Offset
    """First offset that may not be cleaned yet."""
    segment_bytes: int
    index_bytes_max: int
    interval_bytes: int
    delete_retention_ms: int
    memory_bytes: int
    now_ms: TimestampMs
    aborted: tuple[AbortedTxn, ...]
    producers: dict[ProducerId, ProducerEnd]
    generation: int = 0
    """Generation of the log when the round was planned: a truncation voids the result."""


class CleanedSegment(NamedTuple):
    """Synced `.cleaned` files of a segment, and the segments that it replaces."""

    base_offset: Offset
    size: int
    replaces: tuple[Offset, ...]


class Cleaned(NamedTuple):
    segments: tuple[CleanedSegment, ...]
    clean_to: Offset
    records_read: int
    records_kept: int
    bytes_read: int
    bytes_kept: int
    next_horizon_ms: TimestampMs | None
    """When the first of the kept tombstones or markers expires."""


def clean(vfs: Vfs, plan: CleaningPlan) -> Cleaned:
    """Run one round; leaves `.cleaned` files beside the old ones."""
    files = OpenFiles(vfs, open_max=16)
    try:
        latest = _map_keys(files, plan)
        return _Round(files, plan, latest).run()
    finally:
        files.close()


def _segment(files: OpenFiles, plan: CleaningPlan, old: SourceSegment) -> Segment:
    return Segment(files, plan.directory, old.base_offset, interval_bytes=plan.interval_bytes, size=old.size)


# -- first pass ---------------------------------------------------------------------------------------


def _map_keys(files: OpenFiles, plan: CleaningPlan) -> OffsetMap:
    """Map the keys of the dirty part to their latest offsets, as far as memory allows."""
    latest = OffsetMap(plan.memory_bytes - 4 * IO_BYTES)
    latest.mapped_to = plan.first_dirty
    transactions = _Transactions(entry for entry in plan.aborted if entry.last_offset >= plan.first_dirty)
    for old in plan.segments:
        if old.end_offset <= plan.first_dirty or not old.size:
            continue
        segment = _segment(files, plan, old)
        first = segment.find(plan.first_dirty)
        for position, batch in _sound_batches(segment, first.position if first else old.size):
            if batch.is_control:
                transactions.see_marker(batch)
            elif not transactions.see_data(batch):
                if not latest.has_room(batch.count):
                    return latest
                try:
                    data = _plain(batch)
                    latest.add(data, batch.count, batch.base_offset, plan.first_dirty)
                except (IndexError, KafkaError) as error:
                    raise CorruptLog(segment.ref.path, position, f"malformed records: {error}") from error
            latest.mapped_to = batch.next_offset
        latest.mapped_to = min(old.end_offset, plan.end)
    return latest


def _sound_batches(segment: Segment, start: int) -> Iterator[tuple[int, RecordBatch]]:
    """The batches of a segment from a position on. A damaged one ends the round with an error: a rewritten batch gets
    a valid checksum, which would hide the damage."""
    expected = segment.base_offset
    for position, batch in scan_batches(segment.file(), start, segment.size):
        if not batch.crc_valid():
            raise CorruptLog(segment.ref.path, position, "CRC mismatch")
        if batch.base_offset < expected:
            raise CorruptLog(
                segment.ref.path, position, f"offset {batch.base_offset}, expected {expected} or more"
            )
        yield position, batch
        expected = batch.next_offset


def _plain(batch: RecordBatch) -> bytes:
    """A batch's records, uncompressed."""
    return bytes(batch.decompressed() if batch.is_compressed else batch.payload)


# -- second pass --------------------------------------------------------------------------------------


class _Round:
    def __init__(self, files: OpenFiles, plan: CleaningPlan, latest: OffsetMap) -> None:
        self.files = files
        self.plan = plan
        self.latest = latest
        self.records_read = self.records_kept = self.bytes_read = self.bytes_kept = 0
        self.next_horizon_ms: TimestampMs | None = None

    def run(self) -> Cleaned:
        transactions = _Transactions(self.plan.aborted)
        cleaned: list[CleanedSegment] = []
        writer: _Writer | None = None
        for old in self.plan.segments:
            if old.base_offset >= self.latest.mapped_to:
                break
            if writer is None or not writer.has_room(old, self.plan):
                if writer is not None:
                    cleaned.append(writer.finish(transactions))
                writer = _Writer(self.files, self.plan, old.base_offset)
            self._clean_into(writer, old, transactions)
        if writer is not None:
            cleaned.append(writer.finish(transactions))
        return Cleaned(
            tuple(cleaned),
            self.latest.mapped_to,
            self.records_read,
            self.records_kept,
            self.bytes_read,
            self.bytes_kept,
            self.next_horizon_ms,
        )

    def _clean_into(self, writer: "_Writer", old: SourceSegment, transactions: "_Transactions") -> None:
        source = _segment(self.files, self.plan, old)
        for position, batch in _sound_batches(source, 0):
            self.bytes_read += batch.size
            kept = self._filter(source, position, batch, transactions)
            if kept is not None:
                writer.add(kept)
                self.bytes_kept += len(kept)
        writer.replaces.append(source)

    def _filter(
        self, source: Segment, position: int, batch: RecordBatch, transactions: "_Transactions"
    ) -> bytes | bytearray | memoryview | None:
        """The part of a batch to keep; None for nothing."""
        is_control = batch.is_control
        disposable = transactions.see_marker(batch) if is_control else transactions.see_data(batch)
        horizon = batch.delete_horizon_ms
        is_due = horizon is not None and horizon <= self.plan.now_ms
        self.records_read += max(batch.count, 0)
        if batch.base_offset >= self.latest.mapped_to:
            kept: _Kept | None = None if not batch.count else _WHOLE
        elif disposable and (not is_control or is_due):
            kept = None
        elif is_control:
            kept = _Kept(batch.count, None, disposable, 0) if batch.count else None
        else:
            try:
                kept = _keep(_plain(batch), batch, self.latest, drop_tombstones=is_due)
            except (IndexError, KafkaError) as error:
                raise CorruptLog(source.ref.path, position, f"malformed records: {error}") from error
        if kept is None:
            return self._empty(batch) if self._must_stay(batch) else None
        self.records_kept += kept.records or batch.count
        sets_horizon = kept.needs_horizon and horizon is None
        if sets_horizon:
            horizon = self.plan.now_ms + self.plan.delete_retention_ms
        if kept.needs_horizon and horizon is not None:
            self.next_horizon_ms = min(horizon, self.next_horizon_ms or horizon)
        if sets_horizon:
            return _rebuild(batch, kept, horizon)
        if kept.pieces is None:
            return bytes(batch.view)
        return _shorten(batch, kept)

    def _must_stay(self, batch: RecordBatch) -> bool:
        """Whether an empty batch is needed for a producer's state or for the end of the cleaned range."""
        last = self.plan.producers.get(batch.producer_id) if batch.has_producer_id else None
        if last is not None:
            if last.last_offset is not None:
                if batch.last_offset == last.last_offset:
                    return True
            elif batch.is_control and batch.producer_epoch == last.epoch:
                return True
        return batch.next_offset == self.plan.end

    @staticmethod
    def _empty(batch: RecordBatch) -> bytes:
        return empty_batch(
            batch.base_offset,
            batch.last_offset,
            timestamp=batch.max_timestamp,
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            base_sequence=batch.base_sequence,
            leader_epoch=batch.leader_epoch,
            transactional=batch.is_transactional,
            control=batch.is_control,
            timestamp_type_log_append=batch.log_append_time,
        )


class _Kept(NamedTuple):
    """Result of `_keep`."""

    records: int
    pieces: list[bytes] | None
    """Bytes of the kept records; None if all are kept."""
    needs_horizon: bool
    """It has a tombstone, or is a marker whose records are removed: it needs a delete horizon."""
    max_timestamp_delta: int


_WHOLE = _Kept(0, None, False, 0)


def _keep(  # noqa: C901, PLR0912, PLR0915  # a call for each varint would double the cost of cleaning
    data: bytes, batch: RecordBatch, latest: OffsetMap, *, drop_tombstones: bool
) -> _Kept | None:
    """Decide on each record of a batch. Varints of one byte are inlined, as in `OffsetMap.add`."""
    newest = latest.by_key.get
    mapped_to = latest.mapped_to
    base_offset = batch.base_offset
    pieces: list[bytes] = []
    position = run_start = kept = 0
    run_end = 0
    has_tombstone = False
    max_timestamp = -(1 << 63)
    for _ in range(batch.count):
        start = position
        size = data[position]
        if size < 0x80:
            position += 1
            end = position + (size >> 1)
        else:
            size, position = decode_varint(data, position)
            end = position + size
        if end <= position:
            raise IndexError("a record without a length")  # otherwise the loop would not end
        position += 1
        timestamp = data[position]
        if timestamp < 0x80:
            position += 1
            timestamp = (timestamp >> 1) ^ -(timestamp & 1)
        else:
            timestamp, position = decode_varlong(data, position)
        delta = data[position]
        if delta < 0x80:
            position += 1
            delta >>= 1
        else:
            delta, position = decode_varint(data, position)
        offset = base_offset + delta
        size = data[position]
        if size < 0x80:
            position += 1
            size = (size >> 1) ^ -(size & 1)
        else:
            size, position = decode_varint(data, position)
        if size < 0:
            stays = offset >= mapped_to  # no key: not kept in a compacted log
            is_tombstone = False
        else:
            key = data[position : position + size]
            position += size
            if size >= DIGEST_BYTES:
                key = md5(key, usedforsecurity=False).digest()
            is_tombstone = data[position] == 1  # the varint of -1
            stays = offset >= mapped_to or (
                newest(key, -1) <= offset and not (is_tombstone and drop_tombstones)
            )
        if stays:
            kept += 1
            if is_tombstone:
                has_tombstone = True
            if timestamp > max_timestamp:  # noqa: PLR1730  # a call to max costs more
                max_timestamp = timestamp
            if run_end != start:
                if run_end > run_start:
                    pieces.append(data[run_start:run_end])
                run_start = start
            run_end = end
        position = end
    if not kept:
        return None
    if run_end > run_start:
        pieces.append(data[run_start:run_end])
    return _Kept(kept, None if kept == batch.count else pieces, has_tombstone, max_timestamp)


def _shorten(batch: RecordBatch, kept: _Kept) -> bytearray:
    """The same batch with fewer records; offsets, sequences and base timestamp do not change."""
    assert kept.pieces is not None
    payload = b"".join(kept.pieces)
    if batch.is_compressed:
        payload = compress(Codec(batch.codec), payload)
    shortened = bytearray(batch.view[:HEADER_BYTES])
    shortened += payload
    shortened[COUNT_AT : COUNT_AT + 4] = kept.records.to_bytes(4, "big")
    if not batch.log_append_time:
        newest = batch.base_timestamp + kept.max_timestamp_delta
        shortened[MAX_TIMESTAMP_AT : MAX_TIMESTAMP_AT + 8] = newest.to_bytes(8, "big", signed=True)
    seal(shortened)
    return shortened


def _rebuild(batch: RecordBatch, kept: _Kept, horizon: TimestampMs | None) -> bytes:
    """The batch with a delete horizon, which replaces the base timestamp: every record is rewritten."""
    builder = BatchBuilder(
        batch.base_offset,
        codec=batch.codec,
        timestamp_type_log_append=batch.log_append_time,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        transactional=batch.is_transactional,
        control=batch.is_control,
        leader_epoch=batch.leader_epoch,
        delete_horizon_ms=horizon,
    )
    for record in _records_of(batch, kept):
        builder.append(record.key, record.value, record.timestamp, record.headers, offset=record.offset)
    return builder.build(last_offset=batch.last_offset)


def _records_of(batch: RecordBatch, kept: _Kept) -> Iterator[Record]:
    if kept.pieces is None:
        return batch.records()
    plain = bytearray(batch.view[:HEADER_BYTES])
    plain[FLAGS_AT] &= ~CODEC_MASK  # the pieces are not compressed
    plain += b"".join(kept.pieces)
    plain[COUNT_AT : COUNT_AT + 4] = kept.records.to_bytes(4, "big")
    seal(plain)
    return RecordBatch.parse(plain).records()


class _Writer:
    """Writes one `.cleaned` segment from the kept batches of consecutive segments, in large writes."""

    def __init__(self, files: OpenFiles, plan: CleaningPlan, base_offset: Offset) -> None:
        self._files = files
        self._segment = Segment(
            files, plan.directory, base_offset, interval_bytes=plan.interval_bytes, state=names.CLEANED
        )
        self._segment.create()
        self._pending: list[bytes | bytearray | memoryview] = []
        self._pending_bytes = 0
        self.replaces: list[Segment] = []

    def has_room(self, old: SourceSegment, plan: CleaningPlan) -> bool:
        """Whether a whole segment still fits."""
        segment = self._segment
        return (
            segment.size + self._pending_bytes + old.size <= plan.segment_bytes
            and segment.index.size_bytes() + old.index_bytes <= plan.index_bytes_max
            and segment.time_index.size_bytes() + old.index_bytes <= plan.index_bytes_max
            and old.end_offset - 1 - segment.base_offset <= RELATIVE_OFFSET_MAX
        )

    def add(self, data: bytes | bytearray | memoryview) -> None:
        batch = RecordBatch.parse(data)
        self._segment.note(self._segment.size + self._pending_bytes, batch.last_offset, batch.max_timestamp)
        self._pending.append(data)
        self._pending_bytes += batch.size
        if self._pending_bytes >= IO_BYTES:
            self._write()

    def _write(self) -> None:
        if self._pending:
            self._segment.file().pwrite(self._pending, self._segment.size)
            self._segment.size += self._pending_bytes
            self._pending, self._pending_bytes = [], 0

    def finish(self, transactions: "_Transactions") -> CleanedSegment:
        """Write and sync everything; the file gets the modification time of the last one that it replaces."""
        self._write()
        segment = self._segment
        segment.txn_index.start(transactions.take_kept())
        segment.seal()
        for ref in segment.refs.values():
            self._files.open(ref).sync()
        youngest = self._files.vfs.stat(self.replaces[-1].ref.path)
        if youngest is not None:
            self._files.vfs.set_modified_ms(segment.ref.path, youngest.modified_ms)
        return CleanedSegment(
            segment.base_offset, segment.size, tuple(old.base_offset for old in self.replaces)
        )


class _Transactions:
    """Tracks which batches belong to aborted transactions, and which markers have no records left."""

    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        self._ahead = sorted(aborted, key=lambda entry: entry.first_offset, reverse=True)
        self._open_aborted: dict[ProducerId, list[AbortedTxn | bool]] = {}
        """Aborted transactions that are open at the current offset, and whether a batch of them was read."""
        self._open_committed: set[ProducerId] = set()
        self._kept: list[AbortedTxn] = []

    def take_kept(self) -> list[AbortedTxn]:
        """Aborted transactions whose records were read since the last call, for the new transaction index."""
        kept, self._kept = self._kept, []
        return kept

    def _advance(self, offset: Offset) -> None:
        while self._ahead and self._ahead[-1].first_offset <= offset:
            entry = self._ahead.pop()
            self._open_aborted.setdefault(entry.producer_id, [entry, False])

    def see_data(self, batch: RecordBatch) -> bool:
        """Track a data batch; True if it was aborted and can be removed."""
        self._advance(batch.last_offset)
        if not batch.is_transactional:
            return False
        entry = self._open_aborted.get(batch.producer_id)
        if (
            entry is not None
            and isinstance(entry[0], AbortedTxn)
            and entry[0].last_offset < batch.base_offset
        ):
            # It ends at a hole, not at a marker: later batches belong to another transaction.
            del self._open_aborted[batch.producer_id]
            if entry[1]:
                self._kept.append(entry[0])
            entry = None
        if entry is None:
            self._open_committed.add(batch.producer_id)
            return False
        entry[1] = True
        return True

    def see_marker(self, batch: RecordBatch) -> bool:
        """Track a marker; True if no record of its transaction was read, so that it can be removed."""
        self._advance(batch.last_offset)
        for record in batch.records():
            kind = parse_control(record).type
            if kind is ControlType.ABORT:
                entry = self._open_aborted.pop(batch.producer_id, None)
                if entry is not None and entry[1]:
                    assert isinstance(entry[0], AbortedTxn)
                    self._kept.append(entry[0])
                    return False
                return True
            if kind is ControlType.COMMIT:
                met = batch.producer_id in self._open_committed
                self._open_committed.discard(batch.producer_id)
                return not met
            return False
        return True  # emptied in an earlier round
