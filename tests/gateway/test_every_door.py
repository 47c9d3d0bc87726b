"""One log, whatever the door: what is written through any of them is read through each of them."""

import base64
import io
import json
import subprocess
import sys
from collections.abc import Callable, Iterator

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from penstock.client.line import LineClient
from penstock.testing import Broker

TOPIC = "shared"
KEYS = {"kafka": b"from kafka", "http": b"\x00\xff %", "line": "über die Leitung".encode()}

Row = tuple[int, bytes | None, bytes | None]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(http=True, line=True) as broker:
        broker.create_topic(TOPIC, partitions=1)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce(TOPIC, key=KEYS["kafka"], value=b"kafka")
        assert producer.flush(30) == 0
        del producer  # before the broker goes: it would complain
        record = {"topic": TOPIC, "key": base64.b64encode(KEYS["http"]).decode(), "value": "aHR0cA=="}
        httpx.post(f"{broker.http_url}/produce", json=record).raise_for_status()
        with LineClient(port=broker.line_port) as line:
            line.produce(TOPIC, b"line", KEYS["line"])
        yield broker


WRITTEN: list[Row] = [(at, key, door.encode()) for at, (door, key) in enumerate(KEYS.items())]


def by_kafka(broker: Broker) -> list[Row]:
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "none", "enable.auto.commit": False}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
    rows = [
        (each.offset(), each.key(), each.value())
        for each in consumer.consume(len(WRITTEN), 30)
        if not each.error()
    ]
    consumer.close()
    return rows


def by_cli(broker: Broker) -> list[Row]:
    command = ["consume", TOPIC, "--server", broker.bootstrap, "--format", "json", "--base64"]
    done = subprocess.run(
        [sys.executable, "-m", "penstock", *command], capture_output=True, text=True, check=True, timeout=60
    )
    records = [json.loads(line) for line in done.stdout.splitlines()]
    return [
        (each["offset"], base64.b64decode(each["keyBase64"]), base64.b64decode(each["valueBase64"]))
        for each in records
    ]


def by_a_group(broker: Broker) -> list[Row]:
    where = {"group": "readers", "topic": TOPIC, "partition": 0}
    found = httpx.get(f"{broker.http_url}/consume", params={**where, "consumer": "nobody"})
    return _rows(found.raise_for_status().json()["messages"])


def by_json(broker: Broker) -> list[Row]:
    return _rows(_get(broker, f"/topics/{TOPIC}/records").json()["records"])


def by_ndjson(broker: Broker) -> list[Row]:
    lines = _get(broker, f"/topics/{TOPIC}/records.ndjson").text.splitlines()
    return _rows([json.loads(line) for line in lines])


def by_tail(broker: Broker) -> list[Row]:
    found = []
    url = f"{broker.http_url}/topics/{TOPIC}/tail?from=beginning"
    with httpx.stream("GET", url, timeout=30) as events:
        for line in events.iter_lines():
            if line.startswith("data: "):
                found.append(json.loads(line.removeprefix("data: ")))
            if len(found) == len(WRITTEN):
                break
    return _rows(found)


def by_parquet(broker: Broker) -> list[Row]:
    return _columns(pq.read_table(io.BytesIO(_get(broker, f"/topics/{TOPIC}/records.parquet").content)))


def by_arrow(broker: Broker) -> list[Row]:
    return _columns(pa.ipc.open_stream(_get(broker, f"/topics/{TOPIC}/records.arrow").content).read_all())


def by_line(broker: Broker) -> list[Row]:
    with LineClient(port=broker.line_port) as line:
        messages = line.consume(TOPIC, "liners", to_offset=len(WRITTEN) - 1)
        rows = []
        for each in messages:
            rows.append((each.offset, each.key, each.value))
            each.ack()
    return rows


def _get(broker: Broker, path: str) -> httpx.Response:
    return httpx.get(broker.http_url + path, timeout=60).raise_for_status()


def _rows(records: list[dict[str, str]]) -> list[Row]:
    return [
        (int(each["offset"]), base64.b64decode(each["key"]), base64.b64decode(each["value"]))
        for each in records
    ]


def _columns(table: pa.Table) -> list[Row]:
    return list(zip(*(table[name].to_pylist() for name in ("offset", "key", "value")), strict=True))


@pytest.mark.parametrize(
    "read",
    [by_kafka, by_cli, by_a_group, by_json, by_ndjson, by_tail, by_parquet, by_arrow, by_line],
    ids=lambda read: read.__name__,
)
def test_what_any_door_wrote_each_door_reads(broker: Broker, read: Callable[[Broker], list[Row]]) -> None:
    assert read(broker) == WRITTEN
