"""How many replicas must have a record, and who may lead when they are gone: what producers and operators see."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import ElectionType, TopicPartition
from tests.cluster.views import Deliveries, Seen, assert_equal_replicas
from tests.compat.clients.driver import SECONDS_MAX
from tests.compat.clients.patient import wait_until

from penstock.testing import Cluster

SETTINGS = {"replica.lag.time.max.ms": 1000, "offsets.topic.replication.factor": 1}
ONE_TRY = {"retries": 0, "enable_idempotence": False}


@contextmanager
def three(data: Path | None = None, **more: object) -> Iterator[tuple[Cluster, Seen]]:
    """Three brokers, and a controller of their own: all of them may be down."""
    settings = {**SETTINGS, **{name.replace("_", "."): value for name, value in more.items()}}
    with Cluster(brokers=3, controllers=1, data=data, settings=settings) as cluster:
        yield cluster, Seen(cluster.bootstrap)


def directories(data: Path) -> list[Path]:
    return [data / f"node-{number}" for number in (1, 2, 3)]


# -- min.insync.replicas ---------------------------------------------------------------------------------


def test_with_fewer_in_sync_than_asked_for_nothing_is_taken_until_one_returns(tmp_path: Path) -> None:
    with three(tmp_path) as (cluster, seen):
        cluster.create_topic("orders", replication_factor=3, min_insync_replicas=2)
        seen.send("orders", [b"by three"], acks="all")
        leader = seen.leader("orders")
        first, second = sorted({1, 2, 3} - {leader})
        cluster.nodes[first].kill()
        seen.send("orders", [b"by two"], acks="all")
        cluster.nodes[second].kill()
        wait_until(lambda: seen.isr("orders") == {leader})
        assert seen.refusal("orders", acks="all", **ONE_TRY) == "NOT_ENOUGH_REPLICAS"
        before = seen.driver.watermarks("orders", 0)
        seen.send("orders", [b"a producer that asks for less gets it"], acks=1)
        assert seen.driver.watermarks("orders", 0) == before, "and nobody reads what may be lost"

        patient, told = seen.producer(acks="all"), Deliveries()
        patient.produce("orders", b"waits", on_delivery=told.told)
        cluster.nodes[second].start()
        assert patient.flush(SECONDS_MAX) == 0
        assert (told.failures, told.offsets) == ([], [3])
        cluster.nodes[first].start()
        wait_until(seen.is_whole)
        cluster.stop()
        assert_equal_replicas(directories(tmp_path), "orders")


def test_a_record_is_not_acknowledged_while_the_isr_is_smaller_than_the_least() -> None:
    """KIP-966: then the high watermark stands still, and who waits for it waits until it moves, or in vain. (Of old it
    moved, and NOT_ENOUGH_REPLICAS_AFTER_APPEND told of it: `tests/replica` has where that is said still.)"""
    with three() as (cluster, seen):
        cluster.create_topic("orders", replication_factor=3, min_insync_replicas=3)
        told = Deliveries()
        producer = seen.producer(acks="all", request_timeout_ms=2500, **ONE_TRY)
        producer.produce("orders", b"by three", on_delivery=told.told)  # and it is connected
        assert producer.flush(SECONDS_MAX) == 0
        assert told.offsets == [0]
        leader = seen.leader("orders")
        with frozen(cluster, min({1, 2, 3} - {leader})):
            producer.produce("orders", b"by two", on_delivery=told.told)
            assert producer.flush(SECONDS_MAX) == 0
            assert seen.driver.watermarks("orders", 0) == (0, 1)
        assert [each.name() for each in told.failures] == ["NOT_ENOUGH_REPLICAS_AFTER_APPEND"]
        wait_until(seen.is_whole)
        wait_until(lambda: seen.driver.watermarks("orders", 0)[1] == 2)


@contextmanager
def frozen(cluster: Cluster, number: int) -> Iterator[None]:
    """A node whose loop stands still: its connections stay open, and it says nothing."""
    thaw, is_frozen = threading.Event(), threading.Event()

    def freeze() -> None:
        is_frozen.set()
        thaw.wait(SECONDS_MAX)

    running = cluster.nodes[number]._running
    assert running is not None
    running._loop.call_soon_threadsafe(freeze)
    assert is_frozen.wait(SECONDS_MAX)
    try:
        yield
    finally:
        thaw.set()


def test_a_topic_with_fewer_replicas_than_the_least_is_written_to_all_the_same() -> None:
    """Kafka's effective least: `Partition.effectiveMinIsr` takes no more than there are replicas."""
    with three(min_insync_replicas=2) as (cluster, seen):
        cluster.create_topic("alone", replication_factor=1)
        assert seen.send("alone", [b"x"], acks="all") == [0]


# -- who may lead ----------------------------------------------------------------------------------------


def left_behind(cluster: Cluster, seen: Seen, topic: str, *, is_clean: bool = True) -> tuple[int, int]:
    """A replica that lacks the last records, down; and the one that has them, down too: their ids."""
    leader = seen.leader(topic)
    behind = min(seen.isr(topic) - {leader})
    seen.send(topic, [b"on both %d" % each for each in range(5)], acks="all")
    cluster.nodes[behind].stop()
    wait_until(lambda: seen.isr(topic) == {leader})
    seen.send(topic, [b"on one %d" % each for each in range(5)], acks="all")
    if is_clean:
        cluster.nodes[leader].stop()
    else:
        cluster.nodes[leader].kill()
    return behind, leader


