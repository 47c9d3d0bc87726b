"""Places the replicas of new partitions: striped over racks, and within a rack over its brokers.

    racks A (1, 2), B (3, 4), three partitions of two replicas:  1 3 | 4 2 | 1 3
    no racks, brokers 1 2 3, three partitions of three:          1 2 3 | 2 3 1 | 3 1 2

Each partition starts one rack further than the one before, and each round takes the next broker of each rack. The
start is random, except that a topic which gets more partitions continues where it ended, and a cluster's first topic
starts with the first broker. Once every broker has been the first replica, racks and brokers are shuffled, so that
brokers do not always have the same followers. Fenced brokers are used last, and never as first replica, which leads.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from penstock.base.errors import ErrorCode, KafkaError
from penstock.metadata.records import Ids

if TYPE_CHECKING:
    from random import Random


class UsableBroker(NamedTuple):
    id: int
    rack: str | None
    fenced: bool


class _Ring:
    """Takes brokers round robin; every round starts one further."""

    def __init__(self, brokers: Iterable[int]) -> None:
        self.brokers = sorted(brokers)
        self.start = 0
        self._taken = 0
        self._round = 0

    def take(self, current: int) -> int | None:
        if not self.brokers:
            return None
        if self._round != current:
            self._round, self._taken = current, 0
            self.start = (self.start + 1) % len(self.brokers)
        if self._taken >= len(self.brokers):
            return None
        self._taken += 1
        return self.brokers[(self.start + self._taken - 1) % len(self.brokers)]


class _Rack:
    def __init__(self, brokers: list[UsableBroker]) -> None:
        self.unfenced = _Ring(each.id for each in brokers if not each.fenced)
        self.fenced = _Ring(each.id for each in brokers if each.fenced)

    def take(self, current: int) -> int | None:
        broker = self.unfenced.take(current)
        return self.fenced.take(current) if broker is None else broker


class _Placer:
    def __init__(
        self, brokers: Sequence[UsableBroker], existing: Sequence[Ids], rng: Random, is_first: bool
    ) -> None:
        def begin(count: int) -> int:
            return 0 if is_first or not count else rng.randrange(count)

        self._rng = rng
        self._unfenced_count = sum(not each.fenced for each in brokers)
        racks = {each.id: each.rack for each in brokers}
        names = sorted(set(racks.values()), key=lambda rack: (rack is not None, rack or ""))
        self._racks = [_Rack([each for each in brokers if each.rack == name]) for name in names]
        for name, rack in zip(names, self._racks, strict=True):
            for ring in (rack.fenced, rack.unfenced):
                ring.start = begin(len(ring.brokers))
            last = _last_of_rack(existing, racks, name)
            if last in rack.unfenced.brokers:
                rack.unfenced.start = (rack.unfenced.brokers.index(last) + 1) % len(rack.unfenced.brokers)
        self._first = begin(len(names))
        if existing and existing[-1][0] in racks:
            self._first = (names.index(racks[existing[-1][0]]) + 1) % len(names)
        self._round = 0

    def place(self, replication_factor: int) -> Ids:
        if self._round == self._unfenced_count > 1:
            self._shuffle()
        count = len(self._racks)
        start = self._first % count
        order = [self._racks[(start + step) % count] for step in range(count)]
        chosen: list[int] = []
        leading = None
        for rack in order:
            leader = rack.unfenced.take(self._round)
            if leader is not None:
                chosen.append(leader)
                leading = rack
                break
        while len(chosen) < replication_factor:
            for rack in order:
                if rack is leading:  # it has given the first replica of this partition
                    leading = None
                    continue
                broker = rack.take(self._round)
                if broker is not None:
                    chosen.append(broker)
                if len(chosen) == replication_factor:
                    break
        self._round += 1
        self._first = start + 1
        return tuple(chosen)

    def _shuffle(self) -> None:
        self._rng.shuffle(self._racks)
        for rack in self._racks:
            self._rng.shuffle(rack.fenced.brokers)
            self._rng.shuffle(rack.unfenced.brokers)
        self._round = 0


def _last_of_rack(existing: Sequence[Ids], racks: dict[int, str | None], name: str | None) -> int | None:
    """Return the broker of a rack that an earlier partition of the topic used last."""
    for replicas in reversed(existing):
        for broker in replicas:
            if broker in racks and racks[broker] == name:
                return broker
    return None


def place(
    brokers: Sequence[UsableBroker],
    partitions: int,
    replication_factor: int,
    rng: Random,
    existing: Sequence[Ids] = (),
    *,
    is_first: bool = False,
) -> list[Ids]:
    """Return the replicas of new partitions of a topic; for a cluster's first topic they are always the same."""
    if replication_factor <= 0:
        raise _impossible(f"the replication factor is {replication_factor}, expected 1 or more")
    if all(each.fenced for each in brokers):
        raise _impossible("all brokers are fenced")
    if replication_factor > len(brokers):
        raise _impossible(
            f"the replication factor is {replication_factor}, but only {len(brokers)} brokers are registered"
        )
    placer = _Placer(brokers, existing, rng, is_first)
    return [placer.place(replication_factor) for _ in range(partitions)]


def _impossible(message: str) -> KafkaError:
    return KafkaError(message, ErrorCode.INVALID_REPLICATION_FACTOR)
