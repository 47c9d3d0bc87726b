"""Following partitions: what is there, and then what comes, for as long as somebody listens.

    Following ---- one watch a partition ----> partitions
        ^                                         |
        +---- "there is more in number 3" --------+

A watch only notes that its partition has more; records are read when the reader comes for them. So a reader that is
slow costs nothing but its position.
"""

from collections.abc import Iterable, Mapping

from penstock.base.ids import Offset
from penstock.base.later import Later
from penstock.base.world import Timer, World
from penstock.gateway.walking import Walk
from penstock.records import Record
from penstock.replica import Partition


class Following:
    """Partitions from positions on. `close` it."""

    def __init__(
        self, world: World, partitions: Iterable[Partition], positions: Mapping[int, Offset]
    ) -> None:
        self._world = world
        self._partitions: dict[int, Partition] = {}
        self.positions: dict[int, Offset] = {}
        """The next offset of each partition, by number."""
        self._ready: dict[int, None] = {}
        """Partitions that may have more to read, the one that waits longest first."""
        self._walks: dict[int, Walk] = {}
        """Through partitions of which something was read, and not all that is known to be there."""
        self._waiting: Later[bool] | None = None
        self._timer: Timer | None = None
        self._watches: list[_Watch] = []
        for each in partitions:
            self.add(each, positions[each.number])

    def add(self, partition: Partition, position: Offset) -> None:
        """Follow one more."""
        self._partitions[partition.number] = partition
        self.positions[partition.number] = position
        self._ready[partition.number] = None
        watch = _Watch(self, partition)
        self._watches.append(watch)
        partition.watch(watch)

    @property
    def is_over(self) -> bool:
        """Whether one of them is not led here any more: deleted, moved, or the node stops."""
        return not all(each.is_leader for each in self._partitions.values())

    @property
    def may_have_more(self) -> bool:
        return bool(self._ready)

    def read(self) -> tuple[int, list[Record]] | None:
        """Some records of one partition, and its number, in turn; None where there is nothing to read now."""
        while self._ready:
            number = next(iter(self._ready))
            del self._ready[number]
            partition = self._partitions[number]
            walk = self._walks.pop(number, None)
            if walk is None or walk.position < partition.log.log_start:
                start = max(self.positions[number], partition.log.log_start)
                if start >= partition.last_stable:
                    continue
                walk = Walk(partition, start, partition.last_stable)
            records = walk.some()
            self.positions[number] = walk.position
            self._ready[number] = None  # as the last
            if not walk.is_over:
                self._walks[number] = walk
            if records:
                return number, records
        return None

    def more(self, wait_ms: float) -> Later[bool]:
        """Answered True when there may be more, or it is over; False when the time is up."""
        later: Later[bool] = Later()
        if self._ready or self.is_over:
            later.answer(True)
            return later
        self._waiting = later
        self._timer = self._world.call_later(wait_ms, lambda: self._answer(is_more=False))
        return later

    def grew(self, number: int) -> None:
        self._ready[number] = None
        self._answer(is_more=True)

    def changed(self) -> None:
        self._answer(is_more=True)

    def close(self) -> None:
        for watch in self._watches:
            watch.partition.unwatch(watch)
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
            self._world.call_soon(lambda: later.answer(is_more))


class _Watch:
    """A `Watcher` of one partition."""

    __slots__ = ("_following", "partition")

    def __init__(self, following: Following, partition: Partition) -> None:
        self._following = following
        self.partition = partition

    def grew(self, bytes_more: int) -> None:
        self._following.grew(self.partition.number)

    def decided(self) -> None:
        self._following.grew(self.partition.number)

    def changed(self) -> None:
        self._following.changed()
