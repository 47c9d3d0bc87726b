"""What the clock brings: retention, compaction, checkpoints, forgetting idle producers.

    log.retention.check.interval.ms                  segments that have outlived their topic's settings leave the log
    file.delete.delay.ms                             later their files are removed
    log.cleaner.backoff.ms                           compacted logs are looked at; see `cleaning`
    log.flush.offset.checkpoint.interval.ms          everything is synced, and how far is noted; see `checkpointing`
    replica.high.watermark.checkpoint.interval.ms    high watermarks are noted
    every ten minutes                                producers idle for `producer.id.expiration.ms` are forgotten

The next time is counted from the end of the last. Nothing here keeps the loop for long: syncs and removals run
beside it, cleaning in a child process, and where thousands of logs are looked at, others get their turn in between.
What fails is logged, and tried again the next time.
"""

import logging
from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from typing import Protocol

from penstock.base.ids import Offset, TopicPartition
from penstock.base.metrics import Upkeep
from penstock.base.world import Timer, World
from penstock.metadata import BrokerSettings, ClusterImage
from penstock.metadata.configs import broker_setting
from penstock.replica.checkpointing import Checkpoints
from penstock.replica.cleaning import Cleaning
from penstock.replica.partition import Partition, SyncLane
from penstock.storage import Log, LogDirectory, StorageError
from penstock.storage.retention import delete_segments, expired, start_after

logger = logging.getLogger(__name__)

PRODUCER_CHECK_INTERVAL_MS = 600_000
"""Kafka's `producer.id.expiration.check.interval.ms`, which nobody sets."""

REMOVAL_RETRY_MS = 60_000
"""When files could not be removed: as long as Kafka's default for waiting with it."""

LOGS_A_TURN = 200
"""Logs that are looked at before others get their turn."""

SEGMENTS_A_TURN = 4
"""Segments that leave a log before others get their turn: each has a marker that is synced here."""


class Removable(Protocol):
    def run(self) -> None: ...


class Held(Protocol):
    """The node's replicas, as far as they matter here."""

    partitions: dict[TopicPartition, Partition]
    lane: SyncLane


class Housekeeping:
    """`start` it when the node serves, `stop` it before the node stops. What then still runs beside is the lane's, or
    harmless: the next start finishes removals and throws away what a cleaner has begun."""

    def __init__(
        self,
        world: World,
        directory: LogDirectory,
        replicas: Held,
        settings: BrokerSettings,
        image: Callable[[], ClusterImage],
        upkeep: Upkeep | None = None,
    ) -> None:
        """`upkeep` counts what is done."""
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
        self._every("log.retention.check.interval.ms", self._retain)
        self._every("log.flush.offset.checkpoint.interval.ms", self._checkpoint)
        self._every("replica.high.watermark.checkpoint.interval.ms", self._save_high_watermarks)
        self._every(PRODUCER_CHECK_INTERVAL_MS, lambda done: self._in_turns(self._expire_producers(), done))
        if (broker_setting("log.cleaner.enable", self._image(), self._settings) or "").lower() == "true":
            self._cleaning.start()
        leftovers: deque[Removable] = deque(self._directory.leftovers)
        self._directory.leftovers = []
        self._remove_leftovers(leftovers)

    def stop(self) -> None:
        """Begin nothing more."""
        self._is_stopped = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._cleaning.stop()
        self._checkpoints.stop()
        self._note_high_watermarks()

    # -- time ------------------------------------------------------------------------------------------

    def _number(self, name: str) -> int:
        """A setting of the broker, as it is in force now."""
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
        """Do a job, again and again; it says when it is done."""

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

    def _in_turns(self, steps: Generator[None, None, None], done: Callable[[], None]) -> None:
        """Run steps to their end; at each `yield` everybody else comes first."""
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
        self._world.call_soon(partial(self._in_turns, steps, done))

    def _high_watermark(self, name: TopicPartition) -> Offset | None:
        """None for a log that no replica uses, which is left alone."""
        partition = self._replicas.partitions.get(name)
        return None if partition is None else partition.high_watermark

    def _cleanable(self, name: TopicPartition) -> Offset | None:
        """How far compaction may come in a log; None for one that no replica uses."""
        log, high_watermark = self._directory.logs.get(name), self._high_watermark(name)
        if log is None or high_watermark is None or not log.settings.is_compacted:
            return high_watermark
        return self._directory.removable(log, min(high_watermark, log.segments.active.base_offset))

    def _damage_found(self, name: TopicPartition) -> None:
        partition = self._replicas.partitions.get(name)
        if partition is not None:
            partition.damage_found()

    # -- retention -------------------------------------------------------------------------------------

    def _retain(self, done: Callable[[], None]) -> None:
        """Find what has outlived its settings, bring recovery points past it, and let it go."""
        doomed: list[TopicPartition] = []

        def delete() -> None:
            self._in_turns(self._delete_expired(doomed), done)

        def found() -> None:
            self._checkpoints.run([name for name in doomed if self._is_behind(name)], delete)

        self._in_turns(self._find_expired(doomed), found)

    def _find_expired(self, doomed: list[TopicPartition]) -> Generator[None, None, None]:
        for number, name in enumerate(list(self._directory.logs), 1):
            log = self._directory.logs.get(name)
            if log is not None and self._expired(log):
                doomed.append(name)
            if number % LOGS_A_TURN == 0:
                yield

    def _expired(self, log: Log) -> int:
        """How many segments at the front may go."""
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
        """Whether deleting would have to bring the recovery point forward first, while others wait."""
        log = self._directory.logs.get(name)
        if log is None:
            return False
        count = self._expired(log)
        return count > 0 and log.recovery_point.offset < log.segments.end_of(count - 1)

    def _delete_expired(self, names: list[TopicPartition]) -> Generator[None, None, None]:
        """Note where all of the logs will begin with one write, then take their segments out a few at a time."""
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
        segments = list(log.segments[: min(count, SEGMENTS_A_TURN)])
        try:
            removal = delete_segments(log, segments, self._world.now_ms())
        except StorageError as error:
            logger.error("%s", error)
            return False
        self._upkeep.segments_deleted += len(segments)
        logger.info("%s begins at %d now: %d segments are deleted", name, log.log_start, len(segments))
        if removal.paths:
            self._remove_later(removal, log.settings.file_delete_delay_ms)
        return count > len(segments)

    # -- files that only take up space -----------------------------------------------------------------

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
        """Deleted partitions whose files the last run left behind, one after the other."""
        if leftovers and not self._is_stopped:
            self._remove(leftovers.popleft(), lambda: self._remove_leftovers(leftovers))

    # -- checkpoints -----------------------------------------------------------------------------------

    def _checkpoint(self, done: Callable[[], None]) -> None:
        due = [name for name, log in self._directory.logs.items() if not log.flusher.is_checkpointed()]
        self._checkpoints.run(due, done)

    def _note_high_watermarks(self) -> dict[TopicPartition, Offset]:
        """What the next write of them, whoever does it, is to say."""
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
            if number % LOGS_A_TURN == 0:
                yield
