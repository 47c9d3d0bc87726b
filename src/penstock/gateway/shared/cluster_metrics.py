"""The part of the metrics page that is about the cluster: its quorum, its partitions, and what is copied.

What begins with `penstock_cluster_` is read off the metadata that every node has: each shows the same, but for those
that are behind, and one of them is enough to look at.
"""

from typing import Final

from penstock.base.steps import Steps, next_tick
from penstock.gateway.shared.exposition import Page
from penstock.handlers.support.context import Context
from penstock.metadata import Broker, Partition
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
"""Of a node in the quorum."""

_STATES: Final = ("active", "stopping", "fenced")


class PartitionSums:
    """All partitions of the cluster."""

    __slots__ = ("offline", "partitions", "reassigning", "unpreferred")

    def __init__(self) -> None:
        self.partitions = self.offline = self.unpreferred = self.reassigning = 0

    def add(self, partition: Partition) -> None:
        leader = partition.leader
        self.partitions += 1
        if leader == NO_LEADER:
            self.offline += 1
        elif leader != partition.replicas[0]:
            self.unpreferred += 1
        if partition.adding or partition.removing:
            self.reassigning += 1


def partition_sums(context: Context, a_turn: int) -> Steps[PartitionSums]:
    """Look at all of them, so many in a turn."""
    sums = PartitionSums()
    for topic in context.image.topics.values():
        for partition in topic.partitions.values():
            sums.add(partition)
            if sums.partitions % a_turn == 0:
                yield next_tick(context.world)
    return sums


def quorum(page: Page, context: Context) -> None:
    raft = context.quorum
    page.gauge(
        "penstock_raft_role",
        "What the node is in the quorum of controllers: 1 for that, 0 for all else.",
        [((("role", name),), int(raft.role == name)) for name in ROLES],
    )
    for name, value, what in (
        (
            "leader_id",
            raft.leader_id,
            "The node that leads the quorum, as far as this one knows; -1 for none.",
        ),
        ("epoch", raft.epoch, "The quorum's epoch: one more with each election."),
        ("high_watermark", raft.high_watermark, "First offset of the metadata log that is not committed."),
        ("log_end_offset", raft.end_offset, "Next offset of the metadata log here."),
        ("voters", len(raft.voters), "Controllers that vote."),
        (
            "recovering",
            int(raft.is_recovering),
            "1 while the node may not lead: its metadata log lost records that were synced.",
        ),
    ):
        page.gauge(f"penstock_raft_{name}", what, [((), value)])
    page.counter(
        "penstock_raft_elections_total", "Elections in which the node stood.", [((), raft.elections)]
    )


def cluster(page: Page, context: Context, sums: PartitionSums) -> None:
    page.gauge(
        "penstock_controller_active",
        "1 where the active controller is in this process.",
        [((), int(context.quorum.is_leader))],
    )
    states = [_state(each) for each in context.image.brokers.values()]
    page.gauge(
        "penstock_cluster_brokers",
        "Brokers of the cluster that may lead, that are about to stop, and that are not counted on.",
        [((("state", state),), states.count(state)) for state in _STATES],
    )
    for name, value, what in (
        ("", sums.partitions, "Partitions of the cluster."),
        ("_offline", sums.offline, "Partitions of the cluster that nobody leads."),
        ("_unpreferred", sums.unpreferred, "Partitions that are led by another than their first replica."),
        ("_reassigning", sums.reassigning, "Partitions on their way to other brokers."),
    ):
        page.gauge(f"penstock_cluster_partitions{name}", what, [((), value)])
    elections = context.metrics.elections
    page.counter(
        "penstock_cluster_leader_elections_total",
        "Partitions that got another leader while the node was there.",
        [((), elections.changes)],
    )
    page.counter(
        "penstock_cluster_unclean_elections_total",
        "Those whose new leader may lack what was acknowledged.",
        [((), elections.unclean)],
    )


def _state(broker: Broker) -> str:
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
            "Partitions led here of which a replica is not in sync.",
        ),
        (
            "partitions_under_min_isr",
            under_min_isr,
            "Partitions led here with so few replicas in sync that nothing more is committed.",
        ),
        ("partitions_followed", len(followed), "Partitions that are copied from other leaders."),
        (
            "partitions_follow_failing",
            sum(each.errors > 0 for each in followed),
            "Those whose last try failed.",
        ),
        (
            "follower_lag_max",
            max(0, max((each.lag for each in followed), default=0)),
            "Records that the partition furthest behind its leader's high watermark lacks.",
        ),
    ):
        page.gauge(f"penstock_{name}", what, [((), value)])
    for name, count, what in (
        ("isr_shrinks", changes.shrinks if changes else 0, "ISRs that became smaller while led here."),
        ("isr_expands", changes.expands if changes else 0, "ISRs that became larger while led here."),
        ("isr_changes_refused", changes.failures if changes else 0, "Changes of ISRs that were refused."),
        ("replication_bytes_out", context.metrics.replicated_bytes_out, "Bytes that followers were given."),
        (
            "replication_bytes_in",
            fetchers.copied_bytes if fetchers else 0,
            "Bytes that were copied from other leaders.",
        ),
        (
            "replication_failures",
            fetchers.failures if fetchers else 0,
            "Questions to leaders that failed, as a whole or for a partition.",
        ),
    ):
        page.counter(f"penstock_{name}_total", what, [((), count)])