def create_on_two(cluster: Cluster, seen: Seen, topic: str, **configs: object) -> None:
    """One broker has no replica, and can be asked."""
    cluster.create_topic(topic, replication_factor=2, min_insync_replicas=1, **configs)
    wait_until(seen.is_whole)


def test_an_old_replica_does_not_lead_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with three(tmp_path) as (cluster, seen):
        create_on_two(cluster, seen, "orders")
        behind, last = left_behind(cluster, seen, "orders", is_clean=False)
        wait_until(lambda: seen.leader("orders") == -1)
        assert any("orders-0" in each.message and "no leader" in each.message for each in caplog.records)
        cluster.nodes[behind].start()
        assert seen.leader("orders") == -1
        assert seen.refusal("orders", message_timeout_ms=1500) in ("_MSG_TIMED_OUT", "LEADER_NOT_AVAILABLE")

        cluster.nodes[last].start()
        wait_until(lambda: seen.leader("orders") == last)
        assert seen.driver.watermarks("orders", 0) == (0, 10)
        wait_until(seen.is_whole)
        cluster.stop()
        held = [tmp_path / f"node-{each}" for each in (behind, last)]
        assert_equal_replicas(held, "orders")


def test_an_old_replica_leads_where_that_is_allowed_and_the_tail_that_it_lacks_is_cut(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with three(tmp_path) as (cluster, seen):
        create_on_two(cluster, seen, "orders", unclean_leader_election_enable=True)
        behind, last = left_behind(cluster, seen, "orders")
        cluster.nodes[behind].start()
        wait_until(lambda: seen.leader("orders") == behind)
        warnings = [each.message for each in caplog.records if each.levelno >= logging.WARNING]
        assert any("orders-0" in each and "unclean" in each for each in warnings), warnings
        seen.send("orders", [b"of the new leader"], acks="all")
        assert seen.driver.watermarks("orders", 0) == (0, 6)

        cluster.nodes[last].start()
        wait_until(seen.is_whole)
        seen.send("orders", [b"by both"], acks="all")
        assert seen.driver.watermarks("orders", 0) == (0, 7)
        cluster.stop()
        held = [tmp_path / f"node-{each}" for each in (behind, last)]
        assert_equal_replicas(held, "orders")


@pytest.mark.long
def test_an_operator_may_elect_an_old_replica() -> None:
    with three() as (cluster, seen):
        create_on_two(cluster, seen, "orders")
        behind, _ = left_behind(cluster, seen, "orders")
        cluster.nodes[behind].start()
        asked = seen.driver.admin.elect_leaders(ElectionType.UNCLEAN, [TopicPartition("orders", 0)])
        [error] = asked.result(SECONDS_MAX).values()
        assert error is None
        wait_until(lambda: seen.leader("orders") == behind)
        assert seen.send("orders", [b"goes on"], acks="all") == [5]


def test_the_last_replica_standing_that_stopped_cleanly_leads_again(tmp_path: Path) -> None:
    """KIP-966: replicas that leave the ISR while it is smaller than `min.insync.replicas` have all that was ever
    acknowledged, and one of them leads when the ISR is empty."""
    with three(tmp_path) as (cluster, seen):
        cluster.create_topic("orders", replication_factor=3, min_insync_replicas=2)
        seen.send("orders", [b"by three"] * 5, acks="all")
        for number in (1, 2, 3):
            cluster.nodes[number].stop()
        # The first to stop left an ISR of two, which may have taken more; the second left one that could not.
        cluster.nodes[2].start()
        second = Seen(cluster.nodes[2].bootstrap)
        wait_until(lambda: second.leader("orders") == 2)
        assert second.refusal("orders", acks="all", **ONE_TRY) == "NOT_ENOUGH_REPLICAS"
        cluster.nodes[1].start()
        cluster.nodes[3].start()
        wait_until(seen.is_whole)
        assert seen.driver.watermarks("orders", 0) == (0, 5)
        cluster.stop()
        assert_equal_replicas(directories(tmp_path), "orders")


LONG = pytest.mark.long


@pytest.mark.parametrize("survivor", [pytest.param(1, marks=LONG), 2, pytest.param(3, marks=LONG)])
def test_after_all_were_killed_one_that_was_in_sync_at_the_end_brings_everything_back(
    tmp_path: Path, survivor: int
) -> None:
    with three(tmp_path) as (cluster, seen):
        cluster.create_topic("orders", replication_factor=3, min_insync_replicas=2)
        sent = seen.send("orders", [b"by three"] * 5, acks="all")
        order = [*({1, 2, 3} - {survivor}), survivor]
        for number in order:
            cluster.nodes[number].kill()
        for number in reversed(order):
            cluster.nodes[number].start()
        wait_until(seen.is_whole)
        assert seen.driver.watermarks("orders", 0) == (0, len(sent))
