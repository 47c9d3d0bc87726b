"""GET /cluster/overview: whether all is well, in one call that a page can repeat every few seconds.

Sums over partitions are computed once for each metadata image, checks of a broker's health once in some seconds. Other
brokers are asked for their own figures; one that does not answer is shown with the reason.
"""

from typing import Any

import msgspec

from penstock.base.internal_topics import INTERNAL_TOPICS
from penstock.base.steps import Steps
from penstock.gateway.http.operations import DEGRADED, OK, UNAVAILABLE
from penstock.gateway.http.protocol.messages import Request, Response, Routes, json
from penstock.gateway.observing.gathering import Gathered, gather
from penstock.gateway.observing.partition_counts import PartitionCounts
from penstock.gateway.observing.status import NodeStatus, QuorumReplica, QuorumStatus
from penstock.gateway.peer_rpc.messages import GetNodeStatus
from penstock.gateway.shared.access import DESCRIBE_CLUSTER, Rule
from penstock.gateway.shared.cluster_metrics import broker_state
from penstock.gateway.shared.health import Problem
from penstock.handlers.support.context import Context

ROUTES = Routes("cluster")


class Rates(msgspec.Struct):
    """Per second, in the last 5 seconds."""

    bytes_in: float
    bytes_out: float
    messages_in: float
    messages_out: float
    requests: float
    """Of Kafka, HTTP and line clients."""


class PartitionSummary(msgspec.Struct):
    """Partitions of the cluster, by the metadata."""

    total: int
    offline: int
    """Without a leader."""
    under_min_isr: int
    """With fewer in-sync replicas than `min.insync.replicas`: `acks=all` is refused."""
    under_replicated: int
    """With a replica that is not in sync."""
    reassigning: int
    unpreferred: int
    """Led by another broker than the first of their replicas."""


class BrokerOverview(msgspec.Struct):
    id: int
    rack: str | None
    state: str
    """`active`, `stopping` (controlled shutdown) or `fenced`."""
    missing: str | None
    """Why the broker did not answer; what follows is null then, except for leaders and replicas."""
    leaders: int
    """Partitions that it leads."""
    replicas: int
    version: str | None
    uptime_ms: int | None
    disk_bytes: int | None
    """Size of the volume of its logs."""
    disk_usable_bytes: int | None
    log_bytes: int | None
    connections: int | None
    cpu: float | None
    """In cores."""
    memory_bytes: int | None
    rates: Rates | None
    """Null in the first seconds after its start."""
    problems: list[Problem]
    """What keeps it from its work, as in `GET /health`."""
    warnings: list[Problem]


class VoterOverview(msgspec.Struct):
    id: int
    lag: int | None
    """Records of the metadata log that it is behind the leader; null if the active controller does not tell."""
    behind_ms: int | None
    """Time since it last had all records."""


class QuorumOverview(msgspec.Struct):
    leader: int | None
    """The active controller; null while there is none."""
    epoch: int
    high_watermark: int
    voters: list[VoterOverview]
    observers: list[VoterOverview]
    """Brokers that follow the metadata log without a vote; only if the active controller tells."""


class ClusterOverview(msgspec.Struct):
    status: str
    """`ok`; `unavailable` if partitions have no leader, there is no controller, or a broker has problems; `degraded`
    if the cluster has other problems."""
    cluster_id: str
    node_id: int
    """The broker that answers."""
    time: int
    """Milliseconds since 1970, by the clock of that broker."""
    topics: int
    """Without internal topics."""
    partitions: PartitionSummary
    rates: Rates
    """Sums over the brokers that answered."""
    brokers: list[BrokerOverview]
    quorum: QuorumOverview
    problems: list[Problem]
    """Of the cluster, as in `cluster_problems` of `GET /health`, with fenced brokers."""


