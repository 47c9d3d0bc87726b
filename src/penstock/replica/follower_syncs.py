"""Syncs the logs of followers.

durability.fsync=always     before the next fetch, which shows the leader that everything before is durable here
flush.messages, flush.ms    after this many records or this much time; nothing waits for it
"""

from __future__ import annotations  # those of nested functions would be evaluated in each call

import logging
from collections.abc import Callable, Iterable
from functools import partial

from penstock.base.ids import NEVER_MS
from penstock.base.world import Timer, World
from penstock.metadata.controller.requests import DAMAGED
from penstock.replica.delayed_operations import Durability
from penstock.replica.partition import Partition
from penstock.replica.sync_lane import SyncLane
from penstock.storage import StorageError
from penstock.storage.syncing import FlushWork

logger = logging.getLogger(__name__)


class FollowerSyncs:
    def __init__(self, world: World, lane: SyncLane, durability: Durability) -> None:
        self._world = world
        self._lane = lane
        self._durability = durability
        self._timers: dict[Partition, Timer] = {}
        """Of unsynced logs with `flush.ms`."""
        self._is_stopped = False

    def stop(self) -> None:
        self._is_stopped = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def forget(self, partition: Partition) -> None:
        timer = self._timers.pop(partition, None)
        if timer is not None:
            timer.cancel()

    def written(
        self,
        partitions: Iterable[Partition],
        then: Callable[[list[Partition]], None],
        *,
        is_trial: bool = False,
    ) -> None:
        """Logs have grown. Call `then` once their log ends may be sent to the leader, with the partitions that could
        not be synced: theirs may not. A trial syncs whatever `durability.fsync` is."""
        waiting = 1
        failed: list[Partition] = []

        def one_less(partition: Partition | None, is_synced: bool) -> None:
            nonlocal waiting
            if partition is not None and not is_synced:
                failed.append(partition)
            waiting -= 1
            if not waiting and not self._is_stopped:
                then(failed)

        for partition in partitions:
            if self._durability is Durability.ALWAYS or is_trial:
                waiting += 1
                self._sync(partition, partial(one_less, partition))
            else:
                self._sync_if_due(partition)
        one_less(None, True)

    def _sync_if_due(self, partition: Partition) -> None:
        log = partition.log
        if log.log_end - log.flushed >= log.settings.flush_messages:
            self._sync(partition, _ignore)
        elif log.settings.flush_ms != NEVER_MS and partition not in self._timers:
            due = partial(self._flush_is_due, partition)
            self._timers[partition] = self._world.call_later(log.settings.flush_ms, due)

    def _flush_is_due(self, partition: Partition) -> None:
        del self._timers[partition]
        self._sync(partition, _ignore)

    def _sync(self, partition: Partition, then: Callable[[bool], None]) -> None:
        try:
            work = partition.log.prepare_flush()
        except StorageError as error:
            logger.error("%s", error)
            partition.disk_failed(DAMAGED)
            then(False)
            return
        if work is None:
            then(True)
            return
        self._lane.sync(work.run, partial(self._synced, partition, work, then))

    def _synced(
        self,
        partition: Partition,
        work: FlushWork,
        then: Callable[[bool], None],
        _: None,
        error: Exception | None,
    ) -> None:
        if error is not None and not isinstance(error, OSError):
            error = OSError(str(error))
        try:
            is_synced = partition.log.finish_flush(work, error)
        except StorageError as failure:
            logger.error("%s", failure)
            partition.disk_failed(DAMAGED)
            is_synced = False
        then(is_synced)


def _ignore(_: bool) -> None:
    pass
