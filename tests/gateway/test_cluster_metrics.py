"""The metrics of a real cluster, while one of its brokers dies and comes back."""

import time
from collections.abc import Callable

from confluent_kafka import Producer
from tests.gateway.scrapes import Scrape, scrape

from penstock.testing import Cluster

SECONDS_MAX = 90
RECORDS = 50


def eventually(cluster: Cluster, holds: Callable[[list[Scrape]], bool]) -> list[Scrape]:
    """Metrics are read when they are asked for: ask until they say so."""
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        pages = [scrape(each) for each in cluster.brokers if each.is_running]
        if holds(pages):
            return pages
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.05)


def total(pages: list[Scrape], name: str, **labels: str) -> float:
    return sum(page(name, **labels) for page in pages)


def test_a_cluster_tells_who_leads_what_is_copied_and_what_is_lost_and_found() -> None:
    with Cluster(brokers=3, http=True) as cluster:
        cluster.create_topic("orders", partitions=3, replication_factor=3)
        eventually(cluster, lambda pages: total(pages, "penstock_partitions_followed") == 6)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0})
        for number in range(RECORDS):
            producer.produce("orders", b"x" * 100, partition=number % 3)
        assert producer.flush(SECONDS_MAX) == 0

        pages = [scrape(each) for each in cluster.brokers]
        assert total(pages, "penstock_raft_role", role="leader") == 1
        assert total(pages, "penstock_raft_role", role="follower") == 2
        assert total(pages, "penstock_controller_active") == 1
        assert {page("penstock_raft_leader_id") for page in pages} <= {1.0, 2.0, 3.0}
        assert {page("penstock_cluster_brokers", state="active") for page in pages} == {3.0}
        assert {page("penstock_cluster_partitions") for page in pages} == {3.0}
        assert total(pages, "penstock_messages_in_total") == RECORDS, "copies are not counted again"
        copied = total(pages, "penstock_replication_bytes_in_total")
        assert copied == total(pages, "penstock_replication_bytes_out_total") > 2 * RECORDS * 100
        assert copied == 2 * total(pages, "penstock_bytes_in_total")

        cluster.brokers[0].kill()
        pages = eventually(cluster, lambda pages: total(pages, "penstock_partitions_under_replicated") == 3)
        pages = eventually(
            cluster, lambda pages: all(page("penstock_cluster_leader_elections_total") >= 1 for page in pages)
        )
        assert {page("penstock_cluster_brokers", state="fenced") for page in pages} == {1.0}
        assert {page("penstock_cluster_partitions_unpreferred") for page in pages} == {1.0}
        assert total(pages, "penstock_cluster_partitions_offline") == 0
        assert total(pages, "penstock_cluster_unclean_elections_total") == 0

        cluster.brokers[0].start()
        pages = eventually(cluster, lambda pages: total(pages, "penstock_partitions_under_replicated") == 0)
        assert total(pages, "penstock_isr_expands_total") >= 3
        eventually(cluster, lambda pages: total(pages, "penstock_follower_lag_max") == 0)
