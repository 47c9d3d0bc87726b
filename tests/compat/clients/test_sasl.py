"""Real clients log in: confluent-kafka, kafka-python and aiokafka, with PLAIN and both SCRAMs."""

import asyncio
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka import KafkaConsumer, KafkaProducer
from tests.compat.kafka.peer import KafkaError as KafkaToolError
from tests.compat.kafka.peer import KafkaPeer

from penstock.server.ports import free_ports
from penstock.testing import Broker

pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.usefixtures("leaked_sockets_collected"),
]
"""kafka-python leaves sockets open where its start fails."""

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PASSWORD = "planted-s3cret"
TYPES = {"SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256, "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512}
JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required"


@dataclass(frozen=True)
class Secured:
    """A broker with a SASL listener, and one without for the tests' own calls."""

    bootstrap: str
    open_bootstrap: str

    def _alter(self, change: Any) -> None:
        admin = AdminClient({"bootstrap.servers": self.open_bootstrap})
        for each in admin.alter_user_scram_credentials([change]).values():
            each.result(20)

    def set_password(self, user: str, mechanism: str, password: str) -> None:
        upsertion = UserScramCredentialUpsertion(
            user, ScramCredentialInfo(TYPES[mechanism], 4096), password.encode()
        )
        self._alter(upsertion)

    def remove(self, user: str, mechanism: str) -> None:
        deletion = UserScramCredentialDeletion(user, TYPES[mechanism])
        self._alter(deletion)


def settings(ports: list[int], **more: str) -> dict[str, str]:
    return {
        "listeners": f"PLAINTEXT://127.0.0.1:{ports[0]},SASL_PLAINTEXT://127.0.0.1:{ports[1]}",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{JAAS} user_alice="{PASSWORD}";',
        "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        ),
        **more,
    }


@pytest.fixture(scope="module")
def secured() -> Iterator[Secured]:
    ports = free_ports(2)
    with Broker(settings=settings(ports)):
        made = Secured(f"127.0.0.1:{ports[1]}", f"127.0.0.1:{ports[0]}")
        for mechanism in TYPES:
            made.set_password("alice", mechanism, PASSWORD)
        yield made


# -- the clients ---------------------------------------------------------------------------------------


