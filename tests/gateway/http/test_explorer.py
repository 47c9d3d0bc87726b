"""The explorer, from outside: what it says over HTTP is what lies on disk, and what Kafka clients are told."""

import json
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource

from penstock.storage import names
from penstock.storage.findings import OFFSET_ENTRY, TIME_ENTRY
from penstock.storage.scan import scan_batches
from penstock.testing import Broker
from penstock.vfs import RealDisk

DEMO = "architecture.demo"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(http=True) as broker:
        yield broker


def ask(broker: Broker, method: str, path: str) -> tuple[int, Any]:
    connection = HTTPConnection(urlsplit(broker.http_url).netloc, timeout=60)
    try:
        connection.request(method, f"/api/architecture/{path}")
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def good(broker: Broker, method: str, path: str) -> Any:
    status, body = ask(broker, method, path)
    assert status == 200, body
    return body


@pytest.fixture(scope="module")
def rotated(broker: Broker) -> Any:
    """The demo, set up and rotated; and what the rotation said."""
    good(broker, "POST", "setup")
    return good(broker, "POST", "produce?count=10000")


def directory(broker: Broker, number: int) -> Path:
    assert broker.data is not None
    return Path(broker.data) / "logs" / f"{DEMO}-{number}"


def test_producing_waits_for_a_setup_which_many_may_ask_for_at_once() -> None:
    with Broker(http=True) as broker:
        status, body = ask(broker, "POST", "produce?count=1")
        assert (status, body["error"]["code"]) == (404, "unknown_topic_or_partition")
        assert "POST /api/architecture/setup" in body["error"]["message"]

        with ThreadPoolExecutor(6) as clients:
            told = list(clients.map(lambda _: good(broker, "POST", "setup"), range(6)))
            assert sorted(each["created"] for each in told) == [False] * 5 + [True]
            assert sum(each["produced"] for each in told) == 1_000
            produced = list(clients.map(lambda _: good(broker, "POST", "produce?count=500"), range(6)))
        assert [each["produced"] for each in produced] == [500] * 6
        assert _log_ends(broker) == 4_000


def _log_ends(broker: Broker) -> int:
    view = good(broker, "GET", f"topics/{DEMO}?segments=0")
    return sum(each["logEndOffset"] for each in view["partitions"])


def test_a_client_that_leaves_ends_only_its_own_run() -> None:
    with Broker(http=True) as broker:
        good(broker, "POST", "setup")
        connection = HTTPConnection(urlsplit(broker.http_url).netloc, timeout=60)
        connection.request("POST", "/api/architecture/produce?count=100000")
        while _log_ends(broker) == 1_000:
            pass  # until it has begun
        connection.close()
        told = good(broker, "POST", "produce?count=1000")
        assert told["produced"] == 1_000
        assert _log_ends(broker) < 101_000


def test_setup_again_says_what_was_there(broker: Broker, rotated: Any) -> None:
    told = good(broker, "POST", "setup")
    assert (told["topic"], told["created"], told["produced"]) == (DEMO, False, 0)
    assert told["recordsBefore"] == 11_000
    assert told["segments"] == rotated["segments"]


def test_ten_thousand_records_rotate_the_segments(broker: Broker, rotated: Any) -> None:
    assert rotated["produced"] == sum(each["records"] for each in rotated["partitions"]) == 10_000
    for each in rotated["partitions"]:
        files = list(directory(broker, each["partition"]).glob("*.log"))
        assert each["segmentsBefore"] == 1
        assert each["segments"] == len(files) > 1
        assert each["lastOffset"] - each["firstOffset"] + 1 == each["records"]
    assert rotated["segments"] == sum(each["segments"] for each in rotated["partitions"])


