"""A data directory: all partitions of a node, their checkpoints and the lock. `layout` has the paths.

Kafka's clean-shutdown file decides whether the stop was clean. After a kill the logs are recovered as after any
unclean stop, but the boot marker may prove that nothing was lost (`boot_marker`).
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from penstock.base.ids import Offset, TimestampMs, TopicPartition, Uuid, random_uuid, uuid_text
from penstock.base.internal_topics import METADATA_TOPIC
from penstock.base.settings import LogSettings
from penstock.storage import checkpoints as ck
from penstock.storage import names
from penstock.storage.boot_marker import BootMarker, PreviousRun
from penstock.storage.checkpoint_files import CheckpointFiles
from penstock.storage.checkpoints import MetaProperties, RecoveryPoint
from penstock.storage.errors import DirectoryRefused, StorageError
from penstock.storage.identity import identify_directory, join_cluster
from penstock.storage.layout import Layout, layout_of
from penstock.storage.log import Log
from penstock.storage.open_files import OPEN_FILES_MAX, OpenFiles
from penstock.storage.opening import Report
from penstock.storage.recovery import create_log, open_log
from penstock.storage.strays import Note, Stray, find_strays, write_note
from penstock.vfs import Lock, Vfs, make_dirs_durably, read_file, remove_tree

if TYPE_CHECKING:
    from random import Random

logger = logging.getLogger(__name__)

NO_BROKER_EPOCH = -1

VANISHED_LOGGED_MAX = 5

STRAYS_CHECKED_MAX = 1000
"""Checked on each request, in some milliseconds."""


class DirectoryRemoval(NamedTuple):
    """Removes the directory of a deleted partition, which is renamed already."""

    vfs: Vfs
    path: str

    def run(self) -> None:
        try:
            remove_tree(self.vfs, self.path)
        except OSError as error:
            raise StorageError(f"cannot remove {self.path}: {error.strerror or error}") from error


def _no_limit(_: Log, end: Offset) -> Offset:
    return end


class LogDirectory:
    """The open logs of a data directory. Made by `open_directory`."""

    def __init__(
        self,
        vfs: Vfs,
        layout: Layout,
        identity: MetaProperties,
        settings_of: "SettingsOf",
        open_files_max: int,
        boot_id: str | None = None,
    ) -> None:
        self.vfs = vfs
        self.layout = layout
        self.identity = identity
        self.files = OpenFiles(vfs, open_files_max)
        self._boot = BootMarker(vfs, layout.meta, boot_id)
        self.files.sync_failed = self._boot.doubt
        self.logs: dict[TopicPartition, Log] = {}
        self.checkpoints = CheckpointFiles(vfs, layout, self.logs)
        self.reports: dict[TopicPartition, Report] = {}
        """Reports of recovery, for the partitions that have one."""
        self.leftovers: list[DirectoryRemoval] = []
        """Deleted partitions whose files are not removed yet."""
        self.strays: dict[str, Stray] = {}
        """Partitions that no topic claims, by directory name."""
        self.broker_epoch = NO_BROKER_EPOCH
        """Epoch of the current registration. Saved at a clean stop, to prove it to the controller at the next
        start."""
        self.previous_run = PreviousRun()
        """The previous run, if it has lost no write: it stopped cleanly, or was killed and the machine did not
        restart. Otherwise empty."""
        self.removable: Callable[[Log, Offset], Offset] = _no_limit
        """Limits how far retention or compaction may remove records: gets the log and the intended end, returns the
        allowed one. Lower while something must be saved from the records first."""
        self._settings_of = settings_of
        self._has_stale_points = True
        """The checkpoint files may have entries of deleted partitions."""
        self._locks: list[Lock] = []

    def __repr__(self) -> str:
        return f"<LogDirectory {self.layout.logs} {len(self.logs)} partitions>"

    @property
    def previous_broker_epoch(self) -> int:
        return self.previous_run.broker_epoch

    def incarnation(self, rng: "Random") -> Uuid:
        """The incarnation id to register with: that of the previous run, if its registration was not confirmed."""
        drawn = random_uuid(rng)
        incarnation_id = (
            drawn if self.previous_run.incarnation_id is None else self.previous_run.incarnation_id
        )
        self._boot.write(self.previous_run._replace(incarnation_id=incarnation_id))
        return incarnation_id

    def registered(self, broker_epoch: int) -> None:
        """Note the epoch of a confirmed registration, which ends the previous run."""
        self.broker_epoch = broker_epoch
        self._boot.write(PreviousRun(broker_epoch))

    def join_cluster(self, cluster_id: str) -> None:
        """Save the cluster id in a new directory that has none."""
        self.identity = join_cluster(self.vfs, self.layout, self.identity, cluster_id)

    # -- partitions ------------------------------------------------------------------------------------

    def create(
        self,
        partition: TopicPartition,
        *,
        now_ms: TimestampMs,
        topic_id: bytes | None = None,
        sync: bool = True,
    ) -> Log:
        """Create an empty partition; durable when this returns or, without `sync`, after `sync_names`."""
        if partition in self.logs:
            raise StorageError(f"{partition} already exists in {self.layout.logs}")
        if self._has_stale_points:
            self._forget_deleted()
        try:
            log = create_log(
                partition,
                self.path_of(partition),
                self.files,
                self._settings_of(partition.topic),
                self.checkpoints,
                now_ms=now_ms,
                topic_id=topic_id,
            )
        except OSError as error:
            raise StorageError(f"cannot create {partition}: {error.strerror or error}") from error
        if sync:
            self.sync_names()
        self.logs[partition] = log
        self.checkpoints.note(log)
        return log

    def sync_names(self) -> None:
        """Make the directory entries of all partitions durable, which new ones need first."""
        try:
            self.vfs.sync_dir(self.layout.logs)
        except OSError as error:
            raise StorageError(f"cannot sync {self.layout.logs}: {error.strerror or error}") from error

    def delete(self, partition: TopicPartition, rng: "Random", *, sync: bool = True) -> DirectoryRemoval:
        """Delete a partition by renaming its directory; the returned removal deletes the files later. Durable when
        this returns or, without `sync`, after `sync_deleted`; the removal must not run before."""
        target = f"{self.layout.logs}/{names.deleted_partition_dir(partition, rng.randbytes(16).hex())}"
        self._take_out(partition, target, "delete", sync=sync)
        return DirectoryRemoval(self.vfs, target)

    def set_aside(
        self,
        partition: TopicPartition,
        rng: "Random",
        *,
        reason: str,
        now_ms: TimestampMs,
        sync: bool = True,
    ) -> Stray:
        """Turn a partition into a stray, which keeps all files (see `strays`). Durable as `delete` is."""
        log = self.logs[partition]
        epoch = log.epochs.latest
        note = Note(partition.topic, partition.partition, log.log_start, reason, now_ms, epoch)
        try:
            for segment in log.segments:
                if segment.base_offset >= log.recovery_point.segment:
                    file = self.vfs.open(segment.ref.path, write=True)
                    file.sync()
                    file.close()
            write_note(self.vfs, log.directory, note)
        except OSError as error:
            # The note is useful but not required: the records are kept in any case.
            logger.warning(
                "%s becomes a stray, but cannot be synced: %s", log.directory, error.strerror or error
            )
        target = f"{self.layout.logs}/{names.stray_partition_dir(partition, rng.randbytes(16).hex())}"
        self._take_out(partition, target, "set aside", sync=sync)
        stray = Stray(target, partition, log.topic_id, log.size_bytes, log.log_start, reason, now_ms, epoch)
        self.strays[stray.name] = stray
        return stray

    def _take_out(self, partition: TopicPartition, target: str, what: str, *, sync: bool) -> None:
        log = self.logs[partition]
        try:
            self.vfs.rename(log.directory, target)
            if sync:
                try:
                    self.vfs.sync_dir(self.layout.logs)
                except OSError:
                    self.vfs.rename(target, log.directory)
                    raise
        except OSError as error:
            raise StorageError(f"cannot {what} {log.directory}: {error.strerror or error}") from error
        del self.logs[partition]
        for segment in log.segments:
            segment.gone = True
        for segment in log.segments:
            segment.forget_files()
        self.checkpoints.forget(partition)
        self._has_stale_points = True
        if sync:
            self._try_to_forget_deleted()

    def strays_left(self) -> list[Stray]:
        """The strays that still exist: an operator may delete them at any time."""
        for stray in list(self.strays.values())[:STRAYS_CHECKED_MAX]:
            if self.vfs.stat(stray.path) is None:
                del self.strays[stray.name]
        return list(self.strays.values())

    def take_back(self, stray: Stray, *, now_ms: TimestampMs) -> Log:
        """Turn a stray into a partition again and open it; durable when this returns. The partition must not exist.
        All of it is scanned, since no checkpoint covers it."""
        partition = stray.partition
        assert partition not in self.logs, f"{partition} already exists in {self.layout.logs}"
        if self._has_stale_points:
            self._forget_deleted()
        path = self.path_of(partition)
        try:
            if self.vfs.stat(path) is not None:
                raise StorageError(f"cannot restore {stray.path}: {path} already exists")
            self.vfs.rename(stray.path, path)
            self.sync_names()
            log, report = open_log(
                partition,
                path,
                self.files,
                self._settings_of(partition.topic),
                self.checkpoints,
                now_ms=now_ms,
                clean=False,
                recovery_point=RecoveryPoint(0, 0, 0),
                log_start=stray.log_start,
            )
        except OSError as error:
            raise StorageError(f"cannot restore {stray.path}: {error.strerror or error}") from error
        self.strays.pop(stray.name, None)
        self.logs[partition] = log
        if report.notes:
            self.reports[partition] = report
        log.clean_to = log.log_start
        self.checkpoints.recovery_points[partition] = log.recovery_point
        self.checkpoints.save_log_start(partition, log.log_start)
        return log

    def sync_deleted(self) -> None:
        """Make deletions durable, all with one sync and one write of each checkpoint file."""
        self.sync_names()
        self._try_to_forget_deleted()

    def _try_to_forget_deleted(self) -> None:
        try:
            self._forget_deleted()
        except StorageError as error:
            logger.warning("%s; it is written before the next partition is created", error)

    def set_topic_id(self, partition: TopicPartition, topic_id: bytes) -> None:
        """Save the topic id of a partition, if it changed; durable when this returns."""
        log = self.logs[partition]
        if log.topic_id != topic_id:
            self.checkpoints.replace(
                f"{log.directory}/{names.PARTITION_METADATA}", ck.encode_partition_metadata(topic_id)
            )
            log.topic_id = topic_id

    def _forget_deleted(self) -> None:
        """Remove deleted partitions from all checkpoint files, or a new one of the same name would get their
        offsets."""
        self.checkpoints.write_recovery_points(clean=False)
        self.checkpoints.write_offsets()
        self._has_stale_points = False

    def path_of(self, partition: TopicPartition) -> str:
        return f"{self.layout.logs}/{names.partition_dir(partition)}"

    # -- checkpoints -----------------------------------------------------------------------------------

    def checkpoint(self) -> None:
        """Checkpoint all logs: recovery after a crash scans from here.

        A log that fails keeps its old recovery point; the others continue, and the first error is raised at the end.
        """
        failed = self._checkpoint_logs()
        self.checkpoints.write_recovery_points(clean=False)
        self.checkpoints.write_offsets()
        if failed is not None:
            raise failed

    def _checkpoint_logs(self, *, is_last: bool = False) -> StorageError | None:
        failed = None
        for partition, log in self.logs.items():
            try:
                log.checkpoint(is_last=is_last)
                self.checkpoints.recovery_points[partition] = log.recovery_point
            except StorageError as error:
                logger.error("%s", error)
                failed = failed or error
        return failed

    def close(self) -> None:
        """Stop cleanly: the next start trusts the files and scans nothing.

        Logs that already had their last checkpoint cost nothing here. With thousands of logs, call `Log.checkpoint` on
        several threads first.
        """
        try:
            failed = self._checkpoint_logs(is_last=True)
            self.checkpoints.write_offsets()
            self.checkpoints.write_recovery_points(clean=failed is None)
            if failed is not None:
                raise failed
            self.checkpoints.write(ck.CLEAN_SHUTDOWN, ck.encode_clean_shutdown(self.broker_epoch))
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close files and release locks without a checkpoint, as a crash would."""
        self.files.close()
        for lock in self._locks:
            lock.release()
        self._locks = []


