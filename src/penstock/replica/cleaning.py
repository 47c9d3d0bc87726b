"""Compaction while the node serves: planned and installed here, done in a child process.

Logs are checked in turn, starting after the one that was cleaned last, so that none is left out. While logs are due,
`log.cleaner.threads` of them are cleaned at a time; if none is, the next check comes after `log.cleaner.backoff.ms`. A
log that could not be cleaned is left alone until then.
"""

import logging
from collections.abc import Callable
from functools import partial

from penstock.base.ids import Offset, TopicPartition
from penstock.base.metrics import Upkeep
from penstock.base.world import Timer, World
from penstock.replica.checkpointing import Checkpoints
from penstock.storage import Log, LogDirectory, StorageError
from penstock.storage.cleaner import Cleaned, CleaningPlan, clean
from penstock.storage.compaction import cleanable_end, discard, install, is_due, plan_cleaning
from penstock.storage.deletion import Removal
from penstock.storage.errors import CorruptLog

logger = logging.getLogger(__name__)

LOGS_PER_TICK = 200
"""Logs that are checked in one tick of the loop."""


class Cleaning:
    def __init__(
        self,
        world: World,
        directory: LogDirectory,
        checkpoints: Checkpoints,
        high_watermark: Callable[[TopicPartition], Offset | None],
        number: Callable[[str], int],
        remove_later: Callable[[Removal, int], None],
        upkeep: Upkeep,
        damage_found: Callable[[TopicPartition], None],
    ) -> None:
        """`number` returns the current value of a broker setting. `remove_later` takes files and a delay.
        `damage_found` is called for a log in which the cleaner found a batch that is not what was written."""
        self._upkeep = upkeep
        self._world = world
        self._directory = directory
        self._checkpoints = checkpoints
        self._high_watermark = high_watermark
        self._number = number
        self._remove_later = remove_later
        self._damage_found = damage_found
        self._cleaning: set[TopicPartition] = set()
        """Logs that are being planned or cleaned."""
        self._skipped: set[TopicPartition] = set()
        """Logs that could not be cleaned, or had nothing to clean: left alone until the next check."""
        self._last: TopicPartition | None = None
        self._timer: Timer | None = None
        self._is_checking = False
        self._is_stopped = False

    def start(self) -> None:
        self._back_off()

    def stop(self) -> None:
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _back_off(self) -> None:
        if self._timer is None and not self._is_stopped:
            self._timer = self._world.call_later(self._number("log.cleaner.backoff.ms"), self._wake)

    def _wake(self) -> None:
        self._timer = None
        self._skipped.clear()
        self._check()

    def _check(self) -> None:
        """Start as many cleanings as may run at a time, and back off if fewer are due."""
        if self._is_checking or self._is_stopped:
            return
        self._is_checking = True
        names = sorted(self._directory.logs)
        behind = [name for name in names if self._last is not None and name > self._last]
        self._check_logs(behind + names[: len(names) - len(behind)])

    def _check_logs(self, names: list[TopicPartition]) -> None:
        if self._is_stopped:
            return
        for name in names[:LOGS_PER_TICK]:
            if len(self._cleaning) >= self._number("log.cleaner.threads"):
                break
            if name not in self._cleaning and name not in self._skipped and self._is_due(name):
                self._last = name
                self._cleaning.add(name)
                self._prepare(name)
        else:
            if len(names) > LOGS_PER_TICK:
                self._world.call_soon(partial(self._check_logs, names[LOGS_PER_TICK:]))
                return
            self._back_off()
        self._is_checking = False
        if not self._cleaning:
            self._back_off()

    def _is_due(self, name: TopicPartition) -> bool:
        log, high_watermark = self._directory.logs.get(name), self._high_watermark(name)
        if log is None or high_watermark is None:
            return False
        try:
            return is_due(log, self._world.now_ms(), high_watermark)
        except (StorageError, OSError) as error:
            logger.error("cannot check whether %s is due for cleaning: %s", name, error)
            self._skipped.add(name)
            return False

    def _prepare(self, name: TopicPartition) -> None:
        """Checkpoint the log up to where it will be cleaned: otherwise planning would do that, on the loop."""
        log, high_watermark = self._directory.logs[name], self._high_watermark(name)
        try:
            end = cleanable_end(log, self._world.now_ms(), high_watermark or 0)
        except (StorageError, OSError) as error:
            logger.error("cannot clean %s: %s", name, error)
            self._ended(name, is_clean=False)
            return
        if log.recovery_point.offset < end:
            self._checkpoints.run([name], partial(self._begin, name))
        else:
            self._begin(name)

    def _begin(self, name: TopicPartition) -> None:
        log, high_watermark = self._directory.logs.get(name), self._high_watermark(name)
        plan = None
        try:
            if log is not None and high_watermark is not None and not self._is_stopped:
                plan = plan_cleaning(
                    log, self._world.now_ms(), high_watermark, memory_bytes=self._memory_bytes()
                )
        except (StorageError, OSError) as error:
            logger.error("cannot clean %s: %s", name, error)
        if log is None or plan is None:
            self._ended(name, is_clean=False)
            return
        self._world.in_child(partial(clean, log.vfs, plan), partial(self._cleaned, log, plan))

    def _memory_bytes(self) -> int:
        """The cleaners share the memory for keys."""
        return self._number("log.cleaner.dedupe.buffer.size") // max(1, self._number("log.cleaner.threads"))

    def _cleaned(
        self, log: Log, plan: CleaningPlan, cleaned: Cleaned | None, error: Exception | None
    ) -> None:
        if self._is_stopped:
            return  # the next start discards the result
        name = log.partition
        is_clean = False
        try:
            if self._directory.logs.get(name) is not log:
                self._discard(name, cleaned)
            elif error is not None or cleaned is None:
                logger.error("cannot clean %s: %s", name, error)
                self._upkeep.cleanings_failed += 1
                if isinstance(error, CorruptLog):
                    log.reader.note_damage(error)
                    self._damage_found(name)
            else:
                is_clean = self._install(log, plan, cleaned)
        except (StorageError, OSError) as failure:
            logger.error("cannot clean %s: %s", name, failure)
            self._upkeep.cleanings_failed += 1
        self._ended(name, is_clean=is_clean)

    def _install(self, log: Log, plan: CleaningPlan, cleaned: Cleaned) -> bool:
        before = log.clean_to
        removal = install(log, plan, cleaned)
        if removal.paths:
            self._remove_later(removal, log.settings.file_delete_delay_ms)
        upkeep = self._upkeep
        upkeep.cleanings += 1
        upkeep.records_cleaned += cleaned.records_read
        upkeep.records_kept += cleaned.records_kept
        upkeep.bytes_cleaned += cleaned.bytes_read
        upkeep.bytes_kept += cleaned.bytes_kept
        logger.info(
            "%s is clean up to %d: %d of %d records kept, %d of %d bytes",
            log.partition,
            log.clean_to,
            cleaned.records_kept,
            cleaned.records_read,
            cleaned.bytes_kept,
            cleaned.bytes_read,
        )
        # If this is lost, the cleaning is repeated.
        self._checkpoints.save(lambda: self._directory.checkpoints.draft_cleaner_points(log), lambda _: None)
        return log.clean_to > before

    def _discard(self, name: TopicPartition, cleaned: Cleaned | None) -> None:
        """The partition was deleted meanwhile. If another one has its name, the output is in that one's directory."""
        successor = self._directory.logs.get(name)
        if successor is not None and cleaned is not None:
            discard(successor, cleaned)

    def _ended(self, name: TopicPartition, *, is_clean: bool) -> None:
        self._cleaning.discard(name)
        if not is_clean:
            # Otherwise a log that fails, or cannot be cleaned any further, would be tried again without end.
            self._skipped.add(name)
        self._check()
