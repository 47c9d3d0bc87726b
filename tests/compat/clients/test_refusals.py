"""What real clients must not get: a node that they do not trust, one that does not trust them, and rights or users
that were taken away while they were connected. confluent-kafka, kafka-python and aiokafka."""

import asyncio
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from kafka import KafkaProducer
from tests.compat.clients.test_sasl import Secured
from tests.compat.clients.test_sasl import settings as sasl_settings
from tests.server.tls_nodes import client_context, issue, write_ca, write_store

from penstock.metadata.config_table import STANDARD_AUTHORIZER
from penstock.server.ports import free_ports
from penstock.testing import Broker

pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.usefixtures("leaked_sockets_collected"),
]
"""kafka-python leaves sockets open where its start fails."""

SECONDS_MAX = 20
PAST = datetime.now(UTC) - timedelta(days=1)


# -- TLS -----------------------------------------------------------------------------------------------


class Stores:
    """Files of a node, of a client and of the authorities that each trusts."""

    def __init__(self, path: Path, case: str) -> None:
        ca, stranger = trustme.CA(), trustme.CA()
        old = {"not_before": PAST - timedelta(days=9), "not_after": PAST}
        node = issue(ca)
        client: trustme.LeafCert | None = ca.issue_cert("alice@example.org", common_name="alice")
        trusted = ca
        match case:
            case "an unknown authority":
                trusted = stranger
            case "another host":
                node = ca.issue_cert("elsewhere.example")
            case "an expired certificate of the node":
                node = issue(ca, **old)
            case "an expired certificate of the client":
                client = ca.issue_cert("alice@example.org", common_name="alice", **old)
            case "a certificate of the client by another authority":
                client = stranger.issue_cert("alice@example.org", common_name="alice")
            case "no certificate of the client":
                client = None
        self.node = write_store(path / "node.pem", node)
        self.authority = write_ca(path / "ca.pem", trusted)
        self.of_clients = write_ca(path / "clients.pem", ca)
        self.client = None if client is None else write_store(path / "client.pem", client)
        self.context: ssl.SSLContext = client_context(trusted, client)


def confluent_error(bootstrap: str, stores: Stores) -> str:
    """What the client says; empty if it gets the cluster's metadata."""
    errors: list[str] = []
    more = {}
    if stores.client is not None:
        more = {"ssl.key.location": str(stores.client), "ssl.certificate.location": str(stores.client)}
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "security.protocol": "SSL",
            "ssl.ca.location": stores.authority,
            "error_cb": lambda error: errors.append(error.str()),
            "log_level": 0,
            **more,
        }
    )
    end = time.monotonic() + SECONDS_MAX
    while not errors and time.monotonic() < end:
        with suppress(Exception):
            if producer.list_topics(timeout=0.2).brokers:
                return ""
        producer.poll(0)
    return " ".join(errors)


def kafka_python_error(bootstrap: str, stores: Stores) -> str:
    try:
        producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            security_protocol="SSL",
            ssl_context=stores.context,
            max_block_ms=1500,
            bootstrap_timeout_ms=1500,
        )
        partitions = producer.partitions_for("orders")
        producer.close()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "" if partitions else "no partitions"


def aiokafka_error(bootstrap: str, stores: Stores) -> str:
    async def run() -> str:
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap, security_protocol="SSL", ssl_context=stores.context
        )
        try:
            await producer.start()
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        finally:
            with suppress(Exception):
                await producer.stop()
        return ""

    return asyncio.run(run())


CLIENTS: dict[str, Callable[[str, Stores], str]] = {
    "confluent": confluent_error,
    "kafka-python": kafka_python_error,
    "aiokafka": aiokafka_error,
}

CASES = [
    "nothing",
    "an unknown authority",
    "another host",
    "an expired certificate of the node",
    "an expired certificate of the client",
    "a certificate of the client by another authority",
    "no certificate of the client",
]


@pytest.mark.parametrize("case", CASES)
def test_a_client_connects_unless_something_is_wrong(tmp_path: Path, case: str) -> None:
    stores = Stores(tmp_path, case)
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(stores.node),
        "ssl.client.auth": "required",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": stores.of_clients,
    }
    with Broker(settings=settings) as broker:
        said = {name: error(f"localhost:{broker.port}", stores) for name, error in CLIENTS.items()}
    if case == "nothing":
        assert not any(said.values()), said
    else:
        assert all(said.values()), said


# -- rights and users that are taken away --------------------------------------------------------------

ALICE = {"sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": "planted-s3cret"}


ANYWHERE = "User:alice", "*"


