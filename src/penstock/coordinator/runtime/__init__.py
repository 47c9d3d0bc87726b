"""Runs the coordinators on the partitions that keep their state: records appended, replies released when committed.

shard_log      one partition of an internal topic: read whole, written to in order
patience       who waits for what is written there, and how long
shard          a coordinator on it: loaded, serving, lost again
shards         all of a topic's that are led here
groups         consumer groups, on `__consumer_offsets`
group_settings what they go by
image_topics   topics, as coordinators of groups ask for them
transactions   transactions, on `__transaction_state`
markers        the ends of transactions, written to the partitions that took part
"""

from penstock.coordinator.runtime.groups import Groups
from penstock.coordinator.runtime.markers import MarkerWriter
from penstock.coordinator.runtime.transactions import Transactions

__all__ = ["Groups", "MarkerWriter", "Transactions"]