SettingsOf = Callable[[str], LogSettings]


def open_directory(
    vfs: Vfs,
    path: str,
    *,
    now_ms: TimestampMs,
    rng: "Random",
    settings_of: SettingsOf = lambda _: LogSettings(),
    node_id: int = 1,
    cluster_id: str | None = None,
    open_files_max: int = OPEN_FILES_MAX,
    boot_id: str | None = None,
) -> LogDirectory:
    """Open a data directory and every partition in it; create it if it does not exist.

    A new directory gets the given node id and cluster id. `cluster_id=None` starts a new cluster; an empty one leaves
    it open until `LogDirectory.join_cluster`. `boot_id` is the machine's (`World.boot_id`); without one, every unclean
    stop may have lost data.
    """

    def identify(layout: Layout) -> MetaProperties:
        cluster = uuid_text(random_uuid(rng)) if cluster_id is None else cluster_id
        return identify_directory(vfs, layout, node_id, cluster, rng)

    try:
        return _open(vfs, layout_of(vfs, path), now_ms, settings_of, identify, open_files_max, boot_id)
    except OSError as error:
        raise DirectoryRefused(f"cannot open {path}: {error.strerror or error}") from error


def _open(
    vfs: Vfs,
    layout: Layout,
    now_ms: TimestampMs,
    settings_of: SettingsOf,
    identify: Callable[[Layout], MetaProperties],
    open_files_max: int,
    boot_id: str | None,
) -> LogDirectory:
    make_dirs_durably(vfs, layout.logs)
    make_dirs_durably(vfs, layout.meta)
    locks = _lock(vfs, layout)
    try:
        identity = identify(layout)
        directory = LogDirectory(vfs, layout, identity, settings_of, open_files_max, boot_id)
        directory._locks = locks
        _load(directory, now_ms)
    except BaseException:
        for lock in locks:
            lock.release()
        raise
    return directory


