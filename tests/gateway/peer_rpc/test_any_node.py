"""Every door of every node serves every partition and every group."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow.ipc
import pytest
from confluent_kafka import IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from tests.gateway.peer_rpc.doors import (
    ask,
    consumed,
    doors,
    eventually,
    good,
    leaders,
    line,
    produce,
    tailing,
    values,
)

from penstock.testing import Cluster

READ_COMMITTED, READ_UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with doors() as cluster:
        yield cluster


def make(cluster: Cluster, topic: str, replication_factor: int = 3) -> None:
    configs = {"min.insync.replicas": 1} if replication_factor == 1 else {}
    cluster.create_topic(topic, partitions=3, replication_factor=replication_factor, **configs)
    eventually(
        lambda: all(
            ask(each, "GET", f"/topics/{topic}").status == 200 and None not in leaders(each, topic).values()
            for each in cluster.brokers
        ),
        "every node knows the topic",
    )


def test_what_any_door_writes_every_door_reads(cluster: Cluster) -> None:
    make(cluster, "every")
    written = []
    for number, broker in enumerate(cluster.brokers):
        for partition in range(3):
            value = f"http {number} {partition}"
            assert produce(broker, "every", value, partition=partition)[0] == partition
            written.append(value)
        with line(broker) as client:
            for key in "abc":
                client.say(f"TOPIC every {key} 6\nline {number}")
                assert client.hear().startswith("+OFFSET ")
                written.append(f"line {number}")
    for broker in cluster.brokers:
        assert sorted(values(broker, "every")) == sorted(written)
        lines = ask(broker, "GET", "/topics/every/records.ndjson?decode=text").body.splitlines()
        assert len(lines) == len(written)
        with line(broker) as client:
            client.say(f"every:of-{broker.port}:-1\n")
            assert sorted(client.message()[1] for _ in written) == sorted(written)


def test_records_without_a_key_are_spread_over_all_partitions_whichever_node_takes_them(
    cluster: Cluster,
) -> None:
    make(cluster, "spread")
    for broker in cluster.brokers:
        partitions = [produce(broker, "spread", "v")[0] for _ in range(6)]
        assert sorted(partitions) == [0, 0, 1, 1, 2, 2]


def test_a_list_has_an_outcome_for_each_record_wherever_its_partition_is_led(cluster: Cluster) -> None:
    make(cluster, "listed")
    records = [{"topic": "listed", "value": None, "partition": number % 4} for number in range(8)]
    for broker in cluster.brokers:
        results = good(broker, "POST", "/produce", records)
        assert [each.get("partition", each.get("error", {}).get("code")) for each in results] == [
            0,
            1,
            2,
            "unknown_topic_or_partition",
        ] * 2


def test_an_idempotency_key_gets_the_same_place_from_every_node(cluster: Cluster) -> None:
    make(cluster, "keyed")
    for key in (None, "a", "b", "c"):
        placed = {
            produce(broker, "keyed", "v", key=key, idempotency_key=f"first of {key}")
            for broker in cluster.brokers
            for _ in range(2)
        }
        assert len(placed) == 1
    assert len(values(cluster.brokers[0], "keyed")) == 4


def test_an_idempotency_key_is_known_in_other_partitions_too(cluster: Cluster) -> None:
    """What the retry says otherwise does not matter."""
    make(cluster, "moved")
    first = produce(cluster.brokers[0], "moved", "v", partition=0, idempotency_key="k")
    for broker in cluster.brokers:
        for partition in range(3):
            assert produce(broker, "moved", "other", partition=partition, idempotency_key="k") == first
    assert values(cluster.brokers[1], "moved") == ["v"]


def test_an_idempotency_key_is_known_when_the_topic_has_more_partitions(cluster: Cluster) -> None:
    make(cluster, "grown")
    first = {
        name: produce(cluster.brokers[0], "grown", "v", idempotency_key=name) for name in ("i", "j", "k", "l")
    }
    good(cluster.brokers[0], "PATCH", "/topics/grown", {"partitions": 7})
    for broker in cluster.brokers:
        eventually(lambda node=broker: len(leaders(node, "grown")) == 7, "it has them")
        assert {name: produce(broker, "grown", "v", idempotency_key=name) for name in first} == first


def test_a_member_may_come_through_another_node_each_time(cluster: Cluster) -> None:
    make(cluster, "shared")
    one, two, three = cluster.brokers
    for partition in range(3):
        for number in range(2):
            produce(one, "shared", f"{partition}.{number}", partition=partition)
    joined = good(one, "POST", "/join?group=team&consumer=alice&topic=shared")
    assert joined["assignments"] == {"shared": [0, 1, 2]}
    joined = good(two, "POST", "/join?group=team&consumer=bob&topic=shared")
    [*bobs] = joined["assignments"]["shared"]
    assert 0 < len(bobs) < 3
    for broker in cluster.brokers:
        assert consumed(broker, "team", "shared", bobs[0], consumer="bob") == [f"{bobs[0]}.0", f"{bobs[0]}.1"]
        refused = ask(broker, "GET", f"/consume?group=team&consumer=alice&topic=shared&partition={bobs[0]}")
        assert (refused.status, refused.json["error"]["code"]) == (409, "not_assigned")
        assert bobs[0] not in refused.json["error"]["assignments"]["shared"]
    good(three, "POST", f"/commit?group=team&consumer=bob&topic=shared&partition={bobs[0]}&offset=1")
    assert consumed(one, "team", "shared", bobs[0], consumer="bob") == [f"{bobs[0]}.1"]
    stale = ask(two, "POST", f"/commit?group=team&consumer=alice&topic=shared&partition={bobs[0]}&offset=2")
    assert stale.status == 409
    for broker in cluster.brokers:
        described = good(broker, "GET", "/groups/team")
        assert sorted(each["member_id"] for each in described["members"]) == ["alice", "bob"]
        assert "team" in [each["group"] for each in good(broker, "GET", "/groups")["groups"]]
        assert good(broker, "GET", "/groups/team/lag")["lag"] == 5
    good(three, "POST", "/leave?group=team&consumer=bob")
    good(one, "POST", "/leave?group=team&consumer=alice")
    moved = good(two, "POST", "/groups/team/offsets", {"topic": "shared", "to": "latest"})
    assert [each["offset"] for each in moved["partitions"]] == [2, 2, 2]
    good(three, "DELETE", "/groups/team")
    for broker in cluster.brokers:
        assert ask(broker, "GET", "/groups/team").status == 404


def test_consume_waits_for_a_record_wherever_group_and_partition_are(cluster: Cluster) -> None:
    make(cluster, "awaited")
    for broker in cluster.brokers:
        for partition in range(3):
            group = f"waits-{broker.port}-{partition}"
            with ThreadPoolExecutor(1) as pool:
                waiting = pool.submit(consumed, broker, group, "awaited", partition, wait_ms=20_000)
                other = cluster.brokers[(cluster.brokers.index(broker) + 1) % 3]
                produce(other, "awaited", f"for {group}", partition=partition)
                assert waiting.result()[-1].startswith("for ")


def test_a_tail_has_what_every_partition_gets(cluster: Cluster) -> None:
    make(cluster, "followed")
    for broker in cluster.brokers:
        with tailing(broker, "/topics/followed/tail?decode=text") as events:
            for partition in range(3):
                placed = produce(cluster.brokers[partition], "followed", f"{partition}", partition=partition)
                event = events.next()
                assert (event["partition"], event["offset"], event["value"]) == (*placed, f"{partition}")


def test_records_by_time_and_from_the_end_are_found_elsewhere_too(cluster: Cluster) -> None:
    make(cluster, "timed")
    for partition in range(3):
        for number in range(3):
            produce(cluster.brokers[0], "timed", f"{number}", partition=partition)
    for broker in cluster.brokers:
        for partition in range(3):
            target = f"/topics/timed/partitions/{partition}/records?decode=text"
            page = good(broker, "GET", target)
            times = [each["timestamp"] for each in page["records"]]
            assert (page["next_offset"], page["end_offset"], len(times)) == (3, 3, 3)
            found = good(broker, "GET", f"{target}&from={times[2]}")["records"]
            assert [each["offset"] for each in found] == [
                each for each, time in enumerate(times) if time >= times[2]
            ]
            assert [each["value"] for each in good(broker, "GET", f"{target}&from_end=1")["records"]] == ["2"]
            refused = ask(broker, "GET", f"{target}&offset=4")
            assert refused.json["error"]["code"] == "offset_out_of_range"


def test_records_are_deleted_wherever_their_partition_is_led(cluster: Cluster) -> None:
    make(cluster, "shortened")
    for partition, broker in enumerate(cluster.brokers):
        for _ in range(3):
            produce(broker, "shortened", "v", partition=partition)
        for asked in cluster.brokers:
            told = good(asked, "DELETE", f"/topics/shortened/partitions/{partition}/records?before=2")
            assert told["log_start"] == 2
            page = good(asked, "GET", f"/topics/shortened/partitions/{partition}/records")
            assert [each["offset"] for each in page["records"]] == [2]


def abort(cluster: Cluster, topic: str) -> None:
    """Write to every partition, and take it back."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": f"abort-{topic}"})
    producer.init_transactions(90)
    producer.begin_transaction()
    for partition in range(3):
        producer.produce(topic, b"aborted", partition=partition)
    producer.flush(90)
    producer.abort_transaction(90)
    # Who aborts is answered when that is decided. The partitions hear of it afterwards, each from the coordinator, and
    # until then nothing behind it counts as committed.
    eventually(
        lambda: ends(cluster, topic, READ_COMMITTED) == ends(cluster, topic, READ_UNCOMMITTED),
        "every partition knows",
    )


