"""The coordinators of one internal topic: a shard for each of its partitions that this broker leads.

`follow` starts and stops shards as the image shows changes of leadership.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Generic, TypeVar

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.hashing import partition_for
from penstock.base.world import World
from penstock.coordinator.runtime.coordinator_log import CoordinatorLog
from penstock.coordinator.runtime.coordinator_shard import CoordinatorShard
from penstock.metadata.image import ClusterImage
from penstock.replica import Replicas

S = TypeVar("S", bound=CoordinatorShard)

RELOAD_MS = 1000
"""Minimum time between two loads of a partition."""


class CoordinatorShards(Generic[S]):
    def __init__(
        self, topic: str, world: World, replicas: Replicas, make: Callable[[int, CoordinatorLog], S]
    ) -> None:
        self.topic = topic
        self._world = world
        self._replicas = replicas
        self._make = make
        self._shards: dict[int, S] = {}
        self._reloaded_ms: dict[int, int] = {}
        """When each partition was last loaded again, by a monotonic clock."""
        self._count = 0
        """Partitions of the topic; 0 while it does not exist."""

    def __iter__(self) -> Iterator[S]:
        return iter(list(self._shards.values()))

    @property
    def count(self) -> int:
        return self._count

    def follow(self, image: ClusterImage) -> None:
        """Keep a shard for each partition that this broker leads, and for no other."""
        topic = image.topics.get(self.topic)
        self._count = 0 if topic is None else len(topic.partitions)
        for number in range(max(self._count, max(self._shards, default=-1) + 1)):
            partition = self._replicas.led(self.topic, number) if number < self._count else None
            held = self._shards.get(number)
            if held is not None and not held.log.is_still(partition):
                self._drop(number, held)
                held = None
            if held is None and partition is not None:
                self._begin(number)

    def reload(self, number: int) -> None:
        """Drop the state of a shard and load it from the log, at most once in `RELOAD_MS`: if every write fails, as on
        a read-only disk, the broker would do nothing else."""
        held, now_ms = self._shards.get(number), self._world.clock_ns() // 1_000_000
        if held is None:
            return
        wait_ms = self._reloaded_ms.get(number, now_ms - RELOAD_MS) + RELOAD_MS - now_ms
        if wait_ms > 0:
            self._world.call_later(wait_ms, partial(self._reload_if_held, number, held))
            return
        self._reloaded_ms[number] = now_ms
        self._drop(number, held)
        self._begin(number)

    def _reload_if_held(self, number: int, shard: S) -> None:
        if self._shards.get(number) is shard:
            self.reload(number)

    def _begin(self, number: int) -> None:
        partition = self._replicas.led(self.topic, number)
        if partition is not None:
            shard = self._make(number, CoordinatorLog(self._world, partition))
            self._shards[number] = shard
            shard.load()

    def _drop(self, number: int, shard: S) -> None:
        del self._shards[number]
        shard.unload()

    def close(self) -> None:
        """Unload all shards: the node stops."""
        for number, shard in list(self._shards.items()):
            self._drop(number, shard)

    def number_of(self, name: str) -> int:
        """The partition that holds a group or a transactional id."""
        if not self._count:
            raise KafkaError(
                f"topic {self.topic} does not exist yet; retry", ErrorCode.COORDINATOR_NOT_AVAILABLE
            )
        return partition_for(name, self._count)

    def of(self, name: str) -> S:
        """The shard of a group or a transactional id; raises NOT_COORDINATOR if another broker has it."""
        number = self.number_of(name)
        shard = self._shards.get(number)
        if shard is None:
            raise KafkaError(
                f"This broker does not lead {self.topic}-{number}, which holds {name}; find the coordinator again.",
                ErrorCode.NOT_COORDINATOR,
            )
        return shard

    def at(self, number: int) -> S | None:
        return self._shards.get(number)