def with_confluent(bootstrap: str, mechanism: str, user: str, password: str, topic: str) -> list[bytes]:
    common = {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }
    failures: list[str] = []
    producer = Producer(
        {**common, "message.timeout.ms": 4000, "error_cb": lambda error: failures.append(str(error))}
    )
    done: list[Any] = []
    producer.produce(topic, b"hello", on_delivery=lambda error, _: done.append(error))
    producer.flush(10)
    if not done or done[0] is not None:
        raise PermissionError("; ".join(failures))
    consumer = Consumer({**common, "group.id": topic, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        found = consumer.consume(1, 20)
        return [each.value() for each in found]
    finally:
        consumer.close()


def with_kafka_python(bootstrap: str, mechanism: str, user: str, password: str, topic: str) -> list[bytes]:
    common = {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": user,
        "sasl_plain_password": password,
    }
    try:
        producer = KafkaProducer(**common, max_block_ms=4000, bootstrap_timeout_ms=4000)
        producer.send(topic, b"hello").get(10)
        producer.close()
    except Exception as error:
        raise PermissionError(f"{type(error).__name__}: {error}") from error
    consumer = KafkaConsumer(topic, **common, auto_offset_reset="earliest", consumer_timeout_ms=20_000)
    try:
        return [next(consumer).value]
    finally:
        consumer.close()


def with_aiokafka(bootstrap: str, mechanism: str, user: str, password: str, topic: str) -> list[bytes]:
    common = {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": user,
        "sasl_plain_password": password,
    }

    async def run() -> list[bytes]:
        producer = AIOKafkaProducer(**common)
        try:
            await producer.start()
            await producer.send_and_wait(topic, b"hello")
        except Exception as error:
            raise PermissionError(f"{type(error).__name__}: {error}") from error
        finally:
            with suppress(Exception):
                await producer.stop()
        consumer = AIOKafkaConsumer(topic, **common, auto_offset_reset="earliest")
        await consumer.start()
        try:
            return [(await asyncio.wait_for(consumer.getone(), 20)).value]
        finally:
            await consumer.stop()

    return asyncio.run(run())


CLIENTS: dict[str, Callable[[str, str, str, str, str], list[bytes]]] = {
    "confluent": with_confluent,
    "kafka-python": with_kafka_python,
    "aiokafka": with_aiokafka,
}

every_client = pytest.mark.parametrize("client", CLIENTS)
every_mechanism = pytest.mark.parametrize("mechanism", MECHANISMS)


def topic_of(client: str, mechanism: str, what: str) -> str:
    return f"{client}-{mechanism}-{what}"


@every_mechanism
@every_client
def test_a_user_logs_in_and_works(client: str, mechanism: str, secured: Secured) -> None:
    topic = topic_of(client, mechanism, "works")
    assert CLIENTS[client](secured.bootstrap, mechanism, "alice", PASSWORD, topic) == [b"hello"]


@every_mechanism
@every_client
def test_a_wrong_password_is_refused(
    client: str, mechanism: str, secured: Secured, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(PermissionError) as refused:
        CLIENTS[client](
            secured.bootstrap, mechanism, "alice", "planted-wrong", topic_of(client, mechanism, "no")
        )
    if client == "confluent":  # the others say only that no broker is there
        assert "uthentication" in str(refused.value)
    broker_lines = [each.getMessage() for each in caplog.records if each.name.startswith("penstock")]
    assert not any("planted" in line for line in broker_lines)


@every_client
def test_an_unknown_user_and_a_mechanism_that_is_off_are_refused(client: str, secured: Secured) -> None:
    for mechanism in ("PLAIN", "SCRAM-SHA-512"):
        with pytest.raises(PermissionError):
            CLIENTS[client](
                secured.bootstrap, mechanism, "nobody", PASSWORD, topic_of(client, mechanism, "nobody")
            )


@every_client
def test_a_changed_password_counts_at_once_and_a_removed_user_is_out(client: str, secured: Secured) -> None:
    user, mechanism = f"bob-{client}", "SCRAM-SHA-256"
    use = CLIENTS[client]
    secured.set_password(user, mechanism, "first")
    assert use(secured.bootstrap, mechanism, user, "first", topic_of(client, mechanism, "first")) == [
        b"hello"
    ]
    secured.set_password(user, mechanism, "second")
    assert use(secured.bootstrap, mechanism, user, "second", topic_of(client, mechanism, "second")) == [
        b"hello"
    ]
    with pytest.raises(PermissionError):
        use(secured.bootstrap, mechanism, user, "first", topic_of(client, mechanism, "third"))
    secured.remove(user, mechanism)
    with pytest.raises(PermissionError):
        use(secured.bootstrap, mechanism, user, "second", topic_of(client, mechanism, "fourth"))


@every_client
def test_a_mechanism_that_is_off_is_refused(client: str) -> None:
    ports = free_ports(2)
    only = settings(ports, **{"sasl.enabled.mechanisms": "SCRAM-SHA-512"})
    only = {name: value for name, value in only.items() if not name.endswith("jaas.config")}
    with Broker(settings=only), pytest.raises(PermissionError):
        CLIENTS[client](f"127.0.0.1:{ports[1]}", "PLAIN", "alice", PASSWORD, "off")


def test_a_long_lived_client_logs_in_again_before_its_session_ends() -> None:
    """KIP-368: librdkafka logs in again at nine tenths of the session's lifetime."""
    ports = free_ports(2)
    ending = settings(ports, **{"connections.max.reauth.ms": "2000"})
    with Broker(settings=ending) as broker:
        broker.create_topic("t")
        losses: list[str] = []
        producer = Producer(
            {
                "bootstrap.servers": f"127.0.0.1:{ports[1]}",
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "alice",
                "sasl.password": PASSWORD,
                "error_cb": lambda error: losses.append(str(error)),
            }
        )
        done: list[Any] = []
        until = time.monotonic() + 6
        while time.monotonic() < until:
            producer.produce("t", b"x", on_delivery=lambda error, _: done.append(error))
            producer.poll(0.05)
        assert producer.flush(10) == 0
        assert done
        assert set(done) == {None}
        assert losses == [], "no connection was closed"


def test_clients_that_never_log_in_do_not_block_others(secured: Secured) -> None:
    host, _, port = secured.bootstrap.partition(":")
    with ExitStack() as crowd:
        for number in range(300):
            half_open = crowd.enter_context(socket.create_connection((host, int(port))))
            half_open.sendall(b"" if number % 3 else (400_000).to_bytes(4, "big") + bytes(100))
        began = time.monotonic()
        assert with_confluent(secured.bootstrap, "PLAIN", "alice", PASSWORD, "in-a-crowd") == [b"hello"]
        assert time.monotonic() - began < 15


@pytest.mark.kafka
def test_kafkas_own_tools_log_in(kafka: KafkaPeer, secured: Secured, tmp_path: Path) -> None:
    def listed(mechanism: str, password: str) -> str:
        module = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
        config = tmp_path / "client.properties"
        config.write_text(
            f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
            f"sasl.jaas.config=org.apache.kafka.common.security.{module}LoginModule required "
            f'username="alice" password="{password}";\n'
        )
        arguments = ("--bootstrap-server", secured.bootstrap, "--command-config", str(config), "--list")
        return kafka.java("org.apache.kafka.tools.TopicCommand", *arguments)

    admin = AdminClient({"bootstrap.servers": secured.open_bootstrap})
    admin.create_topics([NewTopic("seen", 1)])["seen"].result(20)
    for mechanism in ("PLAIN", "SCRAM-SHA-512"):
        assert "seen" in listed(mechanism, PASSWORD).split()
    with pytest.raises(KafkaToolError, match="Authentication failed: Invalid username or password"):
        listed("PLAIN", "wrong")


@pytest.mark.kafka
@pytest.mark.long
def test_users_of_a_kafka_directory_log_in_here_and_again_there(kafka: KafkaPeer, tmp_path: Path) -> None:
    data = tmp_path / "kafka-logs"
    kafka.format_storage(data)
    with kafka.running_kafka(data) as running:
        Secured("", running.bootstrap).set_password("carol", "SCRAM-SHA-256", "from-kafka")
        running.stop()
    ports = free_ports(2)
    with Broker(data=data, settings=settings(ports)):
        bootstrap = f"127.0.0.1:{ports[1]}"
        assert with_confluent(bootstrap, "SCRAM-SHA-256", "carol", "from-kafka", "hello") == [b"hello"]
        Secured("", f"127.0.0.1:{ports[0]}").set_password("dave", "SCRAM-SHA-512", "from-here")
    with kafka.running_kafka(data) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        described = {
            user: [info.mechanism for info in each.result(20).scram_credential_infos]
            for user, each in admin.describe_user_scram_credentials(["carol", "dave"]).items()
        }
        assert described == {"carol": [TYPES["SCRAM-SHA-256"]], "dave": [TYPES["SCRAM-SHA-512"]]}


def test_a_client_without_a_log_in_gets_nothing(secured: Secured) -> None:
    with pytest.raises(KafkaException):
        AdminClient({"bootstrap.servers": secured.bootstrap}).list_topics(timeout=3)
