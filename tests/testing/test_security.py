"""A secured broker in one line of a test, with each client library, protocol and mechanism."""

import asyncio
import os
import ssl
import stat
import urllib.error
import urllib.request
import warnings
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from penstock.base.ids import TopicPartition
from penstock.client.cluster import Cluster as Client
from penstock.client.errors import BrokerRefused
from penstock.client.offsets import LATEST, list_offsets
from penstock.client.producer import Producer as OwnProducer
from penstock.client.settings import parse_servers
from penstock.testing import Broker, Cluster, Security
from penstock.testing.security import ClientAccess

ORDERS = TopicPartition("orders", 0)
KINDS = [
    Security("SSL"),
    Security("SASL_PLAINTEXT", "PLAIN"),
    Security("SASL_PLAINTEXT", "SCRAM-SHA-256"),
    Security("SASL_SSL", "PLAIN"),
    Security("SASL_SSL", "SCRAM-SHA-512"),
]


def of_confluent(client: ClientAccess) -> None:
    producer = Producer({**client.confluent_kafka, "log_level": 0})
    producer.produce("orders", b"an order")
    assert producer.flush(30) == 0


def of_kafka_python(client: ClientAccess) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # kafka-python uses what Python has deprecated
        from kafka import KafkaProducer  # noqa: PLC0415

    producer = KafkaProducer(**client.kafka_python)
    producer.send("orders", b"an order").get(30)
    producer.close()


def of_aiokafka(client: ClientAccess) -> None:
    async def main() -> None:
        async with AIOKafkaProducer(**client.aiokafka) as producer:
            await producer.send_and_wait("orders", b"an order")

    asyncio.run(main())


def of_penstock(client: ClientAccess) -> None:
    with Client(parse_servers(client.bootstrap), client.settings) as cluster:
        producer = OwnProducer(cluster)
        producer.send("orders", None, b"an order")
        producer.flush()


@pytest.mark.parametrize("security", KINDS, ids=lambda each: f"{each.protocol}-{each.mechanism}")
def test_each_client_produces(security: Security) -> None:
    with Broker(security=security) as broker:
        broker.create_topic("orders")
        uses: list[Callable[[ClientAccess], None]] = [of_confluent, of_kafka_python, of_aiokafka, of_penstock]
        for use in uses:
            use(broker.client())
        with Client(parse_servers(broker.bootstrap), broker.client().settings) as cluster:
            assert list_offsets(cluster, {ORDERS: LATEST})[ORDERS].offset == len(uses)


def test_acls_decide_and_users_outlive_a_restart(tmp_path: Path) -> None:
    users = {"admin": "planted-1", "alice": 'planted-"2\\'}
    with Broker(security=Security(users=users)) as broker:
        broker.create_topic("orders")
        broker.restart()
        of_penstock(broker.client())
        with (
            pytest.raises(BrokerRefused, match="orders"),
            Client(parse_servers(broker.bootstrap), broker.client("alice").settings) as cluster,
        ):
            cluster.topic("orders")
        with pytest.raises(ValueError, match="the broker has no user bob, expected one of admin, alice"):
            broker.client("bob")
        file = broker.client("alice").write(tmp_path / "alice.properties")
        assert stat.S_IMODE(os.stat(file).st_mode) == 0o600
        shown = f"{broker!r} {broker.client()!r} {Security(users=users)!r}"
    assert "planted" not in shown


@pytest.mark.parametrize("protocol", ["SASL_SSL", "SASL_PLAINTEXT"])
def test_http_has_the_same_users(protocol: str) -> None:
    with Broker(security=protocol, http=True) as broker:
        broker.create_topic("orders")
        admin = broker.client()
        assert broker.http_url.startswith("https:" if protocol == "SASL_SSL" else "http:")
        context = None if admin.ca_file is None else ssl.create_default_context(cafile=admin.ca_file)
        request = urllib.request.Request(f"{broker.http_url}/topics")
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(request, context=context)
        login = b64encode(f"{admin.user}:{admin.password}".encode()).decode()
        request.add_header("Authorization", f"Basic {login}")
        with urllib.request.urlopen(request, context=context) as answer:
            assert b"orders" in answer.read()


def test_a_stranger_is_refused() -> None:
    with Broker(security="SASL_SSL") as broker, Broker(security="SASL_SSL") as other:
        of_other = {**other.client().confluent_kafka, "bootstrap.servers": broker.bootstrap, "log_level": 0}
        with pytest.raises(KafkaException):
            AdminClient(of_other).list_topics(timeout=1)


@pytest.mark.parametrize("controllers", [0, 1])
@pytest.mark.parametrize("protocol", ["SASL_SSL", "SASL_PLAINTEXT", "SSL"])
def test_a_cluster_is_secured(protocol: str, controllers: int) -> None:
    with Cluster(2, controllers=controllers, security=protocol) as cluster:
        cluster.create_topic("orders", replication_factor=2)
        for use in (of_confluent, of_penstock):
            use(cluster.client())
        assert cluster.leader_of("orders") in cluster.brokers


def test_a_broker_without_security_has_settings_too() -> None:
    with Broker() as broker:
        broker.create_topic("orders")
        for use in (of_confluent, of_kafka_python, of_aiokafka, of_penstock):
            use(broker.client())


def test_security_that_makes_no_sense_is_reported() -> None:
    with pytest.raises(ValueError, match="the protocol is 'TLS', expected one of SSL"):
        Broker(security="TLS")
    with pytest.raises(ValueError, match="expected at least one"):
        Security(users={})
