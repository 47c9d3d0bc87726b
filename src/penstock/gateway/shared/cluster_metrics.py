"""The part of the metrics page about the cluster: its quorum, its partitions, and replication.

Metrics that begin with `penstock_cluster_` come from the metadata image. Every node with an up-to-date image has the
same values, so that one node is enough for a dashboard.
"""

from typing import Final

from penstock.base.steps import Steps, next_tick
from penstock.gateway.shared.exposition import Page
from penstock.handlers.support.context import Context
from penstock.metadata.image import Broker, PartitionRegistration
from penstock.metadata.records import NO_LEADER

ROLES: Final = (
    "leader",
    "follower",
    "observer",
    "prospective",
    "candidate",
    "resigned",
    "unattached",
)
"""Roles of a node in the controller quorum."""

_STATES: Final = ("active", "stopping", "fenced")


class PartitionSums:
    """Sums over all partitions of the cluster."""

    __slots__ = ("offline", "partitions", "reassigning", "unpreferred")

    def __init__(self) -> None:
        self.partitions = self.offline = self.unpreferred = self.reassigning = 0

    def add(self, partition: PartitionRegistration) -> None:
        leader = partition.leader
        self.partitions += 1
        if leader == NO_LEADER:
            self.offline += 1
        elif leader != partition.replicas[0]:
            self.unpreferred += 1
        if partition.adding or partition.removing:
            self.reassigning += 1


def partition_sums(context: Context, a_tick: int) -> Steps[PartitionSums]:
    """Sums over all partitions of the cluster, some of them in each tick."""
    sums = PartitionSums()
    for topic in context.image.topics.values():
        for partition in topic.partitions.values():
            sums.add(partition)
            if sums.partitions % a_tick == 0:
                yield next_tick(context.world)
    return sums


def quorum(page: Page, context: Context) -> None:
    raft = context.quorum
    page.gauge(
        "penstock_raft_role",
        "Role of the node in the controller quorum: 1 for the current role, 0 for all others.",
        [((("role", name),), int(raft.role == name)) for name in ROLES],
    )
    for name, value, what in (
        (
            "leader_id",
            raft.leader_id,
            "Leader of the controller quorum as known to this node; -1 for none.",
        ),
        ("epoch", raft.epoch, "Epoch of the controller quorum. Each election increments it."),
        ("high_watermark", raft.high_watermark, "First offset of the metadata log that is not committed."),
        ("log_end_offset", raft.end_offset, "Log end offset of the metadata log on this node."),
        ("voters", len(raft.voters), "Voters of the controller quorum."),
        (
            "recovering",
            int(raft.is_recovering),
            "1 while the node may not lead the quorum, because its metadata log has lost synced records.",
        ),
    ):
        page.gauge(f"penstock_raft_{name}", what, value)
    page.counter(
        "penstock_raft_elections_total",
        "Controller elections in which the node was a candidate.",
        raft.elections,
    )


def cluster(page: Page, context: Context, sums: PartitionSums) -> None:
    page.gauge(
        "penstock_controller_active",
        "1 if this node is the active controller.",
        int(context.quorum.is_leader),
    )
    states = [broker_state(each) for each in context.image.brokers.values()]
    page.gauge(
        "penstock_cluster_brokers",
        "Brokers of the cluster that are active, in controlled shutdown, or fenced.",
        [((("state", state),), states.count(state)) for state in _STATES],
    )
    for name, value, what in (
        ("", sums.partitions, "Partitions of the cluster."),
        ("_offline", sums.offline, "Partitions of the cluster without a leader."),
        ("_unpreferred", sums.unpreferred, "Partitions whose leader is not their preferred replica."),
        ("_reassigning", sums.reassigning, "Partitions that are being reassigned."),
    ):
        page.gauge(f"penstock_cluster_partitions{name}", what, value)
    elections = context.metrics.elections
    page.counter(
        "penstock_cluster_leader_elections_total",
        "Leader changes of partitions since the node started.",
        elections.changes,
    )
    page.counter(
        "penstock_cluster_unclean_elections_total",
        "Unclean leader elections since the node started: the new leader may lack acknowledged records.",
        elections.unclean,
    )


def broker_state(broker: Broker) -> str:
    if broker.fenced:
        return "fenced"
    return "stopping" if broker.in_controlled_shutdown else "active"


def replication(page: Page, context: Context, under_replicated: int, under_min_isr: int) -> None:
    replicas = context.replicas
    changes, fetchers = replicas.isr_changes, replicas.fetchers
    followed = fetchers.replicas() if fetchers is not None else []
    for name, value, what in (
        (
            "partitions_under_replicated",
            under_replicated,
            "Partitions that this node leads with a replica that is not in sync.",
        ),
        (
            "partitions_under_min_isr",
            under_min_isr,
            "Partitions that this node leads with fewer in-sync replicas than min.insync.replicas.",
        ),
        ("partitions_followed", len(followed), "Partitions that this node follows."),
        (
            "partitions_follow_failing",
            sum(each.errors > 0 for each in followed),
            "Followed partitions whose last fetch failed.",
        ),
        (
            "follower_lag_max",
            max(0, max((each.lag for each in followed), default=0)),
            "Largest lag of a followed partition behind its leader's high watermark, in records.",
        ),
    ):
        page.gauge(f"penstock_{name}", what, value)
    for name, count, what in (
        ("isr_shrinks", changes.shrinks if changes else 0, "ISR shrinks of partitions that this node leads."),
        (
            "isr_expands",
            changes.expands if changes else 0,
            "ISR expansions of partitions that this node leads.",
        ),
        (
            "isr_changes_refused",
            changes.failures if changes else 0,
            "ISR changes that the controller rejected.",
        ),
        ("replication_bytes_out", context.metrics.replicated_bytes_out, "Bytes sent to followers."),
        (
            "replication_bytes_in",
            fetchers.copied_bytes if fetchers else 0,
            "Bytes fetched from leaders of followed partitions.",
        ),
        (
            "replication_failures",
            fetchers.failures if fetchers else 0,
            "Failed fetches from leaders, as a whole or for a partition.",
        ),
    ):
        page.counter(f"penstock_{name}_total", what, count)
