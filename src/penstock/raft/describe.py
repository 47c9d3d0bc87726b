"""The state of the quorum, for DescribeQuorum."""

from typing import NamedTuple

from penstock.base.ids import LeaderEpoch, Offset, TimestampMs
from penstock.raft.voters import Endpoint, ReplicaKey


class ReplicaDescription(NamedTuple):
    key: ReplicaKey
    log_end_offset: Offset
    last_fetch_ms: TimestampMs
    last_caught_up_ms: TimestampMs
    endpoints: tuple[Endpoint, ...] = ()


class QuorumDescription(NamedTuple):
    """Only a leader knows the replicas' state; elsewhere both lists are empty."""

    leader_id: int
    epoch: LeaderEpoch
    high_watermark: Offset
    """-1 while the leader has committed nothing in its epoch."""
    voters: tuple[ReplicaDescription, ...] = ()
    observers: tuple[ReplicaDescription, ...] = ()
