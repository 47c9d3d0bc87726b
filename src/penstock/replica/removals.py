"""Deletes the logs of partitions that are gone: renamed at once, their files removed after `file.delete.delay.ms`.

The renames of many partitions become durable with one sync. Only then are files removed: a power cut never leaves a
partition with half of its files.
"""

import logging

from penstock.base.ids import TopicPartition
from penstock.base.world import World
from penstock.storage import LogDirectory, StorageError
from penstock.storage.directory import DirectoryRemoval

logger = logging.getLogger(__name__)


class Removals:
    def __init__(self, world: World, directory: LogDirectory) -> None:
        self._world = world
        self._directory = directory
        self._unsynced: list[tuple[float, DirectoryRemoval]] = []
        """Renamed, and not yet durably so; with the delay in milliseconds."""

    def delete(self, name: TopicPartition, delay_ms: float) -> None:
        """Delete a log; durable after `sync`."""
        try:
            removal = self._directory.delete(name, self._world.rng, sync=False)
        except StorageError as error:
            logger.error("%s", error)
        else:
            self._unsynced.append((delay_ms, removal))

    def delete_now(self, name: TopicPartition, delay_ms: float) -> None:
        """Delete a log; durable when this returns. Raises StorageError."""
        self._remove_later(delay_ms, self._directory.delete(name, self._world.rng))

    @property
    def is_synced(self) -> bool:
        return not self._unsynced

    def sync(self) -> bool:
        """Make all deletions durable; False if that fails."""
        unsynced, self._unsynced = self._unsynced, []
        try:
            self._directory.sync_deleted()
        except StorageError as error:
            logger.error(
                "%s; the files of %d deleted partitions are removed at the next start", error, len(unsynced)
            )
            return False
        for delay_ms, removal in unsynced:
            self._remove_later(delay_ms, removal)
        return True

    def _remove_later(self, delay_ms: float, removal: DirectoryRemoval) -> None:
        def done(_: None, error: Exception | None) -> None:
            if error is not None:
                logger.error("%s", error)

        self._world.call_later(delay_ms, lambda: self._world.beside(removal.run, done))