def _lock(vfs: Vfs, layout: Layout) -> list[Lock]:
    """Take our lock and Kafka's, so that no other process writes here."""
    locks: list[Lock] = []
    try:
        for path in (f"{layout.meta}/lock", f"{layout.logs}/.lock"):
            locks.append(vfs.lock(path))
    except OSError as error:
        for lock in locks:
            lock.release()
        if not isinstance(error, BlockingIOError):
            raise
        raise DirectoryRefused(
            f"{layout.logs} is in use by another process, which holds the lock {path}"
        ) from error
    return locks


def _read_broker_epoch(directory: LogDirectory) -> int:
    return ck.decode_clean_shutdown(read_file(directory.vfs, f"{directory.layout.logs}/{ck.CLEAN_SHUTDOWN}"))


def _load(directory: LogDirectory, now_ms: TimestampMs) -> None:
    vfs, layout = directory.vfs, directory.layout
    clean = vfs.stat(f"{layout.logs}/{ck.CLEAN_SHUTDOWN}") is not None
    checkpoints = directory.checkpoints
    ours = checkpoints.read_checkpoint()
    points, is_ours = checkpoints.read_points(ours)
    former = directory._boot.read()
    was_killed = former != PreviousRun()
    if clean:
        epoch = _read_broker_epoch(directory)
        if epoch != NO_BROKER_EPOCH:  # otherwise it stopped before it was registered
            former = PreviousRun(epoch)
        # Keep this even if the broker is killed before its next registration.
        directory._boot.write(former)
        # From here on every stop is unclean, until the next clean one.
        vfs.remove(f"{layout.logs}/{ck.CLEAN_SHUTDOWN}")
    # Also after a crash: the directory entry of a new partition may be in the page cache only.
    vfs.sync_dir(layout.logs)
    log_starts = checkpoints.read_offsets(ck.LOG_STARTS)
    cleaner_points = checkpoints.read_offsets(ck.CLEANER_POINTS) or {}
    checkpoints.high_watermarks = checkpoints.read_offsets(ck.HIGH_WATERMARKS) or {}
    for entry in vfs.list_dir(layout.logs):
        if not entry.is_dir:
            continue
        path = f"{layout.logs}/{entry.name}"
        if names.is_deleted_partition_dir(entry.name):
            directory.leftovers.append(DirectoryRemoval(vfs, path))
            continue
        partition = names.parse_partition_dir(entry.name)
        if partition is None or partition.topic == METADATA_TOPIC:
            continue
        log, report = open_log(
            partition,
            path,
            directory.files,
            directory._settings_of(partition.topic),
            checkpoints,
            now_ms=now_ms,
            clean=clean,
            recovery_point=points.get(partition, RecoveryPoint(0, 0, 0)),
            is_our_point=is_ours,
            log_start=ours.log_starts.get(str(partition))
            if log_starts is None
            else log_starts.get(partition),
            txn_sums=ours.txn_indexes.get(str(partition)),
            extents=ours.segments.get(str(partition), ()),
            holes=ours.holes.get(str(partition), ()),
            is_all_there=was_killed,
        )
        directory.logs[partition] = log
        if report.notes or report.bytes_scanned:
            directory.reports[partition] = report
        log.clean_to = min(max(cleaner_points.get(partition, log.log_start), log.log_start), log.log_end)
        checkpoints.note(log)
        checkpoints.cleaner_points[partition] = log.clean_to
    directory.strays = {each.name: each for each in find_strays(vfs, layout.logs)}
    known = checkpoints.high_watermarks
    short = [each for each, log in directory.logs.items() if log.log_end < known.get(each, 0)]
    for partition in short:
        logger.warning(
            "%s ends at offset %d, below its high watermark %d: committed records are missing",
            directory.path_of(partition),
            directory.logs[partition].log_end,
            known[partition],
        )
    checkpoints.high_watermarks = {
        each: min(known[each], log.log_end) for each, log in directory.logs.items() if each in known
    }
    lowered = [
        each
        for each, log in directory.logs.items()
        if each in points and log.recovery_point.offset < points[each].offset
    ]
    vanished = _vanished(directory, points)
    has_lost = any(report.has_lost for report in directory.reports.values())
    if not (lowered or short or vanished or has_lost):
        directory.previous_run = former
    else:
        directory._boot.remove()
    lowered += _save_doubts(directory)
    if not is_ours:
        # Replace Kafka's points by ours. After our own crash they stay: syncing all recovered bytes would slow the
        # start down, and the next checkpoint does it.
        _note(directory.checkpoint)
    elif lowered:
        # Synced records are lost: after another crash, new ones must not count as synced at those offsets.
        _note(lambda: checkpoints.write_recovery_points(clean=False))


