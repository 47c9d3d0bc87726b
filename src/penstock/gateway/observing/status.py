"""Health and figures of one broker, as brokers send them to each other."""

import msgspec

from penstock.base.ids import LeaderEpoch, Offset, TimestampMs
from penstock.gateway.shared.health import Problem


class QuorumReplica(msgspec.Struct, frozen=True, array_like=True):
    id: int
    log_end_offset: Offset
    last_caught_up_ms: TimestampMs


class QuorumStatus(msgspec.Struct, frozen=True, array_like=True):
    """As the active controller has it."""

    leader: int
    epoch: LeaderEpoch
    log_end_offset: Offset
    voters: list[QuorumReplica]
    observers: list[QuorumReplica]


class NodeStatus(msgspec.Struct, frozen=True, array_like=True):
    """Fields are only added at the end, with a default."""

    version: str
    uptime_ms: int
    problems: list[Problem]
    warnings: list[Problem]
    figures: dict[str, float]
    """The latest sample of each series that has one."""
    quorum: QuorumStatus | None
    """None unless the broker is the active controller."""