def ends(cluster: Cluster, topic: str, level: IsolationLevel) -> list[int]:
    """Where partitions end, for readers of one kind."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    wanted = {TopicPartition(topic, number): OffsetSpec.latest() for number in range(3)}
    asked = admin.list_offsets(wanted, isolation_level=level)
    return [asked[place].result(90).offset for place in wanted]


@pytest.mark.parametrize("replication_factor", [1, 3])
def test_files_for_data_frames_are_made_by_every_node(cluster: Cluster, replication_factor: int) -> None:
    """Also by one that has no replica: it copies the batches first."""
    topic = f"framed-{replication_factor}"
    make(cluster, topic, replication_factor)
    for number in range(30):
        produce(cluster.brokers[number % 3], topic, f"{number}", partition=number % 3)
    abort(cluster, topic)
    produce(cluster.brokers[0], topic, "30", partition=0)
    for broker in cluster.brokers:
        file = ask(broker, "GET", f"/topics/{topic}/records.arrow?decode=text")
        assert file.status == 200, file.body
        table = pyarrow.ipc.open_stream(file.body).read_all()
        assert sorted(table.column("value").to_pylist()) == sorted(f"{number}" for number in range(31))
        assert sorted(set(table.column("partition").to_pylist())) == [0, 1, 2]


def test_the_explorer_shows_every_partition_as_its_leader_has_it(cluster: Cluster) -> None:
    made = good(cluster.brokers[0], "POST", "/api/architecture/setup")
    assert made["produced"] == sum(each["records"] for each in made["partitions"]) == 1000
    grown = good(cluster.brokers[1], "POST", "/api/architecture/produce?count=5000")
    assert grown["segments"] > grown["segmentsBefore"]
    for broker in cluster.brokers:
        view = good(broker, "GET", "/api/architecture/topics/architecture.demo")
        assert sum(each["logEndOffset"] for each in view["partitions"]) == 6000
        assert view["segments"] == grown["segments"]
        assert all(each["segments"] for each in view["partitions"])
        nodes = good(broker, "GET", "/api/architecture/cluster-info")["nodes"]
        assert [each["id"] for each in nodes] == [1, 2, 3]
        assert good(broker, "GET", "/health/ready")["status"] == "ok"


def test_the_line_protocol_moves_a_group_that_another_node_coordinates(cluster: Cluster) -> None:
    make(cluster, "lines")
    for partition in range(3):
        produce(cluster.brokers[0], "lines", f"{partition}", partition=partition)
    for broker in cluster.brokers:
        with line(broker) as client:
            client.say("SET_OFFSET lines:together BEGIN\n")
            assert client.hear() == "+OK"
            client.say("lines:together:-1\n")
            assert sorted(client.message() for _ in range(3)) == [(0, "0"), (1, "1"), (2, "2")]
