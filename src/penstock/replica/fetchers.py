"""Replication of the partitions that other brokers lead: a `Fetcher` for each leader.

    replica.fetch.wait.max.ms         how long a leader may wait for records
    replica.fetch.min.bytes           and for how many bytes
    replica.fetch.max.bytes           largest response for one partition
    replica.fetch.response.max.bytes  largest response, and the memory that a leader costs here
    replica.fetch.backoff.ms          the longest backoff after an error
    replica.socket.timeout.ms         the request timeout

A batch that is larger than a limit is fetched whole.
"""

from collections.abc import Callable

from penstock.base.ids import Offset, TopicPartition
from penstock.base.world import World
from penstock.replica.broker_client import BrokerClient
from penstock.replica.delayed_operations import Durability
from penstock.replica.fetcher import Fetcher
from penstock.replica.follower_replica import FollowerReplica, TopicIdPartition
from penstock.replica.follower_syncs import FollowerSyncs
from penstock.replica.partition import Partition
from penstock.replica.sync_lane import SyncLane
from penstock.replica.throttle import Throttle


class Fetchers:
    def __init__(
        self,
        world: World,
        node_id: int,
        broker_client: BrokerClient,
        lane: SyncLane,
        durability: Durability,
        *,
        setting: Callable[[str], int],
        broker_epoch: Callable[[], int],
        save_log_starts: Callable[[dict[TopicPartition, Offset]], None],
    ) -> None:
        """`setting` returns the current value of a broker setting; `save_log_starts` saves new log starts, all with
        one write."""
        self.world = world
        self.node_id = node_id
        self.broker_client = broker_client
        self.broker_epoch = broker_epoch
        self.save_log_starts = save_log_starts
        self.syncs = FollowerSyncs(world, lane, durability)
        self.throttle = Throttle(lambda: setting("follower.replication.throttled.rate"))
        self.wait_ms_max = setting("replica.fetch.wait.max.ms")
        self.bytes_min = setting("replica.fetch.min.bytes")
        self.bytes_max = setting("replica.fetch.response.max.bytes")
        self.partition_bytes_max = setting("replica.fetch.max.bytes")
        self.backoff_ms = setting("replica.fetch.backoff.ms")
        self.timeout_ms = setting("replica.socket.timeout.ms")
        self._fetchers: dict[int, Fetcher] = {}
        self._by_key: dict[TopicIdPartition, Fetcher] = {}
        self._throttled: set[TopicIdPartition] = set()
        self._is_stopped = False
        self.copied_bytes = 0
        """Fetched from all leaders."""
        self.failures = 0
        """Failed requests, and errors of single partitions."""

    @property
    def has_throttled(self) -> bool:
        return bool(self._throttled)

    def replica_of(self, partition: Partition) -> FollowerReplica | None:
        key = (partition.topic_id, partition.number)
        fetcher = self._by_key.get(key)
        return None if fetcher is None else fetcher.replicas.get(key)

    def replicas(self) -> list[FollowerReplica]:
        """All partitions that are replicated now."""
        return [each for fetcher in self._fetchers.values() for each in fetcher.replicas.values()]

    def follow(self, partition: Partition, *, is_throttled: bool = False) -> None:
        """Replicate a partition from its current leader. If it is replicated from that leader in the same leader epoch
        already, nothing changes."""
        if self._is_stopped:
            return
        current = self.replica_of(partition)
        key = (partition.topic_id, partition.number)
        if current is not None and current.partition is partition:
            fetcher = self._by_key[key]
            if (fetcher.leader_id, current.leader_epoch) == (partition.leader_id, partition.leader_epoch):
                self.throttle_one(partition, is_throttled)
                return
        self.forget(partition)
        if partition.leader_id < 0:
            return
        if partition.leader_id not in self._fetchers:
            self._fetchers[partition.leader_id] = Fetcher(partition.leader_id, self)
        fetcher = self._by_key[key] = self._fetchers[partition.leader_id]
        if is_throttled:
            self._throttled.add(key)
        fetcher.follow(FollowerReplica(partition, self.partition_bytes_max, is_throttled=is_throttled))

    def forget(self, partition: Partition) -> None:
        key = (partition.topic_id, partition.number)
        fetcher = self._by_key.pop(key, None)
        if fetcher is not None:
            fetcher.forget(key)
        self._throttled.discard(key)
        self.syncs.forget(partition)

    def suspend(self, partition: Partition) -> None:
        """Stop replicating a partition until `resume`: its disk fails."""
        key = (partition.topic_id, partition.number)
        fetcher = self._by_key.get(key)
        if fetcher is not None:
            fetcher.suspend(key)

    def resume(self, partition: Partition) -> None:
        """Replicate a partition again: the disk accepts writes."""
        key = (partition.topic_id, partition.number)
        fetcher = self._by_key.get(key)
        if fetcher is not None:
            fetcher.resume(key)

    def throttle_one(self, partition: Partition, is_throttled: bool) -> None:
        replica = self.replica_of(partition)
        if replica is not None:
            replica.is_throttled = is_throttled
            (self._throttled.add if is_throttled else self._throttled.discard)(replica.key)

    def stop(self) -> None:
        """Stop replicating: the node is about to stop."""
        self._is_stopped = True
        for fetcher in self._fetchers.values():
            fetcher.stop()
        self._fetchers.clear()
        self._by_key.clear()
        self.syncs.stop()
