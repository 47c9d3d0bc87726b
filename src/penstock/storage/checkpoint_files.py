"""Reads and writes the checkpoint files of a data directory.

Kafka's files have one offset per partition: recovery points, log starts, cleaner points, high watermarks. Our
`checkpoint.json` has in addition where each recovery point is in its segment, and which segments are below it.

Kafka's files win: they decide which partitions have a recovery point, and of two recovery points the lower one counts,
because a broker that lowers one has dropped records.
"""

import logging
from collections.abc import Collection, Mapping
from types import MappingProxyType

from penstock.base.ids import Offset, TopicPartition
from penstock.records.checksum import crc32c
from penstock.storage import checkpoints as ck
from penstock.storage.checkpoints import Checkpoint, Extent, RecoveryPoint
from penstock.storage.errors import BadCheckpoint, StorageError
from penstock.storage.layout import Layout
from penstock.storage.log import Log
from penstock.vfs import Draft, Vfs, read_file, replace_file

logger = logging.getLogger(__name__)


class CheckpointFiles:
    """The offsets of all partitions, and the files that have them. Implements `Points` for logs."""

    def __init__(self, vfs: Vfs, layout: Layout, logs: dict[TopicPartition, Log]) -> None:
        self._vfs = vfs
        self._layout = layout
        self._logs = logs
        """The directory's logs, by partition; the directory changes it."""
        self.recovery_points: dict[TopicPartition, RecoveryPoint] = {}
        self.log_starts: dict[TopicPartition, Offset] = {}
        self.cleaner_points: dict[TopicPartition, Offset] = {}
        self.high_watermarks: dict[TopicPartition, Offset] = {}
        """Set by the replica manager, saved with each checkpoint."""
        self._kafka_file = 0
        """CRC-32C of Kafka's recovery point file, as last read or written."""
        self._kafka_file_next = 0
        """The same for the draft that is not installed yet."""
        self._drafts: dict[str, Draft] = {}
        """Files that are written but not renamed into place yet, by path."""

    def note(self, log: Log) -> None:
        """Note the offsets of a log that was created or opened; nothing is written."""
        self.recovery_points[log.partition] = log.recovery_point
        self.log_starts[log.partition] = log.log_start

    def forget(self, partition: TopicPartition) -> None:
        """Drop the offsets of a partition; nothing is written."""
        for offsets in (self.recovery_points, self.log_starts, self.cleaner_points, self.high_watermarks):
            offsets.pop(partition, None)

    # -- reading ---------------------------------------------------------------------------------------

    def read_offsets(self, name: str) -> dict[TopicPartition, Offset] | None:
        """Read one of Kafka's checkpoint files; None if it is missing or damaged."""
        path = f"{self._layout.logs}/{name}"
        try:
            return ck.decode_offsets(read_file(self._vfs, path), path)
        except FileNotFoundError:
            return None
        except BadCheckpoint as error:
            logger.warning("%s; it is rebuilt", error)
            return None

    def read_checkpoint(self) -> Checkpoint:
        """Read `checkpoint.json`; empty if it is missing or damaged."""
        path = f"{self._layout.meta}/{ck.CHECKPOINT}"
        try:
            return Checkpoint.decode(read_file(self._vfs, path), path)
        except FileNotFoundError:
            return Checkpoint()
        except BadCheckpoint as error:
            logger.warning("%s; it is rebuilt", error)
            return Checkpoint()

    def read_points(self, ours: Checkpoint) -> tuple[dict[TopicPartition, RecoveryPoint], bool]:
        """The recovery point of each partition, and whether Penstock was the last writer.

        It was if our checkpoint has the checksum of Kafka's file. A partition without a recovery point was created
        since the last checkpoint.
        """
        path = f"{self._layout.logs}/{ck.RECOVERY_POINTS}"
        if self._vfs.stat(path) is not None:
            self._kafka_file = crc32c(read_file(self._vfs, path))
        points = {}
        for partition, offset in (self.read_offsets(ck.RECOVERY_POINTS) or {}).items():
            point = ours.recovery_points.get(str(partition))
            points[partition] = (
                RecoveryPoint(offset, -1, 0) if point is None or offset < point.offset else point
            )
        return points, self._kafka_file in ours.kafka_files

    # -- writing ---------------------------------------------------------------------------------------

    def save_recovery_point(self, partition: TopicPartition, point: RecoveryPoint) -> None:
        self.recovery_points[partition] = point
        self.write_recovery_points(clean=False)

    def save_log_start(self, partition: TopicPartition, offset: Offset) -> None:
        self.save_log_starts({partition: offset})

    def save_log_starts(self, changed: dict[TopicPartition, Offset]) -> None:
        """Save new log starts with one write; `Log.advance_start` then finds its own saved."""
        if changed.items() <= self.log_starts.items():
            return
        log_starts = self.log_starts | changed
        self.write(ck.LOG_STARTS, ck.encode_offsets(log_starts))
        self.log_starts = log_starts

    def leave_out(self, partition: TopicPartition, segments: Collection[Offset]) -> None:
        """Remove segments that are about to be replaced from the checkpoint. A recovery point at the end of one of
        them becomes the start of the next one, here and in the log, whose next checkpoint would bring it back."""
        log = self._logs[partition]
        log.recovery_point = _beyond(log, log.recovery_point, segments)
        point = self.recovery_points.get(partition)
        if point is not None:
            self.recovery_points[partition] = _beyond(log, point, segments)
        self.write_recovery_points(clean=False, without={partition: segments})

    def save_clean_to(self, log: Log) -> None:
        """Save how far a log is compacted."""
        self.cleaner_points[log.partition] = log.clean_to
        self.write(ck.CLEANER_POINTS, ck.encode_offsets(self.cleaner_points))

    # The same without blocking: each draft is synced on any thread, installed here, and then its directory is synced
    # on any thread.

    def draft_recovery_points(self) -> list[Draft]:
        """Drafts of the recovery points of all logs, ours before Kafka's."""
        for partition, log in self._logs.items():
            self.recovery_points[partition] = log.recovery_point
        ours, kafkas = self._encode_recovery_points(clean=False)
        self._kafka_file_next = crc32c(kafkas)
        return [
            self._draft(f"{self._layout.meta}/{ck.CHECKPOINT}", ours),
            self._draft(f"{self._layout.logs}/{ck.RECOVERY_POINTS}", kafkas),
        ]

    def draft_high_watermarks(self) -> list[Draft]:
        data = ck.encode_offsets(self.high_watermarks)
        return [self._draft(f"{self._layout.logs}/{ck.HIGH_WATERMARKS}", data)]

    def draft_cleaner_points(self, log: Log) -> list[Draft]:
        """As `save_clean_to`."""
        self.cleaner_points[log.partition] = log.clean_to
        data = ck.encode_offsets(self.cleaner_points)
        return [self._draft(f"{self._layout.logs}/{ck.CLEANER_POINTS}", data)]

    def _draft(self, path: str, data: bytes) -> Draft:
        try:
            draft = Draft(self._vfs, path, data)
        except OSError as error:
            raise StorageError(f"cannot write {path}: {error.strerror or error}") from error
        self._drafts[path] = draft
        return draft

    def install(self, draft: Draft) -> bool:
        """Rename a synced draft into place; False if a newer version was written meanwhile."""
        if self._drafts.get(draft.path) is not draft:
            return False
        del self._drafts[draft.path]
        try:
            draft.install()
        except OSError as error:
            raise StorageError(f"cannot write {draft.path}: {error.strerror or error}") from error
        if draft.path.endswith(ck.RECOVERY_POINTS):
            self._kafka_file = self._kafka_file_next
        return True

    def write_offsets(self) -> None:
        self.write(ck.LOG_STARTS, ck.encode_offsets(self.log_starts))
        self.write(ck.CLEANER_POINTS, ck.encode_offsets(self.cleaner_points))
        self.write(ck.HIGH_WATERMARKS, ck.encode_offsets(self.high_watermarks))

    def write_recovery_points(
        self, *, clean: bool, without: Mapping[TopicPartition, Collection[Offset]] = MappingProxyType({})
    ) -> None:
        ours, kafkas = self._encode_recovery_points(clean=clean, without=without)
        # A draft in progress must not replace what is written here.
        self._drafts.pop(f"{self._layout.logs}/{ck.RECOVERY_POINTS}", None)
        self.replace(f"{self._layout.meta}/{ck.CHECKPOINT}", ours)
        self.write(ck.RECOVERY_POINTS, kafkas)
        self._kafka_file = crc32c(kafkas)

    def _encode_recovery_points(
        self, *, clean: bool, without: Mapping[TopicPartition, Collection[Offset]] = MappingProxyType({})
    ) -> tuple[bytes, bytes]:
        """Our file and Kafka's."""
        offsets = {partition: point.offset for partition, point in self.recovery_points.items()}
        data = ck.encode_offsets(offsets)
        checkpoint = Checkpoint(
            clean=clean,
            recovery_points={str(each): point for each, point in self.recovery_points.items()},
            log_starts={str(each): offset for each, offset in self.log_starts.items()},
            kafka_files=(self._kafka_file, crc32c(data)),
            txn_indexes={
                str(each): sums for each, log in self._logs.items() if (sums := log.segments.txn_sums)
            },
            segments={
                str(each): extents
                for each, log in self._logs.items()
                if each in self.recovery_points and (extents := self._extents(each, log, without))
            },
            holes={
                str(each): holes
                for each, log in self._logs.items()
                if (holes := log.segments.holes(log.log_start))
            },
        )
        return checkpoint.encode(), data

    def _extents(
        self, partition: TopicPartition, log: Log, without: Mapping[TopicPartition, Collection[Offset]]
    ) -> list[Extent]:
        """The segments below the saved recovery point, which may be older than the log's."""
        return log.segments.extents(self.recovery_points[partition], without.get(partition, ()))

    def write(self, name: str, data: bytes) -> None:
        self.replace(f"{self._layout.logs}/{name}", data)

    def replace(self, path: str, data: bytes) -> None:
        self._drafts.pop(path, None)
        try:
            replace_file(self._vfs, path, data)
        except OSError as error:
            raise StorageError(f"cannot write {path}: {error.strerror or error}") from error


def _beyond(log: Log, point: RecoveryPoint, segments: Collection[Offset]) -> RecoveryPoint:
    """A recovery point at the end of one of the segments, as the start of the next segment."""
    if point.segment in segments and any(each.base_offset == point.offset for each in log.segments):
        return RecoveryPoint(point.offset, point.offset, 0)
    return point
