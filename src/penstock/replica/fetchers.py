"""What is led elsewhere and followed here, by leader: each has a `Fetcher`.

    replica.fetch.wait.max.ms         how long a leader may wait for records
    replica.fetch.min.bytes           and for how many
    replica.fetch.max.bytes           at most for one partition
    replica.fetch.response.max.bytes  at most for all of an answer, which is what is held in memory for a leader
    replica.fetch.backoff.ms          the longest rest after an error
    replica.socket.timeout.ms         a leader that is silent for so long is gone

A batch that is larger than a limit comes whole.
"""

from collections.abc import Callable

from penstock.base.ids import Offset, TopicPartition
from penstock.base.world import World
from penstock.replica.broker_client import BrokerClient
from penstock.replica.fetcher import Fetcher
from penstock.replica.follower_syncs import FollowerSyncs
from penstock.replica.following import Following, Key
from penstock.replica.partition import Durability, Partition, SyncLane
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
        """`setting` is one of the broker's, as it is in force now; `save_log_starts` notes where logs are about to
        begin, all with one write."""
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
        self._by_key: dict[Key, Fetcher] = {}
        self._throttled: set[Key] = set()
        self._is_stopped = False
        self.copied_bytes = 0
        """What all leaders gave."""
        self.failures = 0
        """Of leaders that could not be asked, and of single partitions."""

    @property
    def has_throttled(self) -> bool:
        return bool(self._throttled)

    def following(self, partition: Partition) -> Following | None:
        key = (partition.topic_id, partition.number)
        fetcher = self._by_key.get(key)
        return None if fetcher is None else fetcher.following.get(key)

    def everyone(self) -> list[Following]:
        """All that is followed now."""
        return [each for fetcher in self._fetchers.values() for each in fetcher.following.values()]

    def follow(self, partition: Partition, *, is_throttled: bool = False) -> None:
        """Copy a partition from the leader that it has now. What is copied from that leader, in the same epoch, goes
        on as it is."""
        if self._is_stopped:
            return
        current = self.following(partition)
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
        fetcher.follow(Following(partition, self.partition_bytes_max, is_throttled=is_throttled))

    def forget(self, partition: Partition) -> None:
        key = (partition.topic_id, partition.number)
        fetcher = self._by_key.pop(key, None)
        if fetcher is not None:
            fetcher.forget(key)
        self._throttled.discard(key)
        self.syncs.forget(partition)

    def suspend(self, partition: Partition) -> None:
        """Copy nothing of a partition until `resume`: its disk fails."""
        key = (partition.topic_id, partition.number)
        fetcher = self._by_key.get(key)
        if fetcher is not None:
            fetcher.suspend(key)

    def resume(self, partition: Partition) -> None:
        """The disk takes writes of a partition again."""
        key = (partition.topic_id, partition.number)
        fetcher = self._by_key.get(key)
        if fetcher is not None:
            fetcher.resume(key)

    def throttle_one(self, partition: Partition, is_throttled: bool) -> None:
        following = self.following(partition)
        if following is not None:
            following.is_throttled = is_throttled
            (self._throttled.add if is_throttled else self._throttled.discard)(following.key)

    def stop(self) -> None:
        """Copy nothing more: the node is about to stop."""
        self._is_stopped = True
        for fetcher in self._fetchers.values():
            fetcher.stop()
        self._fetchers.clear()
        self._by_key.clear()
        self.syncs.stop()
