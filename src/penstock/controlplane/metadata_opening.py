"""Opens the metadata log in `__cluster_metadata-0`, after a crash, of a Kafka directory, or new.

1. Load the latest snapshot that is complete. A damaged one is skipped, with a log line.
2. Scan the whole log, truncate a torn end, and sync the rest. Damage in the middle is an error, because committed
   records cannot be reconstructed.
3. A log that ends before the latest snapshot, or in an older epoch, restarts at the snapshot: a follower crashed
   between fetching the snapshot and truncating the log.

No file contains the log start. A log whose first segment starts at 0 starts there; otherwise it starts at the earliest
snapshot at or after its first segment. So a crash while old segments are removed, first to last, needs no repair, and
a log without its beginning is rejected.

A new directory can get its first voters here, as with `kafka-storage format --standalone`. The first records of a new
cluster (its features) are in `bootstrap.checkpoint` or, with later Kafka versions, in the first snapshot.
"""

import logging
from collections.abc import Collection
from typing import NamedTuple

from penstock.base.ids import Offset, TimestampMs, TopicPartition
from penstock.base.internal_topics import METADATA_TOPIC
from penstock.base.settings import LogSettings
from penstock.controlplane.metadata_log import MetadataLog, load_image
from penstock.controlplane.metadata_snapshots import (
    FORMATTED,
    BadSnapshot,
    SnapshotFiles,
    SnapshotReader,
    encode_snapshot,
)
from penstock.controlplane.quorum_records import QuorumHistory, quorum_changes_in
from penstock.controlplane.quorum_state_file import QUORUM_STATE
from penstock.metadata.image import EMPTY, ClusterImage
from penstock.metadata.records import AnyRecord
from penstock.raft.log import OffsetAndEpoch
from penstock.raft.voters import VoterSet
from penstock.storage import names
from penstock.storage.checkpoints import RecoveryPoint
from penstock.storage.errors import StorageError
from penstock.storage.log import Log
from penstock.storage.open_files import OpenFiles
from penstock.storage.recovery import create_log, open_log
from penstock.vfs import Vfs, join, make_dirs_durably

logger = logging.getLogger(__name__)

PARTITION = TopicPartition(METADATA_TOPIC, 0)
BOOTSTRAP = "bootstrap.checkpoint"


class _NoCheckpoints:
    """The metadata log has no checkpoints: every start scans all of it."""

    def save_recovery_point(self, partition: TopicPartition, point: RecoveryPoint) -> None: ...

    def save_log_start(self, partition: TopicPartition, offset: Offset) -> None: ...

    def leave_out(self, partition: TopicPartition, segments: Collection[Offset]) -> None: ...


class OpenedLog(NamedTuple):
    log: MetadataLog
    image: ClusterImage
    """Of the latest snapshot; empty without one."""
    bootstrap: tuple[AnyRecord, ...]
    """First records of a new cluster, as formatting chose them; may be empty."""


