"""Nodes die: what was promised through any door holds, and the others go on."""

from functools import partial
from pathlib import Path

from tests.gateway.peer_rpc.doors import (
    ask,
    consumed,
    doors,
    eventually,
    good,
    leaders,
    line,
    tailing,
    values,
)
from tests.gateway.peer_rpc.doors import (
    produce as produce_once,
)

from penstock.testing import Broker, Cluster

produce = partial(produce_once, seconds_max=60)


def others(cluster: Cluster, than: Broker) -> list[Broker]:
    return [each for each in cluster.brokers if each is not than]


def leader_of(cluster: Cluster, topic: str, partition: int = 0) -> Broker:
    running = next(each for each in cluster.brokers if each.is_running)
    return cluster.brokers[leaders(running, topic)[partition] - 1]


def test_an_idempotency_key_has_its_place_after_each_leader_was_killed() -> None:
    """The key is in the log: whoever leads next finds it there."""
    with doors() as cluster:
        cluster.create_topic("orders", partitions=1, replication_factor=3)
        placed = {
            f"key {number}": produce(
                cluster.brokers[number % 3], "orders", "v", idempotency_key=f"key {number}"
            )
            for number in range(9)
        }
        for _ in range(2):
            killed = leader_of(cluster, "orders")
            killed.kill()
            for broker in others(cluster, killed):
                for key, place in placed.items():
                    assert produce(broker, "orders", "again", idempotency_key=key) == place
            placed["after"] = produce(others(cluster, killed)[0], "orders", "v", idempotency_key="after")
            killed.start()
            assert {key: produce(killed, "orders", "again", idempotency_key=key) for key in placed} == placed
            eventually(
                lambda: len(good(cluster.brokers[0], "GET", "/topics/orders")["partitions"][0]["isr"]) == 3,
                "it is in sync again",
            )
        assert values(cluster.brokers[0], "orders") == ["v"] * len(placed)


def test_a_key_is_known_to_the_next_leader_when_its_record_is_deleted() -> None:
    """Every replica saves the keys of what it deletes."""
    with doors(
        log_retention_check_interval_ms=200,
        log_segment_delete_delay_ms=0,
        log_initial_task_delay_ms=0,
        durability_fsync="always",
    ) as cluster:
        cluster.create_topic("orders", partitions=1, replication_factor=3, **{"segment.bytes": 1000})
        places = [
            produce(cluster.brokers[0], "orders", "v" * 400, idempotency_key=f"key {number}")
            for number in range(12)
        ]
        good(cluster.brokers[1], "DELETE", "/topics/orders/partitions/0/records?before=12")

        def first_kept(broker: Broker) -> int:
            assert broker.data is not None
            return min(int(each.stem) for each in Path(broker.data, "logs", "orders-0").glob("*.log"))

        eventually(
            lambda: all(first_kept(each) > places[5][1] for each in cluster.brokers),
            "segments are gone everywhere",
        )
        killed = leader_of(cluster, "orders")
        killed.kill()
        for broker in others(cluster, killed):
            assert [
                produce(broker, "orders", "again", idempotency_key=f"key {number}") for number in range(12)
            ] == places


def test_records_are_taken_and_streams_go_on_while_a_leader_is_killed() -> None:
    with doors() as cluster:
        cluster.create_topic("orders", partitions=3, replication_factor=3)
        killed = leader_of(cluster, "orders", 1)
        watching, writing = others(cluster, killed)
        produce(watching, "orders", "before", partition=1)
        with tailing(watching, "/topics/orders/tail?decode=text") as events, line(watching) as client:
            client.say("orders:lines:1\n")
            assert client.message() == (1, "before")
            killed.kill()
            for number in range(6):
                assert produce(writing, "orders", f"{number}", partition=number % 3)[0] == number % 3
            assert sorted(events.next()["value"] for _ in range(6)) == [f"{number}" for number in range(6)]
            assert [client.message() for _ in range(2)] == [(1, "1"), (1, "4")]
        for broker in (watching, writing):
            assert sorted(values(broker, "orders")) == ["0", "1", "2", "3", "4", "5", "before"]


def test_a_member_stays_one_when_its_coordinator_is_killed() -> None:
    with doors(offsets_topic_num_partitions=1) as cluster:
        cluster.create_topic("orders", partitions=1, replication_factor=3)
        produce(cluster.brokers[0], "orders", "one")
        produce(cluster.brokers[0], "orders", "two")
        good(cluster.brokers[0], "POST", "/join?group=team&consumer=alice&topic=orders")
        good(
            cluster.brokers[1], "POST", "/commit?group=team&consumer=alice&topic=orders&partition=0&offset=1"
        )
        killed = leader_of(cluster, "__consumer_offsets")
        killed.kill()
        for broker in others(cluster, killed):
            assert consumed(broker, "team", "orders", 0, consumer="alice") == ["two"]
            stranger = ask(broker, "GET", "/consume?group=team&consumer=bob&topic=orders&partition=0")
            assert (stranger.status, stranger.json["error"]["code"]) == (409, "unknown_member")
            described = good(broker, "GET", "/groups/team")
            assert [each["member_id"] for each in described["members"]] == ["alice"]
