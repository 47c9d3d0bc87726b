"""Periodic work: retention, compaction, checkpoints, expiry of idle producers.

    log.retention.check.interval.ms                  segments past the topic's retention are deleted
    file.delete.delay.ms                             their files are removed
    log.cleaner.backoff.ms                           compacted logs are checked; see `cleaning`
    log.flush.offset.checkpoint.interval.ms          logs are synced, and recovery points saved; see `checkpointing`
    replica.high.watermark.checkpoint.interval.ms    high watermarks are saved
    every ten minutes                                producers idle for `producer.id.expiration.ms` expire

An interval starts when the last run ends. Nothing here holds the loop for long: checkpoints are synced and files are
removed on threads, and logs are cleaned in a child process. Deletion markers are synced on the loop, SEGMENTS_PER_TICK
at a time, and work over thousands of logs is divided over many ticks. A failure is logged, and the
work is tried again at the next interval.
"""

import logging
from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING

from penstock.base.ids import Offset, TopicPartition
from penstock.base.metrics import Upkeep
from penstock.base.world import Timer, World
from penstock.metadata.configs import BrokerSettings, broker_setting
from penstock.metadata.image import ClusterImage
from penstock.replica.checkpointing import Checkpoints
from penstock.replica.cleaning import Cleaning
from penstock.storage import Log, LogDirectory, StorageError
from penstock.storage.deletion import Removal
from penstock.storage.directory import DirectoryRemoval
from penstock.storage.retention import delete_segments, expired, start_after

if TYPE_CHECKING:
    from penstock.replica.replicas import Replicas

logger = logging.getLogger(__name__)

Removable = Removal | DirectoryRemoval

PRODUCER_CHECK_INTERVAL_MS = 600_000
"""Kafka's default of `producer.id.expiration.check.interval.ms`."""

REMOVAL_RETRY_MS = 60_000
"""How long to wait after a failed removal: Kafka's default of `file.delete.delay.ms`."""

LOGS_PER_TICK = 200
"""Logs that are checked in one tick of the loop."""

SEGMENTS_PER_TICK = 4
"""Segments that are deleted in one tick: each has a marker that is synced on the loop."""


