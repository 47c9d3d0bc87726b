"""Reads partitions to their end, and then waits for new records.

    TailReader ---- one watch for each partition ----> partitions
        ^                                                  |
        +---- "partition 3 has more" ----------------------+

A watch only notes that its partition has more; records are read when the reader asks for them. So a slow reader holds
only its position. When the leader of a partition changes, reading continues at the new leader.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import Offset
from penstock.base.promise import Promise
from penstock.base.steps import Steps
from penstock.base.world import Timer
from penstock.gateway.peer_rpc.retry import RETRIABLE, is_alone
from penstock.gateway.peer_rpc.routed_partition import RoutedPartition, RoutedWalk
from penstock.handlers.support.context import Context
from penstock.records import Record

UNLED_MS: Final = 500
"""Retry interval of a partition without a leader."""


class TailReader:
    """Reads partitions from the given positions. The caller closes it."""

    def __init__(
        self, context: Context, partitions: Iterable[RoutedPartition], positions: Mapping[int, Offset]
    ) -> None:
        self._context = context
        self._partitions: dict[int, RoutedPartition] = {}
        self.positions: dict[int, Offset] = {}
        """The next offset of each partition, by number."""
        self._ready: dict[int, None] = {}
        """Partitions that may have more to read, the longest waiting first."""
        self._walks: dict[int, RoutedWalk] = {}
        """Walks through partitions that are not read to their known end."""
        self._watches: dict[int, _Watch] = {}
        self._unwatched: dict[int, None] = {}
        """Partitions without a watch: new ones, and those whose leader changed."""
        self._waiting: Promise[bool] | None = None
        self._timer: Timer | None = None
        self._is_closed = False
        for each in partitions:
            self.add(each, positions[each.number])

    def add(self, partition: RoutedPartition, position: Offset) -> None:
        """Add a partition."""
        number = partition.number
        self._partitions[number] = partition
        self.positions[number] = position
        self._ready[number] = None
        self._watches[number] = _Watch(self, number)
        self._unwatched[number] = None

    @property
    def is_over(self) -> bool:
        """Whether a partition is no longer served: its topic is deleted, or the only broker stops."""
        alone = is_alone(self._context)
        return any(each.is_gone or (alone and each.here is None) for each in self._partitions.values())

    @property
    def may_have_more(self) -> bool:
        return bool(self._ready)

    def read(self) -> Steps[tuple[int, list[Record]] | None]:
        """Records of one partition and its number, round robin; None if there is nothing to read now."""
        while self._ready:
            number = next(iter(self._ready))
            del self._ready[number]
            try:
                records = yield from self._read(number)
            except KafkaError as error:
                self._walks.pop(number, None)
                if error.code is ErrorCode.OFFSET_OUT_OF_RANGE and not is_alone(self._context):
                    self._ready[number] = None  # the log start offset has moved
                elif error.code in RETRIABLE and not is_alone(self._context):
                    self._context.world.call_later(UNLED_MS, partial(self.grew, number))
                else:
                    raise
                records = []
            if records:
                return number, records
        return None

    def _read(self, number: int) -> Steps[list[Record]]:
        partition = self._partitions[number]
        if number in self._unwatched:
            del self._unwatched[number]
            partition.watch(self._watches[number])
        walk = self._walks.pop(number, None)
        if walk is None or walk.position < partition.log_start:
            yield from partition.freshen(self.positions[number])
            start = max(self.positions[number], partition.log_start)
            if start >= partition.last_stable:
                return []
            walk = RoutedWalk(self._context, partition, start, partition.last_stable)
        yield from walk.prepare()
        records = walk.some()
        self.positions[number] = walk.position
        self._ready[number] = None  # as the last
        if not walk.is_over:
            self._walks[number] = walk
        return records

    def skip_to_last(self, records_max: int) -> int:
        """Leave out the oldest of what is not read, so that about `records_max` offsets are left in all partitions
        together. Return how many offsets are left out."""
        behind = {
            number: each.last_stable - self.positions[number]
            for number, each in self._partitions.items()
            if each.last_stable > self.positions[number]
        }
        total = sum(behind.values())
        if total <= records_max:
            return 0
        self.release()
        skipped = 0
        for number, count in behind.items():
            left_out = count - max(count * records_max // total, 1)
            self.positions[number] += left_out
            skipped += left_out
        return skipped

    def more(self, wait_ms: float) -> Promise[bool]:
        """Resolved with True when there may be more, or the reader is over; with False after `wait_ms`."""
        promise: Promise[bool] = Promise()
        if self._ready or self.is_over:
            promise.resolve(True)
            return promise
        self._waiting = promise
        self._timer = self._context.world.call_later(wait_ms, lambda: self._resolve(is_more=False))
        return promise

    def grew(self, number: int) -> None:
        if not self._is_closed:
            self._ready[number] = None
            self._resolve(is_more=True)

    def changed(self, number: int) -> None:
        """The partition has another leader, or its records are deleted."""
        if not self._is_closed:
            self._unwatched[number] = None
            self._ready[number] = None
            self._resolve(is_more=True)

    def release(self) -> None:
        """Keep only positions: records that were read but not returned are read again."""
        for walk in self._walks.values():
            walk.release()
        self._walks.clear()

    def close(self) -> None:
        self._is_closed = True
        self.release()
        for number, watch in self._watches.items():
            self._partitions[number].unwatch(watch)
        self._waiting = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _resolve(self, *, is_more: bool) -> None:
        promise, self._waiting = self._waiting, None
        if promise is not None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            # In the next tick: the caller is in the middle of an append.
            self._context.world.call_soon(lambda: promise.resolve(is_more))


class _Watch:
    """A `DelayedFetch` of one partition."""

    __slots__ = ("_number", "_reader")

    def __init__(self, reader: TailReader, number: int) -> None:
        self._reader = reader
        self._number = number

    def grew(self, bytes_more: int) -> None:
        self._reader.grew(self._number)

    def decided(self) -> None:
        self._reader.grew(self._number)

    def changed(self) -> None:
        self._reader.changed(self._number)
