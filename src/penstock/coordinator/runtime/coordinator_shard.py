"""A coordinator on its partition of an internal topic: it is loaded, serves, wakes when something is due, and goes."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import TimestampMs
from penstock.base.world import Timer, World
from penstock.coordinator.runtime.coordinator_log import CoordinatorLog
from penstock.records import RecordBatch

logger = logging.getLogger(__name__)


class CoordinatorShard(ABC):
    """A coordinator on its partition: loading, serving, or, where its records cannot be read, neither."""

    def __init__(self, world: World, log: CoordinatorLog, reload: Callable[[], None]) -> None:
        self.log = log
        self._world = world
        self._reload = reload
        self._is_loaded = False
        self._is_damaged = False
        self._timer: Timer | None = None
        self._timer_ms = 0

    @property
    def is_loaded(self) -> bool:
        """Whether requests can be answered."""
        return self._is_loaded

    @property
    def is_damaged(self) -> bool:
        """Whether its records cannot be read, so that they never will be."""
        return self._is_damaged

    @property
    def trouble(self) -> ErrorCode | None:
        """Why they cannot."""
        if self._is_damaged:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return None if self._is_loaded else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    # -- what a kind of shard does ---------------------------------------------------------------------

    @abstractmethod
    def take(self, batches: Iterable[RecordBatch]) -> None:
        """Replay these."""

    @abstractmethod
    def begin(self) -> None:
        """All is replayed."""

    @abstractmethod
    def forget(self) -> None:
        """Answer who waits, and be no coordinator any more."""

    @abstractmethod
    def next_deadline_ms(self) -> TimestampMs | None: ...

    @abstractmethod
    def tick(self) -> None:
        """Do what is due."""

    # -- coming and going ------------------------------------------------------------------------------

    def load(self) -> None:
        self.log.read_all(self.take, self._loaded, self._damaged)

    def _loaded(self) -> None:
        self._is_loaded = True
        self.begin()
        self._tick()

    def _damaged(self, error: Exception) -> None:
        """What the partition says cannot be read. What it keeps is not served; other partitions are."""
        self._is_damaged = True
        logger.error("%s cannot be read, and what it keeps is not served: %s", self.log.partition.name, error)

    def unload(self) -> None:
        """The partition is led elsewhere, or gone, or is read anew."""
        self._is_loaded = False
        self.log.close()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.forget()

    def lost(self, error: KafkaError) -> None:
        """A write failed, and what is in memory may not be what the log says: read it anew."""
        if self._is_loaded:
            self._is_loaded = False
            logger.warning("%s is read anew: %s", self.log.partition.name, error)
            self._world.call_soon(self._reload)

    # -- time ------------------------------------------------------------------------------------------

    def set_timer(self) -> None:
        """See to it that what is due next is done in time."""
        deadline_ms = self.next_deadline_ms() if self._is_loaded else None
        if deadline_ms is None:
            return
        if self._timer is not None:
            if self._timer_ms <= deadline_ms:
                return
            self._timer.cancel()
        self._timer_ms = deadline_ms
        self._timer = self._world.call_later(max(0, deadline_ms - self._world.now_ms()), self._tick)

    def wake(self) -> None:
        """Do now what is due, without waiting for the timer."""
        if self._timer is not None:
            self._timer.cancel()
        self._tick()

    def _tick(self) -> None:
        self._timer = None
        if self._is_loaded:
            self.tick()
            self.set_timer()
