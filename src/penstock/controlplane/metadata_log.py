"""The metadata log on disk, `__cluster_metadata-0`: a `storage.Log` and its snapshots, as the Raft core's `LogView`.

    snapshot 300          snapshot 900
    |                     |
    |---- segments -------|------ segments ----|----- active -----|
    log start                                                     log end

Voter sets and `kraft.version` of the control records are kept in memory, because the core reads them often.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice, pairwise
from typing import NamedTuple

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import LeaderEpoch, Offset, TimestampMs
from penstock.controlplane.metadata_snapshots import (
    BadSnapshot,
    SnapshotFiles,
    SnapshotReader,
    encode_snapshot,
)
from penstock.controlplane.quorum_records import (
    QuorumChange,
    QuorumHistory,
    entry_batch,
    entry_change,
    quorum_changes_in,
    records_in,
)
from penstock.metadata.image import EMPTY, ClusterImage
from penstock.metadata.records import AnyRecord, NoOpRecord
from penstock.raft.log import OffsetAndEpoch, VotersEntry
from penstock.raft.messages import LogSlice
from penstock.raft.ready import Append
from penstock.records import iter_batches
from penstock.storage.deletion import remove_segment_files
from penstock.storage.errors import StorageError
from penstock.storage.log import Log
from penstock.storage.segment import Segment

READ_BYTES = 1 << 20
"""Bytes of the log per read."""

NAMING_BATCHES_MAX = 16
"""Batches to search for the cluster id: the first leader writes it after its LeaderChange record, and failed leaders
before it may have left one such record each."""


class CommittedBatch(NamedTuple):
    records: tuple[AnyRecord, ...]
    """Of the state machine; empty for a control batch."""
    last_offset: Offset
    epoch: LeaderEpoch
    timestamp: TimestampMs
    size: int


class MetadataLog:
    """Created by `metadata_opening`."""

    def __init__(self, log: Log, snapshots: SnapshotFiles, history: QuorumHistory) -> None:
        self.log = log
        self.snapshots = snapshots
        self._history = history

    # `LogView`, for the Raft core.

    @property
    def start_offset(self) -> Offset:
        return self.log.log_start

    @property
    def end_offset(self) -> Offset:
        return self.log.log_end

    @property
    def last_epoch(self) -> LeaderEpoch:
        if self.log.log_end > self.log.log_start:
            return self.log.epochs.latest
        latest = self.snapshots.latest
        return latest.epoch if latest is not None else 0

    def end_offset_for_epoch(self, epoch: LeaderEpoch) -> OffsetAndEpoch:
        end = self.end_offset
        for entry in reversed(self.log.epochs.entries):
            if entry.epoch <= epoch:
                return OffsetAndEpoch(end, entry.epoch)
            end = entry.offset
        start = self.start_offset
        for snapshot_id in self.snapshots.ids():
            if snapshot_id.offset == start and snapshot_id.epoch <= epoch:
                return OffsetAndEpoch(start, snapshot_id.epoch)
        return OffsetAndEpoch(start, epoch)

    def earliest_snapshot(self) -> OffsetAndEpoch | None:
        return self.snapshots.earliest

    def latest_snapshot(self) -> OffsetAndEpoch | None:
        return self.snapshots.latest

    def snapshot_bytes(self, snapshot_id: OffsetAndEpoch) -> int | None:
        return self.snapshots.size(snapshot_id)

    def voters_before(self, offset: Offset) -> VotersEntry | None:
        return self._history.voters_before(offset)

    def kraft_version_before(self, offset: Offset) -> int:
        return self._history.kraft_version_before(offset)

    # Writes, for the driver.

    def append(self, appends: Sequence[Append], now_ms: TimestampMs) -> None:
        """Append the batches of this leader with one write."""
        for append in appends:
            self.log.stage_replicated(entry_batch(append), now_ms=now_ms)
        self.log.write_staged()
        for append in appends:
            fact = entry_change(append)
            if fact is not None:
                self._history.add(fact)

    def append_fetched(self, base_offset: Offset, data: bytes, now_ms: TimestampMs) -> None:
        """Append batches as the leader sent them. Raises `KafkaError`, but not `StorageError`, if they are invalid."""
        facts: list[QuorumChange] = []
        expected = base_offset
        for batch in iter_batches(data):
            if batch.base_offset != expected:
                raise KafkaError(
                    f"a fetched batch has base offset {batch.base_offset}, expected {expected}",
                    ErrorCode.CORRUPT_MESSAGE,
                )
            batch.check_crc()
            expected = batch.next_offset
            if batch.is_control:
                facts += quorum_changes_in(batch)
        self.log.append_replicated(data, now_ms=now_ms)
        for fact in facts:
            self._history.add(fact)

    def truncate(self, offset: Offset) -> None:
        end = self.log.truncate(offset)
        self._history.truncate(end)

    def restart_at_snapshot(self, snapshot_id: OffsetAndEpoch, now_ms: TimestampMs) -> ClusterImage:
        """Restart the log at the end of a snapshot on disk; return the snapshot's image."""
        reader = self.snapshots.reader(snapshot_id)
        image = load_image(reader, snapshot_id)
        self.log.restart_at(snapshot_id.offset, now_ms)
        self.snapshots.disown_before(snapshot_id)
        self.snapshots.remove_before(snapshot_id)
        self._history = QuorumHistory()
        self._history.add_header(snapshot_id.offset, reader.kraft_version, reader.voters)
        return image

    def committed(self, start: Offset, end: Offset) -> Iterator[CommittedBatch]:
        """The batches in `[start, end)`."""
        while start < end:
            data = self.log.read(start, READ_BYTES, visible=end)
            if not data:
                raise StorageError(
                    f"{self.log.directory} has no batch at offset {start}, expected up to {end}"
                )
            for batch in iter_batches(data):
                batch.check_crc()
                records = () if batch.is_control else records_in(batch)
                yield CommittedBatch(
                    records, batch.last_offset, batch.leader_epoch, batch.max_timestamp, batch.size
                )
                start = batch.next_offset

    def first_cluster_id(self) -> str:
        """The cluster id in the first batches; empty if they have none or the log starts later."""
        if self.start_offset:
            return ""
        for batch in islice(self.committed(0, self.end_offset), NAMING_BATCHES_MAX):
            for record in batch.records:
                if isinstance(record, NoOpRecord) and record.cluster_id:
                    return record.cluster_id
        return ""

    def read(self, piece: LogSlice) -> bytes:
        return self.log.read(piece.start, piece.bytes_max, visible=piece.end)

    # Snapshots.

    def snapshot_batches(
        self, image: ClusterImage, *, timestamp: TimestampMs, now_ms: TimestampMs
    ) -> Iterator[bytes]:
        """The batches of a snapshot of an image, generated lazily; may be consumed on any thread."""
        end = image.offset + 1
        entry = self.voters_before(end)
        return encode_snapshot(
            image.records(),
            image.epoch,
            timestamp=timestamp,
            now_ms=now_ms,
            kraft_version=self.kraft_version_before(end),
            voters=entry.voters if entry is not None else None,
        )

    def retention_snapshot(
        self, retention_bytes: int, retention_ms: int, now_ms: TimestampMs
    ) -> OffsetAndEpoch | None:
        """The oldest snapshot to keep by `metadata.max.retention.*`; None if nothing is to be deleted.

        The latest snapshot is always kept. Segments before a snapshot are counted as deleted with the older ones.
        """
        ids = self.snapshots.ids()
        total = self.log.size_bytes + self.snapshots.size_bytes
        chosen = None
        for older, newer in pairwise(ids):
            is_large = 0 <= retention_bytes < total
            is_old = 0 <= retention_ms < now_ms - self.snapshots.timestamp(older)
            if not is_large and not is_old:
                break
            total -= self.snapshots.size(older) or 0
            total -= sum(each.size for each, end in self._sealed() if older.offset < end <= newer.offset)
            chosen = newer
        return chosen

    def _sealed(self) -> list[tuple[Segment, Offset]]:
        """Each sealed segment and its end offset."""
        segments = self.log.segments
        return [(segment, segments.end_of(place)) for place, segment in enumerate(segments[:-1])]

    def forget_before(self, snapshot_id: OffsetAndEpoch) -> Callable[[], None]:
        """Advance the log start to a snapshot. The returned function removes the files; it may run on any thread."""
        log = self.log
        log.advance_start(snapshot_id.offset)
        leaving = [segment for segment, end in self._sealed() if end <= snapshot_id.offset]
        log.detach(leaving)
        self.snapshots.disown_before(snapshot_id)

        def remove() -> None:
            # Sync each removal: a power failure must not leave a gap between segments.
            for segment in leaving:
                remove_segment_files(log.vfs, log.directory, segment.base_offset)
                log.vfs.sync_dir(log.directory)
            self.snapshots.remove_before(snapshot_id)

        return remove


def load_image(reader: SnapshotReader, snapshot_id: OffsetAndEpoch) -> ClusterImage:
    """The image in a snapshot. Raises `BadSnapshot` if it is damaged or inconsistent."""
    try:
        return EMPTY.replay(reader.records(), snapshot_id.offset - 1, snapshot_id.epoch)
    except BadSnapshot:
        raise
    except KafkaError as error:
        raise BadSnapshot(f"{reader.path}: {error}") from error
