"""The partitions of this broker: log end, high watermark, ISR, replication and the requests that wait.

partition           one replica: leader or follower, ISR, high watermark
append_path         appends to a leader: staged, written
pending_acks        produce requests that wait for the ISR or for a sync (`leader_syncs`)
delayed_operations  interfaces of the requests that wait
isr                 a leader's followers, and which of them are in sync
isr_changes         ISR changes, sent to the controller
deposed_leader      errors of a leader that may have been deposed
failing_disk        replicas whose disk fails leave the ISR
fetchers            replication from other leaders: a `fetcher` for each leader, with its `fetch_session`
follower_replica    one partition of a fetcher: fetched, appended, truncated
throttle            replication quotas during reassignments
replicas            all partitions, found by topic name or id; applies the cluster image
failed_creations    partitions whose files could not be created
unclaimed           logs on disk that the image does not place here; `removals` deletes logs
housekeeping        retention, compaction, checkpoints
"""

from penstock.replica.delayed_operations import ALL_IN_SYNC, DelayedFetch, DelayedProduce, Durability
from penstock.replica.partition import Partition
from penstock.replica.replicas import Replicas

__all__ = ["ALL_IN_SYNC", "DelayedFetch", "DelayedProduce", "Durability", "Partition", "Replicas"]
