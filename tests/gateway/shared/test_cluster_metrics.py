"""What a node tells of its cluster on its page of metrics."""

from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.gateway.scrapes import Scrape, check
from tests.handlers.cluster import Cluster

from penstock.base.steps import RunningSteps
from penstock.controlplane.elections import count_elections
from penstock.gateway.shared import cluster_metrics as cluster_page
from penstock.gateway.shared.exposition import Page
from penstock.metadata.controller import requests as r
from penstock.metadata.records import AnyRecord


class Following:
    def __init__(self, lag: int, errors: int = 0) -> None:
        self.lag = lag
        self.errors = errors


def replicas_of(followed: Sequence[Following] | None) -> Any:
    """What is copied here; None for a node that has no neighbours."""
    if followed is None:
        return SimpleNamespace(isr_changes=None, fetchers=None)
    return SimpleNamespace(
        isr_changes=SimpleNamespace(shrinks=3, expands=2, failures=1),
        fetchers=SimpleNamespace(replicas=lambda: followed, copied_bytes=500, failures=7),
    )


def page_of(cluster: Cluster, followed: Sequence[Following] | None = None) -> Scrape:
    context, page = cluster.context, Page(is_open=False)
    context.replicas = replicas_of(followed)
    sums: list[cluster_page.PartitionSums] = []
    failures: list[Exception] = []
    RunningSteps(cluster_page.partition_sums(context, 2), sums.append, failures.append)
    cluster.world.run_until(lambda: bool(sums or failures))
    assert not failures, failures
    cluster_page.quorum(page, context)
    cluster_page.cluster(page, context, sums[0])
    cluster_page.replication(page, context, under_replicated=4, under_min_isr=1)
    scrape = Scrape(page.encoded().decode())
    check(scrape)
    return scrape


@pytest.fixture
def three() -> Cluster:
    cluster = Cluster(brokers=(1, 2, 3))
    cluster.create("t", (1, 2, 3), (2, 3, 1), (3, 1, 2))
    return cluster


def test_a_node_alone_leads_its_quorum() -> None:
    page = page_of(Cluster())
    assert page("penstock_raft_role", role="leader") == 1
    assert sum(page("penstock_raft_role", role=name) for name in cluster_page.ROLES) == 1
    assert page("penstock_raft_leader_id") == 1
    assert page("penstock_raft_voters") == 1
    assert page("penstock_controller_active") == 1
    assert page("penstock_cluster_brokers", state="active") == 1


def test_brokers_are_distinguished_by_what_may_be_expected_of_them(three: Cluster) -> None:
    three.fence(3)
    epoch = three.image.brokers[2].epoch
    three.decide(r.BrokerHeartbeat(2, epoch, three.image.offset, want_shutdown=True))
    page = page_of(three)
    assert {
        state: page("penstock_cluster_brokers", state=state) for state in ("active", "stopping", "fenced")
    } == {
        "active": 1,
        "stopping": 1,
        "fenced": 1,
    }


def test_partitions_that_nobody_leads_or_another_than_should_are_counted(three: Cluster) -> None:
    three.create("alone", (3,))
    before = page_of(three)
    assert [before(f"penstock_cluster_partitions{each}") for each in ("", "_offline", "_unpreferred")] == [
        4,
        0,
        0,
    ]
    three.fence(3)
    after = page_of(three)
    assert [after(f"penstock_cluster_partitions{each}") for each in ("", "_offline", "_unpreferred")] == [
        4,
        1,
        1,
    ]


def test_partitions_on_their_way_are_counted(three: Cluster) -> None:
    three.create("moving", (1,))
    three.decide(r.AlterReassignments((r.PartitionTarget("moving", 0, (2,)),)))
    assert page_of(three)("penstock_cluster_partitions_reassigning") == 1


def test_elections_are_counted_and_unclean_ones_apart(three: Cluster) -> None:
    three.create("risky", (3, 2), unclean_leader_election_enable="true")
    counted = three.context.metrics.elections

    write = three.write

    def follow(records: Iterable[AnyRecord]) -> None:
        batch = list(records)
        count_elections(counted, batch, three.image)
        write(batch)

    three.write = follow  # type: ignore[method-assign]
    three.fence(2)
    assert (counted.changes, counted.unclean) == (1, 0), "t-1 had it as its leader"
    three.fence(3)
    assert (counted.changes, counted.unclean) == (3, 0), "t-1 again, and t-2; nobody leads the other"
    three.start(2)
    page = page_of(three)
    assert page("penstock_cluster_leader_elections_total") == 4
    assert page("penstock_cluster_unclean_elections_total") == 1


def test_what_is_copied_is_reported_with_the_worst_of_it() -> None:
    page = page_of(Cluster(), [Following(5), Following(70, errors=2), Following(-1)])
    assert page("penstock_partitions_followed") == 3
    assert page("penstock_partitions_follow_failing") == 1
    assert page("penstock_follower_lag_max") == 70
    assert page("penstock_replication_bytes_in_total") == 500
    assert page("penstock_replication_failures_total") == 7
    assert page("penstock_isr_shrinks_total") == 3
    assert page("penstock_isr_expands_total") == 2
    assert page("penstock_isr_changes_refused_total") == 1
    assert page("penstock_partitions_under_replicated") == 4
    assert page("penstock_partitions_under_min_isr") == 1


def test_a_lag_that_is_not_known_is_none() -> None:
    assert page_of(Cluster(), [Following(-1)])("penstock_follower_lag_max") == 0
    assert page_of(Cluster())("penstock_follower_lag_max") == 0


def test_the_quorums_numbers_are_its_own() -> None:
    cluster = Cluster()
    cluster.context.quorum = cast(
        Any,
        SimpleNamespace(
            role="observer",
            is_leader=False,
            leader_id=101,
            epoch=9,
            high_watermark=1000,
            end_offset=1003,
            voters=[1, 2, 3],
            elections=4,
            is_recovering=True,
        ),
    )
    page = page_of(cluster)
    assert page("penstock_raft_role", role="observer") == 1
    assert page("penstock_raft_leader_id") == 101
    assert page("penstock_raft_epoch") == 9
    assert page("penstock_raft_high_watermark") == 1000
    assert page("penstock_raft_log_end_offset") == 1003
    assert page("penstock_raft_voters") == 3
    assert page("penstock_raft_recovering") == 1
    assert page("penstock_raft_elections_total") == 4
    assert page("penstock_controller_active") == 0