class Guarded:
    """A broker with log-ins and ACLs; without a log-in one may do everything."""

    def __init__(self, ports: list[int]) -> None:
        self.bootstrap = f"127.0.0.1:{ports[1]}"
        self._admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{ports[0]}"})

    def allow(self) -> None:
        acls = [
            AclBinding(kind, "*", ResourcePatternType.LITERAL, *ANYWHERE, operation, AclPermissionType.ALLOW)
            for kind, operation in (
                (ResourceType.TOPIC, AclOperation.WRITE),
                (ResourceType.TOPIC, AclOperation.READ),
                (ResourceType.GROUP, AclOperation.READ),
            )
        ]
        for done in self._admin.create_acls(acls).values():
            done.result(SECONDS_MAX)

    def take_away(self) -> None:
        """Once this returns, the broker denies it."""
        whatever = AclOperation.ANY, AclPermissionType.ANY
        every = AclBindingFilter(ResourceType.ANY, None, ResourcePatternType.ANY, *ANYWHERE, *whatever)
        [done] = self._admin.delete_acls([every]).values()
        assert len(done.result(SECONDS_MAX)) == 3


@pytest.fixture
def guarded() -> Iterator[Guarded]:
    ports = free_ports(2)
    more = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}
    with Broker(settings=sasl_settings(ports, **more)) as broker:
        broker.create_topic("orders")
        made = Guarded(ports)
        made.allow()
        yield made


def test_a_right_that_is_taken_away_is_gone_for_a_connected_confluent_client(guarded: Guarded) -> None:
    common = {"bootstrap.servers": guarded.bootstrap, "security.protocol": "SASL_PLAINTEXT", **ALICE}

    def produce(producer: Producer) -> KafkaError | None:
        results: list[KafkaError | None] = []
        producer.produce("orders", b"x", on_delivery=lambda error, _: results.append(error))
        assert producer.flush(SECONDS_MAX) == 0
        return results[0]

    consumer = Consumer({**common, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    producer = Producer(common)
    assert produce(producer) is None
    first = consumer.poll(SECONDS_MAX)
    assert first is not None
    assert first.error() is None
    guarded.take_away()
    error = produce(producer)
    assert error is not None
    assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    end = time.monotonic() + SECONDS_MAX
    codes: set[int] = set()
    while not codes and time.monotonic() < end:
        message = consumer.poll(1)
        if message is not None and message.error() is not None:
            codes.add(message.error().code())
    assert codes <= {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED}
    assert codes
    consumer.close()
    guarded.allow()
    assert produce(Producer(common)) is None, "and given back"


def test_a_right_that_is_taken_away_is_gone_for_a_connected_kafka_python_client(guarded: Guarded) -> None:
    producer = KafkaProducer(
        bootstrap_servers=guarded.bootstrap,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_plain_username="alice",
        sasl_plain_password=ALICE["sasl.password"],
        max_block_ms=SECONDS_MAX * 1000,
    )
    producer.send("orders", b"x").get(SECONDS_MAX)
    guarded.take_away()
    with pytest.raises(Exception, match="TopicAuthorizationFailed"):
        producer.send("orders", b"x").get(SECONDS_MAX)
    producer.close()


def test_a_right_that_is_taken_away_is_gone_for_a_connected_aiokafka_client(guarded: Guarded) -> None:
    async def run() -> str:
        producer = AIOKafkaProducer(
            bootstrap_servers=guarded.bootstrap,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_plain_username="alice",
            sasl_plain_password=ALICE["sasl.password"],
        )
        await producer.start()
        try:
            await producer.send_and_wait("orders", b"x")
            await asyncio.to_thread(guarded.take_away)
            await producer.send_and_wait("orders", b"x")
        except Exception as error:
            return type(error).__name__
        finally:
            await producer.stop()
        return ""

    assert asyncio.run(run()) == "TopicAuthorizationFailedError"


def test_a_removed_user_is_out_when_its_session_ends() -> None:
    """Users are looked at when a client logs in again: `connections.max.reauth.ms`."""
    ports = free_ports(2)
    with Broker(settings=sasl_settings(ports, **{"connections.max.reauth.ms": "1500"})) as broker:
        broker.create_topic("orders")
        secured = Secured(f"127.0.0.1:{ports[1]}", f"127.0.0.1:{ports[0]}")
        secured.set_password("carol", "SCRAM-SHA-256", "first")
        errors: list[str] = []
        producer = Producer(
            {
                "bootstrap.servers": secured.bootstrap,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "SCRAM-SHA-256",
                "sasl.username": "carol",
                "sasl.password": "first",
                "message.timeout.ms": 1500,
                "error_cb": lambda error: errors.append(error.str()),
                "log_level": 0,
            }
        )
        delivered: list[Any] = []

        def produce() -> Any:
            producer.produce("orders", b"x", on_delivery=lambda error, _: delivered.append(error))
            producer.flush(SECONDS_MAX)
            return delivered.pop()

        assert produce() is None
        secured.remove("carol", "SCRAM-SHA-256")
        end = time.monotonic() + SECONDS_MAX
        while produce() is None:
            assert time.monotonic() < end, "the session does not end"
            producer.poll(0.1)
        assert any("uthentication" in each for each in errors), errors