def test_segments_and_indexes_are_those_of_the_files(broker: Broker, rotated: Any) -> None:
    view = good(broker, "GET", f"topics/{DEMO}?entries=1000")

    assert view["segmentBytes"] == 100_000
    for partition in view["partitions"]:
        at = directory(broker, partition["partition"])
        assert partition["directory"] == at.name
        assert sum(each.stat().st_size for each in at.glob("*.log")) == partition["sizeBytes"]
        assert [each["file"] for each in partition["segments"]] == sorted(
            each.name for each in at.glob("*.log")
        )
        for segment in partition["segments"]:
            _compare_with_file(at, segment)
            if not segment["isActive"]:
                _compare_with_indexes(at, segment)


def _compare_with_file(at: Path, segment: Any) -> None:
    file = RealDisk().open(str(at / segment["file"]))
    spots = [
        (position, batch.base_offset, batch.last_offset, batch.max_timestamp)
        for position, batch in scan_batches(file, 0, file.size())
    ]
    file.close()
    assert (at / segment["file"]).stat().st_size == segment["sizeBytes"]
    assert segment["baseOffset"] == spots[0][1] == int(segment["file"].removesuffix(".log"))
    assert segment["endOffset"] == spots[-1][2] + 1
    assert segment["largestTimestamp"] == max(each[3] for each in spots)
    ends = {position: last for position, _, last, _ in spots}
    for entry in segment["offsetIndex"]["first"]:
        assert ends[entry["position"]] == entry["offset"]


def _compare_with_indexes(at: Path, segment: Any) -> None:
    base = segment["baseOffset"]
    offsets = (at / segment["offsetIndex"]["file"]).read_bytes()
    times = (at / segment["timeIndex"]["file"]).read_bytes()
    assert segment["offsetIndex"]["sizeBytes"] == len(offsets) > 0
    assert segment["offsetIndex"]["entries"] == len(offsets) // OFFSET_ENTRY.size
    assert segment["timeIndex"]["entries"] == len(times) // TIME_ENTRY.size
    assert [(each["offset"] - base, each["position"]) for each in segment["offsetIndex"]["first"]] == list(
        struct.iter_unpack(">ii", offsets)
    )
    assert [(each["timestamp"], each["offset"] - base) for each in segment["timeIndex"]["first"]] == list(
        struct.iter_unpack(">qi", times)
    )


def test_kafka_clients_get_the_same(broker: Broker, rotated: Any) -> None:
    info = good(broker, "GET", "cluster-info")
    view = good(broker, "GET", f"topics/{DEMO}")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    cluster = admin.describe_cluster().result(30)
    assert info["clusterId"] == cluster.cluster_id
    assert info["controller"] == cluster.controller.id
    assert [(each["id"], each["host"], each["port"]) for each in info["nodes"]] == [
        (node.id, node.host, node.port) for node in cluster.nodes
    ]
    topic = admin.list_topics(DEMO, timeout=30).topics[DEMO]
    for partition in view["partitions"]:
        told = topic.partitions[partition["partition"]]
        assert (partition["leader"], partition["replicas"], partition["isr"]) == (
            told.leader,
            told.replicas,
            told.isrs,
        )
    resource = ConfigResource(ConfigResource.Type.TOPIC, DEMO)
    configs = admin.describe_configs([resource])[resource].result(30)
    for setting in view["settings"]:
        assert setting["value"] == configs[setting["name"]].value
    assert view["retentionMs"] == int(configs["retention.ms"].value)
    assert view["minInsyncReplicas"] == int(configs["min.insync.replicas"].value)


def test_a_kafka_consumer_reads_what_was_produced(broker: Broker, rotated: Any) -> None:
    view = good(broker, "GET", f"topics/{DEMO}?segments=0")
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "explorer", "enable.auto.commit": False}
    )
    try:
        ends = {}
        for each in view["partitions"]:
            low, high = consumer.get_watermark_offsets(TopicPartition(DEMO, each["partition"]), timeout=30)
            assert (each["logStartOffset"], each["highWatermark"]) == (low, high)
            ends[each["partition"]] = high
        consumer.assign([TopicPartition(DEMO, number, OFFSET_BEGINNING) for number in ends])
        values: set[bytes] = set()
        while len(values) < sum(ends.values()):
            messages = consumer.consume(min(1_000, sum(ends.values()) - len(values)), timeout=30)
            assert messages, "nothing more came"
            values.update(message.value() for message in messages)
    finally:
        consumer.close()
    assert {json.loads(value)["reading"] for value in values} == set(range(11_000))