class Housekeeping:
    """Call `start` when the node serves, and `stop` before it stops. What still runs then is waited for by the lane,
    or harmless: the next start finishes removals and discards the unfinished output of cleaners."""

    def __init__(
        self,
        world: World,
        directory: LogDirectory,
        replicas: "Replicas",
        settings: BrokerSettings,
        image: Callable[[], ClusterImage],
        upkeep: Upkeep | None = None,
    ) -> None:
        """`upkeep` has the counters."""
        self._upkeep = Upkeep() if upkeep is None else upkeep
        self._world = world
        self._directory = directory
        self._replicas = replicas
        self._settings = settings
        self._image = image
        self._checkpoints = Checkpoints(directory, replicas.lane)
        self._cleaning = Cleaning(
            world,
            directory,
            self._checkpoints,
            self._cleanable,
            self._number,
            self._remove_later,
            self._upkeep,
            self._damage_found,
        )
        self._timers: dict[int, Timer] = {}
        self._timers_set = 0
        self._high_watermarks_saved: dict[TopicPartition, Offset] = {}
        self._is_stopped = False

    def start(self) -> None:
        self._every("log.retention.check.interval.ms", self._apply_retention)
        self._every("log.flush.offset.checkpoint.interval.ms", self._checkpoint)
        self._every("replica.high.watermark.checkpoint.interval.ms", self._save_high_watermarks)
        self._every(PRODUCER_CHECK_INTERVAL_MS, lambda done: self._in_slices(self._expire_producers(), done))
        if (broker_setting("log.cleaner.enable", self._image(), self._settings) or "").lower() == "true":
            self._cleaning.start()
        leftovers: deque[Removable] = deque(self._directory.leftovers)
        self._directory.leftovers = []
        self._remove_leftovers(leftovers)

    def stop(self) -> None:
        """Start nothing more."""
        self._is_stopped = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._cleaning.stop()
        self._checkpoints.stop()
        self._note_high_watermarks()

    # -- time ------------------------------------------------------------------------------------------

    def _number(self, name: str) -> int:
        """The current value of a broker setting."""
        return int(broker_setting(name, self._image(), self._settings) or 0)

    def _later(self, delay_ms: float, call: Callable[[], None]) -> None:
        if self._is_stopped:
            return

        self._timers_set += 1
        number = self._timers_set

        def due() -> None:
            del self._timers[number]
            call()

        self._timers[number] = self._world.call_later(delay_ms, due)

    def _every(self, interval: str | int, job: Callable[[Callable[[], None]], None]) -> None:
        """Run a job at an interval. It calls its argument when it is done."""

        def again() -> None:
            interval_ms = self._number(interval) if isinstance(interval, str) else interval
            self._later(max(interval_ms, 1), run)

        def run() -> None:
            try:
                job(again)
            except (StorageError, OSError) as error:
                logger.error("%s", error)
                again()

        again()

    def _in_slices(self, steps: Generator[None, None, None], done: Callable[[], None]) -> None:
        """Run steps to their end, each `yield` ending a tick of the loop."""
        if self._is_stopped:
            return
        try:
            next(steps)
        except StopIteration:
            done()
            return
        except (StorageError, OSError) as error:
            logger.error("%s", error)
            done()
            return
        self._world.call_soon(partial(self._in_slices, steps, done))

    def _high_watermark(self, name: TopicPartition) -> Offset | None:
        """None for a log that no replica uses: it is left alone."""
        partition = self._replicas.partitions.get(name)
        return None if partition is None else partition.high_watermark

    def _cleanable(self, name: TopicPartition) -> Offset | None:
        """The offset up to which a log may be compacted; None for a log that no replica uses."""
        log, high_watermark = self._directory.logs.get(name), self._high_watermark(name)
        if log is None or high_watermark is None or not log.settings.is_compacted:
            return high_watermark
        return self._directory.removable(log, min(high_watermark, log.segments.active.base_offset))

    def _damage_found(self, name: TopicPartition) -> None:
        partition = self._replicas.partitions.get(name)
        if partition is not None:
            partition.damage_found()

    # -- retention -------------------------------------------------------------------------------------

    def _apply_retention(self, done: Callable[[], None]) -> None:
        """Find segments past their retention, move recovery points past them, and delete them."""
        expired_names: list[TopicPartition] = []

        def delete() -> None:
            self._in_slices(self._delete_expired(expired_names), done)

        def found() -> None:
            self._checkpoints.run([name for name in expired_names if self._is_behind(name)], delete)

        self._in_slices(self._find_expired(expired_names), found)

    def _find_expired(self, expired_names: list[TopicPartition]) -> Generator[None, None, None]:
        for number, name in enumerate(list(self._directory.logs), 1):
            log = self._directory.logs.get(name)
            if log is not None and self._expired(log):
                expired_names.append(name)
            if number % LOGS_PER_TICK == 0:
                yield

    def _expired(self, log: Log) -> int:
        """How many of the first segments may be deleted."""
        high_watermark = self._high_watermark(log.partition)
        if high_watermark is None:
            return 0
        try:
            count = len(expired(log, self._world.now_ms(), high_watermark))
            if count:
                removable = self._directory.removable(log, log.segments.end_of(count - 1))
                while count and log.segments.end_of(count - 1) > removable:
                    count -= 1
            return count
        except StorageError as error:
            logger.error("%s", error)
            return 0

    def _is_behind(self, name: TopicPartition) -> bool:
        """Whether deletion would have to move the recovery point first, on the loop."""
        log = self._directory.logs.get(name)
        if log is None:
            return False
        count = self._expired(log)
        return count > 0 and log.recovery_point.offset < log.segments.end_of(count - 1)

    def _delete_expired(self, names: list[TopicPartition]) -> Generator[None, None, None]:
        """Save the new log starts of all logs with one write, then delete their segments, a few in each tick."""
        starts = {}
        for name in names:
            log = self._directory.logs.get(name)
            if log is not None and (count := self._expired(log)):
                starts[name] = start_after(log, list(log.segments[:count]))
        self._directory.checkpoints.save_log_starts(starts)
        yield
        for name in starts:
            while self._delete_some(name):
                yield
            yield

    def _delete_some(self, name: TopicPartition) -> bool:
        """True if there is more to delete."""
        log = self._directory.logs.get(name)
        if log is None:
            return False
        count = self._expired(log)
        if not count:
            return False
        segments = list(log.segments[: min(count, SEGMENTS_PER_TICK)])
        try:
            removal = delete_segments(log, segments, self._world.now_ms())
        except StorageError as error:
            logger.error("%s", error)
            return False
        self._upkeep.segments_deleted += len(segments)
        logger.info(
            "the log start of %s is %d now: %d segments are deleted", name, log.log_start, len(segments)
        )
        if removal.paths:
            self._remove_later(removal, log.settings.file_delete_delay_ms)
        return count > len(segments)

    # -- removal of files ------------------------------------------------------------------------------

    def _remove_later(self, removal: Removable, delay_ms: float) -> None:
        self._later(delay_ms, lambda: self._remove(removal, lambda: None))

    def _remove(self, removal: Removable, then: Callable[[], None]) -> None:
        def done(_: None, error: Exception | None) -> None:
            if error is not None:
                logger.error("%s", error)
                self._remove_later(removal, REMOVAL_RETRY_MS)
            then()

        self._world.beside(removal.run, done)

    def _remove_leftovers(self, leftovers: deque[Removable]) -> None:
        """Remove the files of deleted partitions that the last run left, one partition after the other."""
        if leftovers and not self._is_stopped:
            self._remove(leftovers.popleft(), lambda: self._remove_leftovers(leftovers))

    # -- checkpoints -----------------------------------------------------------------------------------

    def _checkpoint(self, done: Callable[[], None]) -> None:
        due = [name for name, log in self._directory.logs.items() if not log.flusher.is_checkpointed()]
        self._checkpoints.run(due, done)

    def _note_high_watermarks(self) -> dict[TopicPartition, Offset]:
        """Copy the current high watermarks to the directory, for the next write of the checkpoint file."""
        logs = self._directory.logs
        marks = {
            name: offset
            for name, offset in self._directory.checkpoints.high_watermarks.items()
            if name in logs
        }
        for name, partition in self._replicas.partitions.items():
            if name in logs:
                marks[name] = partition.high_watermark
        self._directory.checkpoints.high_watermarks = marks
        return dict(marks)

    def _save_high_watermarks(self, done: Callable[[], None]) -> None:
        marks = self._note_high_watermarks()
        if marks == self._high_watermarks_saved:
            done()
            return

        def saved(is_saved: bool) -> None:
            if is_saved:
                self._high_watermarks_saved = marks
            done()

        self._checkpoints.save(self._directory.checkpoints.draft_high_watermarks, saved)

    # -- producers -------------------------------------------------------------------------------------

    def _expire_producers(self) -> Generator[None, None, None]:
        idle_ms_max = self._number("producer.id.expiration.ms")
        for number, log in enumerate(list(self._directory.logs.values()), 1):
            log.producers.expire(self._world.now_ms(), idle_ms_max)
            if number % LOGS_PER_TICK == 0:
                yield
