"""Following partitions: what is there, and then what comes, for as long as somebody listens.

    Following ---- one watch a partition ----> places
        ^                                         |
        +---- "there is more in number 3" --------+

A watch only notes that its partition has more; records are read when the reader comes for them. So a reader that is
slow costs nothing but its position. When a partition's leader moves, it is followed to where it goes.
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
"""After how long a partition that nobody leads is looked at again."""


class TailReader:
    """Partitions from positions on. `close` it."""

    def __init__(
        self, context: Context, places: Iterable[RoutedPartition], positions: Mapping[int, Offset]
    ) -> None:
        self._context = context
        self._places: dict[int, RoutedPartition] = {}
        self.positions: dict[int, Offset] = {}
        """The next offset of each partition, by number."""
        self._ready: dict[int, None] = {}
        """Partitions that may have more to read, the one that waits longest first."""
        self._walks: dict[int, RoutedWalk] = {}
        """Through partitions of which something was read, and not all that is known to be there."""
        self._watches: dict[int, _Watch] = {}
        self._unwatched: dict[int, None] = {}
        """Partitions that moved, and are to be watched where they are now."""
        self._waiting: Promise[bool] | None = None
        self._timer: Timer | None = None
        self._is_closed = False
        for each in places:
            self.add(each, positions[each.number])

    def add(self, place: RoutedPartition, position: Offset) -> None:
        """Follow one more."""
        number = place.number
        self._places[number] = place
        self.positions[number] = position
        self._ready[number] = None
        self._watches[number] = _Watch(self, number)
        self._unwatched[number] = None

    @property
    def is_over(self) -> bool:
        """Whether one of them is not served any more: its topic is deleted, or the node, which is alone, stops."""
        alone = is_alone(self._context)
        return any(each.is_gone or (alone and each.here is None) for each in self._places.values())

    @property
    def may_have_more(self) -> bool:
        return bool(self._ready)

    def read(self) -> Steps[tuple[int, list[Record]] | None]:
        """Some records of one partition, and its number, in turn; None where there is nothing to read now."""
        while self._ready:
            number = next(iter(self._ready))
            del self._ready[number]
            try:
                records = yield from self._read(number)
            except KafkaError as error:
                self._walks.pop(number, None)
                if error.code is ErrorCode.OFFSET_OUT_OF_RANGE and not is_alone(self._context):
                    self._ready[number] = None  # its log begins elsewhere by now
                elif error.code in RETRIABLE and not is_alone(self._context):
                    self._context.world.call_later(UNLED_MS, partial(self.grew, number))
                else:
                    raise
                records = []
            if records:
                return number, records
        return None

    def _read(self, number: int) -> Steps[list[Record]]:
        place = self._places[number]
        if number in self._unwatched:
            del self._unwatched[number]
            place.watch(self._watches[number])
        walk = self._walks.pop(number, None)
        if walk is None or walk.position < place.log_start:
            yield from place.freshen(self.positions[number])
            start = max(self.positions[number], place.log_start)
            if start >= place.last_stable:
                return []
            walk = RoutedWalk(self._context, place, start, place.last_stable)
        yield from walk.prepare()
        records = walk.some()
        self.positions[number] = walk.position
        self._ready[number] = None  # as the last
        if not walk.is_over:
            self._walks[number] = walk
        return records

    def more(self, wait_ms: float) -> Promise[bool]:
        """Answered True when there may be more, or it is over; False when the time is up."""
        later: Promise[bool] = Promise()
        if self._ready or self.is_over:
            later.resolve(True)
            return later
        self._waiting = later
        self._timer = self._context.world.call_later(wait_ms, lambda: self._answer(is_more=False))
        return later

    def grew(self, number: int) -> None:
        if not self._is_closed:
            self._ready[number] = None
            self._answer(is_more=True)

    def changed(self, number: int) -> None:
        """It is led by somebody else, or its records are gone."""
        if not self._is_closed:
            self._unwatched[number] = None
            self._ready[number] = None
            self._answer(is_more=True)

    def rest(self) -> None:
        """Keep nothing but positions: what was read and not given is read again."""
        for walk in self._walks.values():
            walk.rest()
        self._walks.clear()

    def close(self) -> None:
        self._is_closed = True
        self.rest()
        for number, watch in self._watches.items():
            self._places[number].unwatch(watch)
        self._waiting = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _answer(self, *, is_more: bool) -> None:
        later, self._waiting = self._waiting, None
        if later is not None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            # Not at once: whoever tells of more is in the middle of writing it.
            self._context.world.call_soon(lambda: later.resolve(is_more))


class _Watch:
    """A `DelayedFetch` of one partition."""

    __slots__ = ("_following", "_number")

    def __init__(self, following: TailReader, number: int) -> None:
        self._following = following
        self._number = number

    def grew(self, bytes_more: int) -> None:
        self._following.grew(self._number)

    def decided(self) -> None:
        self._following.grew(self._number)

    def changed(self) -> None:
        self._following.changed(self._number)
