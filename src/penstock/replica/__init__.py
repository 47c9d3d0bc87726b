"""Partitions as this node holds them: what is written, what is committed, and who waits for either.

data_path      a batch in a replica: staged, written, committed, synced; who waits for which
partition      one replica: who leads it, who follows it
in_sync        its followers, as their leader knows them
isr_changes    what leaders ask of the controller
hearsay        what a leader that may be deposed does not say
fetchers       what is led elsewhere, copied from there: a `fetcher` for each leader, its `fetch_session`
following      one partition of it: what is asked for, appended, cut off
throttle       how fast, while partitions are moved
replicas       all of the node's, found by topic name or id; follows the cluster's image
housekeeping   retention, compaction, checkpoints: what the clock brings
"""

from penstock.replica.partition import ALL_IN_SYNC, Durability, Partition, Watcher, Writer
from penstock.replica.replicas import Replicas

__all__ = ["ALL_IN_SYNC", "Durability", "Partition", "Replicas", "Watcher", "Writer"]
