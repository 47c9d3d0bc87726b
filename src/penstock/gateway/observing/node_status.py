"""Health and figures of this broker, for itself and for other brokers' overviews.

A check of health reads all partitions, so it is remembered for a moment: however many pages show an overview, it is
done once in that time.
"""

from typing import Final, Protocol

from penstock import __version__
from penstock.base.steps import Steps
from penstock.gateway.observing.node_history import NodeSampler
from penstock.gateway.observing.status import NodeStatus, QuorumReplica, QuorumStatus
from penstock.gateway.shared.health import ObservedNode, Problem, problems, warnings
from penstock.handlers.support.context import Context
from penstock.raft.describe import ReplicaDescription

FRESH_MS_MIN: Final = 2_000
"""How long a check of health is good for, at least."""

FRESH_TIMES: Final = 100
"""It is good for this many times what it took: with very many partitions, it takes one percent of the loop."""


class StatusSource(ObservedNode, Protocol):
    history: NodeSampler


class NodeStatusReader:
    def __init__(self, node: StatusSource) -> None:
        self._node = node
        self._problems: list[Problem] = []
        self._fresh_until_ms: float = 0
        """By a monotonic clock."""

    def status(self) -> Steps[NodeStatus]:
        node = self._node
        context = node.context
        found = yield from self._checked()
        uptime_ns = context.world.clock_ns() - context.metrics.started_ns
        return NodeStatus(
            __version__,
            uptime_ns // 1_000_000,
            found,
            warnings(node),
            node.history.latest(),
            _quorum(context),
        )

    def _checked(self) -> Steps[list[Problem]]:
        world = self._node.context.world
        began_ms = world.clock_ns() / 1e6
        if began_ms >= self._fresh_until_ms:
            self._problems = yield from problems(self._node)
            now_ms = world.clock_ns() / 1e6
            self._fresh_until_ms = now_ms + max(FRESH_MS_MIN, FRESH_TIMES * (now_ms - began_ms))
        return self._problems


def _quorum(context: Context) -> QuorumStatus | None:
    quorum = context.quorum
    if not quorum.is_leader:
        return None
    described = quorum.describe()
    return QuorumStatus(
        described.leader_id,
        described.epoch,
        quorum.end_offset,
        [_replica(each) for each in described.voters],
        [_replica(each) for each in described.observers],
    )


def _replica(each: ReplicaDescription) -> QuorumReplica:
    return QuorumReplica(each.key.id, each.log_end_offset, each.last_caught_up_ms)
