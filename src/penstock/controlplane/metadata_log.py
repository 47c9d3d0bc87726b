"""The metadata log on disk, `__cluster_metadata-0`: a `storage.Log` with its snapshots, as the Raft core sees them.

    snapshot 300          snapshot 900
    |                     |
    |---- segments -------|------ segments ----|----- active -----|
    log start                                                     log end

Voter sets and `kraft.version` are kept in memory, out of the control records of snapshot and log: the core asks often.
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
from penstock.metadata import EMPTY, AnyRecord, ClusterImage
from penstock.metadata.records import NoOpRecord
from penstock.raft.log import OffsetAndEpoch, VotersEntry
from penstock.raft.messages import LogSlice
from penstock.raft.ready import Append
from penstock.records import iter_batches
from penstock.storage.deletion import remove_segment_files
from penstock.storage.errors import StorageError
from penstock.storage.log import Log
from penstock.storage.segment import Segment

READ_BYTES = 1 << 20
"""How much of the log is read at a time."""

NAMING_BATCHES_MAX = 16
"""How far to look for the cluster's id: the first leader writes it behind its LeaderChange, and leaders that failed
before may have left such a record each."""


class CommittedBatch(NamedTuple):
    records: tuple[AnyRecord, ...]
    """Of the state machine; empty for a control batch."""
    last_offset: Offset
    epoch: LeaderEpoch
    timestamp: TimestampMs
    size: int


class MetadataLog:
    """Made by `metadata_opening`. Implements the core's `LogView`."""

    def __init__(self, log: Log, snapshots: SnapshotFiles, history: QuorumHistory) -> None:
        self.log = log
        self.snapshots = snapshots
        self._history = history

    # What the core asks.

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

    # What the driver does.

    def append(self, appends: Sequence[Append], now_ms: TimestampMs) -> None:
        """Write a leader's batches, all with one call."""
        for append in appends:
            self.log.stage_replicated(entry_batch(append), now_ms=now_ms)
        self.log.write_staged()
        for append in appends:
            fact = entry_change(append)
            if fact is not None:
                self._history.add(fact)

    def append_fetched(self, base_offset: Offset, data: bytes, now_ms: TimestampMs) -> None:
        """Write batches as a leader sent them; `KafkaError`, but not `StorageError`, if they are not sound."""
        facts: list[QuorumChange] = []
        expected = base_offset
        for batch in iter_batches(data):
            if batch.base_offset != expected:
                raise KafkaError(
                    f"a fetched batch begins at {batch.base_offset}, expected {expected}",
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
        """Let the log begin and end where a snapshot does, which is on disk; the snapshot's image."""
        reader = self.snapshots.reader(snapshot_id)
        image = load_image(reader, snapshot_id)
        self.log.restart_at(snapshot_id.offset, now_ms)
        self.snapshots.disown_before(snapshot_id)
        self.snapshots.remove_before(snapshot_id)
        self._history = QuorumHistory()
        self._history.add_header(snapshot_id.offset, reader.kraft_version, reader.voters)
        return image

    def committed(self, start: Offset, end: Offset) -> Iterator[CommittedBatch]:
        """The batches from start on that end below an offset."""
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
        """The cluster that the first batches name; empty if they name none, or the log begins later."""
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
        """An image as a snapshot's batches. They are made when they are asked for, on any thread."""
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
        """The snapshot that all older ones, and the log before it, may go for: Kafka's `metadata.max.retention.*`.

        The latest always stays. What the segments before a snapshot would free is counted as gone with it.
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
        """Each sealed segment and where it ends."""
        segments = self.log.segments
        return [(segment, segments.end_of(place)) for place, segment in enumerate(segments[:-1])]

    def forget_before(self, snapshot_id: OffsetAndEpoch) -> Callable[[], None]:
        """Let the log start at a snapshot. What this returns removes the files, on any thread."""
        log = self.log
        log.advance_start(snapshot_id.offset)
        leaving = [segment for segment, end in self._sealed() if end <= snapshot_id.offset]
        log.detach(leaving)
        self.snapshots.disown_before(snapshot_id)

        def remove() -> None:
            # One after the other, each name synced: a power cut must not leave a hole between segments.
            for segment in leaving:
                remove_segment_files(log.vfs, log.directory, segment.base_offset)
                log.vfs.sync_dir(log.directory)
            self.snapshots.remove_before(snapshot_id)

        return remove


def load_image(reader: SnapshotReader, snapshot_id: OffsetAndEpoch) -> ClusterImage:
    """The image in a snapshot; `BadSnapshot` where it does not read, or makes no sense."""
    try:
        return EMPTY.replay(reader.records(), snapshot_id.offset - 1, snapshot_id.epoch)
    except BadSnapshot:
        raise
    except KafkaError as error:
        raise BadSnapshot(f"{reader.path}: {error}") from error