class MetadataLogOpener(NamedTuple):
    """Opens the log."""

    vfs: Vfs
    files: OpenFiles
    logs_path: str
    settings: LogSettings
    now_ms: TimestampMs

    @property
    def directory(self) -> str:
        return join(self.logs_path, names.partition_dir(PARTITION))

    def open(self, first_voters: VoterSet | None, synced_end: Offset = 0) -> OpenedLog:
        """Open the log. `first_voters` are written if the directory is new: no record, no snapshot, no vote. A torn
        end below `synced_end` is set aside instead of deleted."""
        try:
            return self._open(first_voters if not synced_end else None, synced_end)
        except OSError as error:
            raise StorageError(f"cannot open {self.directory}: {error.strerror or error}") from error

    def _open(self, first_voters: VoterSet | None, synced_end: Offset) -> OpenedLog:
        make_dirs_durably(self.vfs, self.directory)
        snapshots = SnapshotFiles(self.vfs, self.directory)
        snapshots.scan()
        first, size = self._segments()
        if first_voters is not None and not size and not len(snapshots) and not self._has_voted():
            # Creating the first segment syncs the directory.
            self._format(snapshots, first_voters, sync_names=first is not None)
        image, bootstrap = self._load_latest(snapshots, is_empty=not size)
        log = self._open_log(first, self._log_start(snapshots, first), synced_end)
        log.flush()
        metadata_log = MetadataLog(log, snapshots, self._history(log, snapshots))
        latest = snapshots.latest
        if latest is not None and (
            metadata_log.end_offset < latest.offset or metadata_log.last_epoch < latest.epoch
        ):
            logger.warning(
                "%s ends at %d in epoch %d, before its latest snapshot %s: restarting the log there",
                self.directory,
                metadata_log.end_offset,
                metadata_log.last_epoch,
                latest,
            )
            image = metadata_log.restart_at_snapshot(latest, self.now_ms)
        return OpenedLog(metadata_log, image, bootstrap or self._bootstrap_file())

    def _segments(self) -> tuple[Offset | None, int]:
        """Base offset of the first segment, and the size of all segments."""
        sizes = {}
        for entry in self.vfs.list_dir(self.directory):
            parsed = names.parse_segment_file(entry.name)
            if parsed is not None and parsed.kind == names.LOG and not parsed.state:
                sizes[parsed.base_offset] = entry.size
        return min(sizes, default=None), sum(sizes.values())

    def _has_voted(self) -> bool:
        return self.vfs.stat(join(self.directory, QUORUM_STATE)) is not None

    def _format(self, snapshots: SnapshotFiles, voters: VoterSet, *, sync_names: bool) -> None:
        batches = encode_snapshot(
            (), 0, timestamp=self.now_ms, now_ms=self.now_ms, kraft_version=1, voters=voters
        )
        snapshots.added(FORMATTED, snapshots.write(FORMATTED, batches, sync_names=sync_names))

    def _load_latest(
        self, snapshots: SnapshotFiles, *, is_empty: bool
    ) -> tuple[ClusterImage, tuple[AnyRecord, ...]]:
        for snapshot_id in reversed(snapshots.ids()):
            reader = snapshots.reader(snapshot_id)
            try:
                if snapshot_id == FORMATTED:
                    return EMPTY, tuple(reader.records())
                return load_image(reader, snapshot_id), ()
            except BadSnapshot as error:
                if snapshot_id == FORMATTED and is_empty:
                    raise  # no other file has the first voters
                self._skip(snapshots, snapshot_id, error)
        return EMPTY, ()

    def _skip(self, snapshots: SnapshotFiles, snapshot_id: OffsetAndEpoch, error: BadSnapshot) -> None:
        logger.warning("skipping a damaged snapshot: %s", error)
        snapshots.disown(snapshot_id)

    def _log_start(self, snapshots: SnapshotFiles, first: Offset | None) -> Offset:
        if first == 0:
            return 0
        if first is None:
            return snapshots.latest.offset if snapshots.latest is not None else 0
        for snapshot_id in snapshots.ids():
            if snapshot_id.offset < first:
                snapshots.disown(snapshot_id)
                continue
            try:
                snapshots.reader(snapshot_id).skim()
                return snapshot_id.offset
            except BadSnapshot as error:
                self._skip(snapshots, snapshot_id, error)
        raise StorageError(
            f"{self.directory} starts at offset {first}, and no readable snapshot covers the records before it: "
            f"expected one at offset {first} or later"
        )

    def _open_log(self, first: Offset | None, log_start: Offset, synced_end: Offset) -> Log:
        points = _NoCheckpoints()
        if first is None and log_start == 0:
            return create_log(
                PARTITION, self.directory, self.files, self.settings, points, now_ms=self.now_ms
            )
        base = log_start if first is None else first
        log, report = open_log(
            PARTITION,
            self.directory,
            self.files,
            self.settings,
            points,
            now_ms=self.now_ms,
            clean=False,
            recovery_point=RecoveryPoint(base, base, 0),
            log_start=log_start,
            known_end=synced_end,
        )
        if report.damage:
            raise StorageError(
                f"{report.damage[0]}: committed metadata is damaged; restore {self.directory} from a copy, or, if all"
                " other controllers are up, remove it: it is then fetched from them"
            )
        return log

    def _history(self, log: Log, snapshots: SnapshotFiles) -> QuorumHistory:
        """Voter sets by offset, from the snapshot at the log start and from the log."""
        history = QuorumHistory()
        below: list[OffsetAndEpoch] = [each for each in snapshots.ids() if each.offset <= log.log_start]
        if below:
            reader = snapshots.reader(below[-1])
            try:
                reader.skim()
                history.add_header(below[-1].offset, reader.kraft_version, reader.voters)
            except BadSnapshot as error:
                if log.log_start > 0 or log.log_end == 0:
                    raise
                # The first leader copied its voters to the log.
                self._skip(snapshots, below[-1], error)
        for batch in log.batches():
            if batch.is_control:
                for fact in quorum_changes_in(batch):
                    history.add(fact)
        return history

    def _bootstrap_file(self) -> tuple[AnyRecord, ...]:
        path = join(self.logs_path, BOOTSTRAP)
        if self.vfs.stat(path) is None:
            return ()
        return tuple(SnapshotReader(self.vfs, path).records())
