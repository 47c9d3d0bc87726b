"""`kill -9` between write and reply, then a retry with the same idempotency key: one record."""

import http.client
import json
import sys
import time
from base64 import b64encode
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.processes import WAIT_S_MAX, Process, is_readable

from penstock.gateway.idempotency import HEADER

TOPIC = "payments"
HELD = str(Path(__file__).with_name("held_disk.py"))


def body_of(key: str) -> dict[str, Any]:
    return {"topic": TOPIC, "value": b64encode(f"value of {key}".encode()).decode(), "idempotency_key": key}


def begin(penstock: Process, key: str) -> http.client.HTTPConnection:
    """Send it, and do not wait."""
    connection = http.client.HTTPConnection(penstock.http_url.removeprefix("http://"), timeout=WAIT_S_MAX)
    connection.request("POST", "/produce", json.dumps(body_of(key)), {"content-type": "application/json"})
    return connection


def produce(penstock: Process, key: str) -> tuple[int, int]:
    response = httpx.post(f"{penstock.http_url}/produce", json=body_of(key), timeout=WAIT_S_MAX)
    assert response.status_code == 200, response.text
    return response.json()["partition"], response.json()["offset"]


def is_written(data: Path, key: str) -> bool:
    return any(key.encode() in each.read_bytes() for each in data.glob(f"logs/{TOPIC}-*/*.log"))


def wait_until_written(data: Path, key: str) -> None:
    deadline = time.monotonic() + WAIT_S_MAX
    while not is_written(data, key):
        assert time.monotonic() < deadline, f"{key} is not written"
        time.sleep(0.001)


def is_settled(connection: http.client.HTTPConnection) -> bool:
    return is_readable(connection.sock, 0)


def records(penstock: Process) -> dict[str, list[tuple[int, int]]]:
    """By idempotency key, where Kafka's clients see its records."""
    consumer = Consumer(
        {
            "bootstrap.servers": penstock.bootstrap,
            "group.id": "-",
            "enable.auto.commit": False,
            "enable.partition.eof": False,
        }
    )
    found: dict[str, list[tuple[int, int]]] = {}
    try:
        ends = {
            n: consumer.get_watermark_offsets(TopicPartition(TOPIC, n), timeout=WAIT_S_MAX)[1]
            for n in range(3)
        }
        consumer.assign([TopicPartition(TOPIC, n, 0) for n in range(3)])
        for message in consumer.consume(sum(ends.values()), timeout=WAIT_S_MAX):
            key = dict(message.headers())[HEADER].decode()
            found.setdefault(key, []).append((message.partition(), message.offset()))
    finally:
        consumer.close()
    return found


@pytest.mark.parametrize(
    "rounds", [pytest.param(1), pytest.param(20, marks=pytest.mark.long)], ids=["once", "20 times"]
)
def test_killed_between_write_and_reply_a_retry_finds_its_record(tmp_path: Path, rounds: int) -> None:
    data, hold = tmp_path / "data", tmp_path / "hold"
    command = (sys.executable, HELD, str(hold), "up")
    places: dict[str, tuple[int, int]] = {}
    with Process(data=data, http=True, command=command) as penstock:
        places["first of all"] = produce(penstock, "first of all")
        for number in range(rounds):
            key = f"payment {number:04d}"
            hold.touch()
            connection = begin(penstock, key)
            wait_until_written(data, key)
            assert not is_settled(connection), "nothing is answered before it is synced"
            penstock.kill()
            connection.close()
            hold.unlink()
            penstock.start()
            places[key] = produce(penstock, key)
            assert produce(penstock, key) == places[key]
        assert {key: produce(penstock, key) for key in places} == places
        assert records(penstock) == {key: [place] for key, place in places.items()}


@pytest.mark.long
def test_killed_at_any_moment_a_retry_makes_one_record(tmp_path: Path) -> None:
    rng = Random(7)
    places: dict[str, tuple[int, int]] = {}
    answered: Counter[bool] = Counter()
    with Process(data=tmp_path / "data", http=True) as penstock:
        produce(penstock, "first of all")
        for number in range(20):
            keys = [f"payment {number:04d} {each}" for each in range(8)]
            connections = [begin(penstock, key) for key in keys]
            time.sleep(rng.random() * 0.01)
            answered.update(map(is_settled, connections))
            penstock.kill()
            for connection in connections:
                connection.close()
            penstock.start()
            places |= {key: produce(penstock, key) for key in keys}
        found = records(penstock)
        assert {key: found[key] for key in places} == {key: [place] for key, place in places.items()}
    assert answered[False], "no kill came before a reply"