def test_a_topic_of_anybodys_is_opened_too(broker: Broker) -> None:
    broker.create_topic("mine", partitions=2, segment_bytes=5000, retention_ms=1000, min_insync_replicas=2)
    view = good(broker, "GET", "topics/mine")
    assert [each["partition"] for each in view["partitions"]] == [0, 1]
    assert (view["segmentBytes"], view["retentionMs"], view["minInsyncReplicas"]) == (5000, 1000, 2)
    assert view["segments"] == 2
    assert {each["largestTimestamp"] for part in view["partitions"] for each in part["segments"]} == {-1}


def test_an_answer_is_as_large_as_was_asked_for(broker: Broker, rotated: Any) -> None:
    view = good(broker, "GET", f"topics/{DEMO}?partition=2&segments=1&entries=0")
    [partition] = view["partitions"]
    [segment] = partition["segments"]
    assert (partition["partition"], segment["isActive"]) == (2, True)
    assert segment["offsetIndex"]["first"] == []
    assert partition["segmentCount"] > 1


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "topics/nothing", 404),
        ("GET", f"topics/{DEMO}?partition=3", 404),
        ("GET", f"topics/{DEMO}?partition=-1", 400),
        ("GET", f"topics/{DEMO}?entries=1001", 400),
        ("GET", f"topics/{DEMO}?entries=many", 400),
        ("GET", f"topics/{DEMO}?what=ever", 400),
        ("POST", "produce?count=0", 400),
        ("POST", "produce?count=100001", 400),
        ("POST", f"topics/{DEMO}", 405),
        ("GET", "setup", 405),
        ("GET", "nothing", 404),
    ],
)
def test_what_is_wrong_is_said_as_json(
    broker: Broker, rotated: Any, method: str, path: str, status: int
) -> None:
    found, body = ask(broker, method, path)
    assert found == status, body
    assert body["error"]["code"]
    assert body["error"]["message"]


def test_it_is_the_same_after_a_crash(tmp_path: Path) -> None:
    with Broker(data=tmp_path, http=True) as broker:
        good(broker, "POST", "setup")
        good(broker, "POST", "produce?count=5000")
        before = good(broker, "GET", f"topics/{DEMO}?entries=1000")
        broker.kill()
        broker.start()
        after = good(broker, "GET", f"topics/{DEMO}?entries=1000")
    for was, now in zip(before["partitions"], after["partitions"], strict=True):
        assert now["logEndOffset"] == was["logEndOffset"]
        assert [each["sizeBytes"] for each in now["segments"]] == [
            each["sizeBytes"] for each in was["segments"]
        ]
        assert [each["offsetIndex"] for each in now["segments"]] == [
            each["offsetIndex"] for each in was["segments"]
        ]


def test_an_index_that_is_removed_under_it_is_shown_as_the_log_has_it(tmp_path: Path) -> None:
    with Broker(data=tmp_path, http=True) as broker:
        good(broker, "POST", "setup")
        good(broker, "POST", "produce?count=5000")
        before = good(broker, "GET", f"topics/{DEMO}?partition=0&entries=1000")
        broker.stop()
        for each in directory(broker, 0).glob(f"*{names.INDEX}"):
            each.unlink()
        broker.start()
        after = good(broker, "GET", f"topics/{DEMO}?partition=0&entries=1000")
    assert after["partitions"][0]["segments"] == before["partitions"][0]["segments"]
