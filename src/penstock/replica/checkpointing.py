"""Checkpoints while the node serves: syncs run on threads, and the loop does the steps between.

    a log      prepared on the loop   synced   renamed on the loop   names synced   its recovery point counts
    a file     drafted on the loop    synced   renamed on the loop   name synced    the next file

What the loop does in between (append, truncate, delete the partition, write the same file) wins: the step that finds
it is void, and the next round repeats it.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from itertools import islice

from penstock.base.ids import TopicPartition
from penstock.replica.sync_lane import SyncLane
from penstock.storage import Log, LogDirectory, StorageError
from penstock.storage.syncing import CheckpointWork
from penstock.vfs import Draft, parent

logger = logging.getLogger(__name__)

LOGS_AT_ONCE = 4
"""Logs that are synced at a time: few, so that producers' syncs come in between."""

LAST_AT_ONCE = 16
"""The same at a stop, when no client waits. A disk does many syncs at a time in the time of one."""

LAST_PER_STEP = 8
"""Logs that a thread checkpoints before it returns to the loop."""


class Checkpoints:
    """Runs one round at a time. Rounds that are requested meanwhile wait."""

    def __init__(self, directory: LogDirectory, lane: SyncLane) -> None:
        self._directory = directory
        self._lane = lane
        self._waiting: deque[tuple[list[TopicPartition], Callable[[], None]]] = deque()
        self._is_running = False
        self._is_stopped = False

    def stop(self) -> None:
        """Start nothing more. What runs on threads ends by itself."""
        self._is_stopped = True
        self._waiting.clear()

    def run(self, names: Iterable[TopicPartition], then: Callable[[], None]) -> None:
        """Checkpoint logs, save their recovery points, then call `then`. A failure is logged; the log stays due."""
        self._waiting.append((list(names), then))
        self._next_round()

    def _next_round(self) -> None:
        if self._is_running or self._is_stopped or not self._waiting:
            return
        self._is_running = True
        names, then = self._waiting.popleft()
        _Round(self._directory, self._lane, names, partial(self._round_ended, then), self._stopped)

    def _stopped(self) -> bool:
        return self._is_stopped

    def _round_ended(self, then: Callable[[], None]) -> None:
        self._is_running = False
        if self._is_stopped:
            return
        then()
        self._next_round()

    def save(self, drafts: Callable[[], list[Draft]], then: Callable[[bool], None]) -> None:
        """Save files durably, in order. Calls `then` with True if all of them are saved."""
        try:
            made = drafts()
        except StorageError as error:
            logger.error("%s", error)
            then(False)
            return
        save_drafts(self._directory, self._lane, made, then, self._stopped)


def save_drafts(
    directory: LogDirectory,
    lane: SyncLane,
    drafts: list[Draft],
    then: Callable[[bool], None],
    is_stopped: Callable[[], bool],
) -> None:
    if not drafts:
        then(True)
        return
    first, rest = drafts[0], drafts[1:]

    def synced(_: None, error: Exception | None) -> None:
        if is_stopped():
            return
        try:
            if error is not None:
                raise StorageError(f"cannot sync {first.path}: {error}") from error
            is_installed = directory.checkpoints.install(first)
        except StorageError as failure:
            logger.error("%s", failure)
            is_installed = False
        if not is_installed:
            then(False)
            return
        lane.run(partial(directory.vfs.sync_dir, parent(first.path)), named)

    def named(_: None, error: Exception | None) -> None:
        if is_stopped():
            return
        if error is not None:
            logger.error("cannot sync the name of %s: %s", first.path, error)
            then(False)
            return
        save_drafts(directory, lane, rest, then, is_stopped)

    lane.run(first.sync, synced)


class _Round:
    """Checkpoints some logs, a few at a time, and then saves the recovery points."""

    def __init__(
        self,
        directory: LogDirectory,
        lane: SyncLane,
        names: list[TopicPartition],
        ended: Callable[[], None],
        is_stopped: Callable[[], bool],
    ) -> None:
        self._directory = directory
        self._lane = lane
        self._names = deque(names)
        self._ended = ended
        self._is_stopped = is_stopped
        self._running = 0
        self._has_points = False
        self._go_on()

    def _go_on(self) -> None:
        if self._is_stopped():
            return
        while self._names and self._running < LOGS_AT_ONCE:
            self._begin(self._names.popleft())
        if self._running or self._names:
            return
        if self._has_points:
            try:
                drafts = self._directory.checkpoints.draft_recovery_points()
            except StorageError as error:
                logger.error("%s", error)
            else:
                save_drafts(self._directory, self._lane, drafts, lambda _: self._ended(), self._is_stopped)
                return
        self._ended()

    def _begin(self, name: TopicPartition) -> None:
        log = self._directory.logs.get(name)
        if log is None:
            return
        try:
            work = log.flusher.prepare_checkpoint()
        except StorageError as error:
            logger.error("%s", error)
            return
        self._running += 1
        self._lane.run(work.run, partial(self._synced, log, work))

    def _synced(self, log: Log, work: CheckpointWork, _: None, error: Exception | None) -> None:
        if self._is_here(log):
            try:
                if log.flusher.install_checkpoint(work, _as_os_error(error)):
                    if work.has_new_names:
                        self._lane.run(work.sync_names, partial(self._named, log, work))
                    else:
                        self._named(log, work, None, None)
                    return
            except StorageError as failure:
                logger.error("%s", failure)
        self._done()

    def _named(self, log: Log, work: CheckpointWork, _: None, error: Exception | None) -> None:
        if self._is_here(log):
            try:
                self._has_points |= log.flusher.finish_checkpoint(work, _as_os_error(error))
            except StorageError as failure:
                logger.error("%s", failure)
        self._done()

    def _is_here(self, log: Log) -> bool:
        """Whether the log still exists, and the node still runs."""
        return not self._is_stopped() and self._directory.logs.get(log.partition) is log

    def _done(self) -> None:
        self._running -= 1
        self._go_on()


class LastCheckpoints:
    """Checkpoints all logs before a clean stop, on threads, many at a time: the logs are no longer in use. A failure
    is left to `LogDirectory.close`, which tries again and reports it."""

    def __init__(self, directory: LogDirectory, lane: SyncLane, then: Callable[[], None]) -> None:
        self._lane = lane
        self._then = then
        self._logs = iter(
            [log for log in directory.logs.values() if not log.flusher.is_checkpointed(is_last=True)]
        )
        self._running = 0
        for _ in range(LAST_AT_ONCE):
            self._next()
        if not self._running:
            then()

    def _next(self) -> None:
        some = list(islice(self._logs, LAST_PER_STEP))
        if some:
            self._running += 1
            self._lane.run(partial(_checkpoint_all, some), self._done)

    def _done(self, _: None, error: Exception | None) -> None:
        if error is not None:
            logger.error("%s", error)
        self._running -= 1
        self._next()
        if not self._running:
            self._then()


def _checkpoint_all(logs: list[Log]) -> None:
    for log in logs:
        with suppress(StorageError):
            log.checkpoint(is_last=True)


def _as_os_error(error: Exception | None) -> OSError | None:
    return error if error is None or isinstance(error, OSError) else OSError(str(error))