@ROUTES.add(
    "GET",
    "/cluster/overview",
    "Whether all is well: brokers, controller quorum, partitions, rates and problems, from all brokers.",
    answer=ClusterOverview,
    rule=Rule((DESCRIBE_CLUSTER,)),
)
def _overview(gateway: Any, _: Request) -> Steps[Response]:
    context: Context = gateway.context
    counts: PartitionCounts = yield from gateway.partition_counter.counts()
    gathered: Gathered[NodeStatus] = yield from gather(context, GetNodeStatus(), gateway.status.status())
    brokers = _brokers(context, counts, gathered)
    rates = [each.rates for each in brokers if each.rates is not None]
    leader = context.quorum.leader_id
    is_unavailable = counts.offline or leader < 0 or any(each.problems for each in brokers)
    is_degraded = counts.problems or gathered.missing
    return json(
        ClusterOverview(
            UNAVAILABLE if is_unavailable else DEGRADED if is_degraded else OK,
            context.cluster_id,
            context.node_id,
            context.world.now_ms(),
            sum(name not in INTERNAL_TOPICS for name in context.image.topics),
            PartitionSummary(
                counts.partitions,
                counts.offline,
                counts.under_min_isr,
                counts.under_replicated,
                counts.reassigning,
                counts.unpreferred,
            ),
            Rates(*(sum(getattr(each, name) for each in rates) for name in Rates.__struct_fields__)),
            brokers,
            _quorum(context, gathered),
            counts.problems,
        )
    )


def _brokers(
    context: Context, counts: PartitionCounts, gathered: Gathered[NodeStatus]
) -> list[BrokerOverview]:
    missing = {each.broker: each.reason for each in gathered.missing}
    found = []
    for broker_id, broker in sorted(context.image.brokers.items()):
        status = gathered.replies.get(broker_id)
        figures = {} if status is None else status.figures
        found.append(
            BrokerOverview(
                broker_id,
                broker.rack,
                broker_state(broker),
                missing.get(broker_id),
                counts.leaders[broker_id],
                counts.replicas[broker_id],
                None if status is None else status.version,
                None if status is None else status.uptime_ms,
                _whole(figures, "disk_bytes"),
                _whole(figures, "disk_usable_bytes"),
                _whole(figures, "log_bytes"),
                _whole(figures, "connections"),
                round(figures["cpu"], 3) if "cpu" in figures else None,
                _whole(figures, "memory_bytes"),
                _rates(figures),
                [] if status is None else status.problems,
                [] if status is None else status.warnings,
            )
        )
    return found


def _whole(figures: dict[str, float], name: str) -> int | None:
    return int(figures[name]) if name in figures else None


def _rates(figures: dict[str, float]) -> Rates | None:
    if "bytes_in" not in figures:
        return None
    requests = sum(value for name, value in figures.items() if name.startswith("requests_"))
    found = {**figures, "requests": requests}
    return Rates(*(round(found.get(name, 0.0), 3) for name in Rates.__struct_fields__))


def _quorum(context: Context, gathered: Gathered[NodeStatus]) -> QuorumOverview:
    """The active controller knows how far the others are. It may be a node without a gateway, which is not asked."""
    quorum, now_ms = context.quorum, context.world.now_ms()
    leader = quorum.leader_id if quorum.leader_id >= 0 else None
    described = next((each.quorum for each in gathered.replies.values() if each.quorum is not None), None)
    if described is None or described.leader != leader:
        voters = [VoterOverview(each.key.id, None, None) for each in quorum.voters]
        return QuorumOverview(leader, quorum.epoch, quorum.high_watermark, voters, [])

    def shown(each: QuorumReplica, of: QuorumStatus) -> VoterOverview:
        lag = max(of.log_end_offset - each.log_end_offset, 0) if each.log_end_offset >= 0 else None
        behind_ms = max(now_ms - each.last_caught_up_ms, 0) if each.last_caught_up_ms > 0 else None
        return VoterOverview(each.id, lag, 0 if lag == 0 else behind_ms)

    return QuorumOverview(
        leader,
        described.epoch,
        quorum.high_watermark,
        [shown(each, described) for each in described.voters],
        [shown(each, described) for each in described.observers],
    )
