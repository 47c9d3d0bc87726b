"""Runs the coordinators on the partitions that keep their state: records appended, replies released when committed.

shard          one partition of an internal topic: loaded, written to in order, lost again
shards         all of a topic's that are led here
groups         consumer groups, on `__consumer_offsets`
transactions   transactions, on `__transaction_state`
markers        the ends of transactions, written to the partitions that took part
"""

from penstock.runtime.groups import Groups
from penstock.runtime.markers import MarkerWriter
from penstock.runtime.transactions import Transactions

__all__ = ["Groups", "MarkerWriter", "Transactions"]
