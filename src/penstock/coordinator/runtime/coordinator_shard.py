"""A coordinator on its partition of an internal topic: it loads, serves, wakes up for timers, and unloads."""

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
    """Loading, then loaded; or damaged, if the partition's records cannot be read."""

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
        """Whether the shard serves requests."""
        return self._is_loaded

    @property
    def is_damaged(self) -> bool:
        """Whether the partition's records cannot be read. The shard then never serves requests."""
        return self._is_damaged

    @property
    def unavailable_error(self) -> ErrorCode | None:
        """The error for requests while the shard is not loaded."""
        if self._is_damaged:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return None if self._is_loaded else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    # -- implemented by each kind of shard ------------------------------------------------------------------

    @abstractmethod
    def replay(self, batches: Iterable[RecordBatch]) -> None:
        """Apply batches of the partition, in order."""

    @abstractmethod
    def start(self) -> None:
        """Begin to serve: the whole partition is replayed."""

    @abstractmethod
    def drop_state(self) -> None:
        """Answer waiting requests with NOT_COORDINATOR, and drop the state."""

    @abstractmethod
    def next_deadline_ms(self) -> TimestampMs | None: ...

    @abstractmethod
    def tick(self) -> None:
        """Run the timers that are due."""

    # -- loading and unloading ---------------------------------------------------------------------------

    def load(self) -> None:
        self.log.read_all(self.replay, self._loaded, self._damaged)

    def _loaded(self) -> None:
        self._is_loaded = True
        self.start()
        self._tick()

    def _damaged(self, error: Exception) -> None:
        """The partition's records cannot be read. Other partitions are still served."""
        self._is_damaged = True
        logger.error(
            "%s cannot be read; its groups or transactions are not available: %s",
            self.log.partition.name,
            error,
        )

    def unload(self) -> None:
        """Stop: this broker no longer leads the partition, or loads it again."""
        self._is_loaded = False
        self.log.close()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.drop_state()

    def lost(self, error: KafkaError) -> None:
        """Load the partition again: a write failed, and the state may differ from the log."""
        if self._is_loaded:
            self._is_loaded = False
            logger.warning(
                "%s: a write failed; loading the partition again: %s", self.log.partition.name, error
            )
            self._world.call_soon(self._reload)

    # -- time ------------------------------------------------------------------------------------------

    def set_timer(self) -> None:
        """Schedule the next tick."""
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
        """Tick now, without waiting for the timer."""
        if self._timer is not None:
            self._timer.cancel()
        self._tick()

    def _tick(self) -> None:
        self._timer = None
        if self._is_loaded:
            self.tick()
            self.set_timer()