def _save_doubts(directory: LogDirectory) -> list[TopicPartition]:
    """Save transactions in doubt at new holes before the checkpoint lists the holes: otherwise the next start would
    take them for decided. Returns the partitions with new holes."""
    holed = [partition for partition, report in directory.reports.items() if report.holes]
    for partition in holed:
        log = directory.logs[partition]
        _note(log.flusher.save_doubts)
        directory.checkpoints.recovery_points[partition] = log.recovery_point
    return holed


def _vanished(directory: LogDirectory, points: dict[TopicPartition, RecoveryPoint]) -> list[TopicPartition]:
    """Partitions that had records and whose directories are missing, although nothing deleted them."""
    entries = directory.vfs.list_dir(directory.layout.logs)
    left = {names.parse_leaving_dir(entry.name) for entry in entries if entry.is_dir}
    found = [
        each
        for each, point in points.items()
        if point.offset > 0
        and each not in directory.logs
        and each not in left
        and each.topic != METADATA_TOPIC
    ]
    for each in found[:VANISHED_LOGGED_MAX]:
        logger.error(
            "%s is missing; the checkpoint has records in it up to offset %d. If this broker is still a replica, the "
            "partition is copied from the leader, or starts empty if there is no other replica",
            directory.path_of(each),
            points[each].offset,
        )
    return found


def _note(write: Callable[[], None]) -> None:
    try:
        write()
    except StorageError as error:
        logger.warning("%s; existing records can still be read", error)
