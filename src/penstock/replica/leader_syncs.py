"""Syncs of a leader's log, and the produce requests that wait for them.

A sync runs on a thread. Batches written while one runs wait for the next sync: group commit without a timer. After a
failed sync no batch that waited for it is acknowledged.
"""

from __future__ import annotations  # those of nested functions would be evaluated in each call

import logging
from collections import deque
from collections.abc import Callable

from penstock.base.errors import KafkaError
from penstock.base.ids import Offset
from penstock.replica.delayed_operations import DelayedProduce
from penstock.replica.sync_lane import SyncLane
from penstock.storage import Log, StorageError
from penstock.storage.syncing import FlushWork

logger = logging.getLogger(__name__)


class LeaderSyncs:
    __slots__ = ("_disk_failed", "_is_flushing", "_lane", "_log", "_settle", "waiting")

    def __init__(
        self,
        log: Log,
        lane: SyncLane,
        settle: Callable[[DelayedProduce, KafkaError | None], None],
        disk_failed: Callable[[], object] = lambda: None,
    ) -> None:
        """`disk_failed` is called for every sync that fails, even if no request waits for it."""
        self._log = log
        self._lane = lane
        self._settle = settle
        self._disk_failed = disk_failed
        self._is_flushing = False
        self.waiting: deque[DelayedProduce] = deque()
        """Written, and waiting for a sync; ordered by offset, except for retries."""

    def flush(self) -> None:
        """Sync the log. If a sync runs, the next one starts when it ends, provided that requests wait."""
        if self._is_flushing:
            return
        try:
            work = self._log.prepare_flush()
        except StorageError as error:
            self._failed(error, self._log.log_end)
            return
        if work is None:
            self._settle_synced()
            return
        self._is_flushing = True

        def finish(_: None, error: Exception | None) -> None:
            self._flushed(work, error)

        self._lane.sync_log(work, finish)

    def _flushed(self, work: FlushWork, error: Exception | None) -> None:
        self._is_flushing = False
        if error is not None and not isinstance(error, OSError):
            error = OSError(str(error))
        try:
            self._log.finish_flush(work, error)
        except StorageError as failure:
            self._failed(failure, work.log_end)
        self._settle_synced()
        if self.waiting:
            self.flush()

    def _settle_synced(self) -> None:
        flushed = self._log.flushed
        waiting = self.waiting
        while waiting and waiting[0].appended.last_offset < flushed:
            self._settle(waiting.popleft(), None)

    def _failed(self, error: StorageError, log_end: Offset) -> None:
        """Fail every request whose batch was to be synced by this sync."""
        logger.error("%s", error)
        failed = [each for each in self.waiting if each.appended.last_offset < log_end]
        self.waiting = deque(each for each in self.waiting if each.appended.last_offset >= log_end)
        for produce in failed:
            self._settle(produce, error)
        self._disk_failed()
