"""Quotas in a cluster of three: set at one broker they apply at each, and replication knows none."""

import socket
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.wire_requests import produce_body

from penstock.client.cluster import Cluster as Client
from penstock.client.quotas import alter_quotas, describe_quotas
from penstock.client.settings import parse_servers
from penstock.metadata.quotas import QuotaEntity
from penstock.records import build_batch
from penstock.testing import Cluster
from penstock.wire import Api, parse_response_header, read_response, request_frame

EVERYBODY: QuotaEntity = (("user", None),)
MINE: QuotaEntity = (("client-id", "mine"),)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3) as running:
        running.create_topic("orders", partitions=3, replication_factor=3, min_insync_replicas=3)
        yield running


def alter(bootstrap: str, entity: QuotaEntity, **limits: float | None) -> None:
    with Client(parse_servers(bootstrap)) as client:
        alter_quotas(client, entity, limits)


def produced(bootstrap: str, partition: int) -> Any:
    """The answer to a record of some size, from a broker that may not lead the partition."""
    host, _, port = bootstrap.rpartition(":")
    body = produce_body(9, [("orders", [(partition, bytes(build_batch([(None, b"x" * 900, 0)])))])])
    with closing(socket.create_connection((host, int(port)), timeout=30)) as client:
        client.sendall(request_frame(Api.PRODUCE, 9, 1, "mine", body))
        received = b""
        while len(received) < 4 or len(received) < 4 + int.from_bytes(received[:4], "big"):
            received += client.recv(1 << 16)
    frame = memoryview(received)[4:]
    _, start = parse_response_header(frame, Api.PRODUCE, 9)
    return read_response(Api.PRODUCE, 9, frame[start:])


def test_a_quota_applies_at_every_broker_soon_after_it_was_set_at_one(cluster: Cluster) -> None:
    addresses = [broker.bootstrap for broker in cluster.brokers]
    alter(addresses[0], MINE, producer_byte_rate=10)
    deadline = time.monotonic() + 30
    for address in addresses:
        while produced(address, 0).throttle_time < timedelta(seconds=30):
            assert time.monotonic() < deadline, f"{address} does not know the quota"
    for address in addresses:
        with Client(parse_servers(address)) as client:
            assert describe_quotas(client) == {MINE: {"producer_byte_rate": 10.0}}
    alter(addresses[2], MINE, producer_byte_rate=None)
    for address in addresses:
        while produced(address, 0).throttle_time:
            assert time.monotonic() < deadline, f"{address} still has the quota"


def test_replication_is_not_throttled(cluster: Cluster) -> None:
    """Brokers are users as clients are: without a log-in all of them are ANONYMOUS."""
    alter(cluster.bootstrap, EVERYBODY, consumer_byte_rate=1, request_percentage=0.0001)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "client.id": "other"})
    for number in range(60):
        producer.produce("orders", b"x" * 1000, partition=number % 3)
    # A single fetch of a follower would be muted for hours by such a quota, and each record needs three replicas.
    assert producer.flush(60) == 0
    alter(cluster.bootstrap, EVERYBODY, consumer_byte_rate=None, request_percentage=None)
