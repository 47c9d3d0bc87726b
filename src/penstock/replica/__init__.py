"""Partitions as this node holds them: what is written, what is committed, and who waits for either.

partition      one replica: staged, written, synced, committed; its waiting producers and readers
replicas       all of the node's, found by topic name or id; follows the cluster's image
housekeeping   retention, compaction, checkpoints: what the clock brings
"""

from penstock.replica.partition import ALL_IN_SYNC, Durability, Partition, Watcher, Writer
from penstock.replica.replicas import Replicas

__all__ = ["ALL_IN_SYNC", "Durability", "Partition", "Replicas", "Watcher", "Writer"]
