"""Real clients log in with bearer tokens: confluent-kafka, kafka-python, aiokafka and Kafka's tools."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AiokafkaTokens
from confluent_kafka import Producer
from kafka import KafkaProducer
from kafka.net.sasl.oauth import AbstractTokenProvider as KafkaPythonTokens
from tests.compat.kafka.peer import KafkaPeer
from tests.security.tokens import claims, jwks, signed

from penstock.server.ports import free_ports
from penstock.testing import Broker

pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.usefixtures("leaked_sockets_collected"),
]
"""kafka-python leaves sockets open where its start fails."""


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[tuple[Broker, str]]:
    """A broker, and the address of its listener with tokens."""
    keys = tmp_path / "keys.json"
    keys.write_bytes(jwks())
    ports = free_ports(2)
    settings = {
        "listeners": f"PLAINTEXT://127.0.0.1:{ports[0]},SASL_PLAINTEXT://127.0.0.1:{ports[1]}",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "sasl.oauthbearer.expected.issuer": "https://login.example.org",
        "sasl.oauthbearer.expected.audience": "penstock",
        "sasl.oauthbearer.clock.skew.seconds": "0",
    }
    with Broker(settings=settings) as broker:
        broker.create_topic("t", partitions=1)
        yield broker, f"127.0.0.1:{ports[1]}"


def now_ms() -> int:
    return int(time.time() * 1000)


def token(**said: Any) -> str:
    known = {"iss": "https://login.example.org", "aud": "penstock"}
    return signed(claims(now_ms(), **{**known, **said}))


def with_confluent(bootstrap: str, value: str, lifetime_s: float = 600) -> str:
    failures: list[str] = []
    done: list[Any] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": lambda _: (value, time.time() + lifetime_s),
            "message.timeout.ms": 4000,
            "error_cb": lambda error: failures.append(str(error)),
        }
    )
    producer.produce("t", b"hello", on_delivery=lambda error, _: done.append(error))
    producer.flush(10)
    return "" if done and done[0] is None else "; ".join(failures) or "not delivered"


def with_kafka_python(bootstrap: str, value: str) -> str:
    class Tokens(KafkaPythonTokens):
        def token(self) -> str:
            return value

    try:
        producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauth_token_provider=Tokens(),
            max_block_ms=4000,
            bootstrap_timeout_ms=4000,
        )
        producer.send("t", b"hello").get(10)
        producer.close()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def with_aiokafka(bootstrap: str, value: str) -> str:
    class Tokens(AiokafkaTokens):
        async def token(self) -> str:
            return value

    async def run() -> str:
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauth_token_provider=Tokens(),
        )
        try:
            await producer.start()
            await producer.send_and_wait("t", b"hello")
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        finally:
            await producer.stop()
        return ""

    return asyncio.run(run())


CLIENTS = {"confluent": with_confluent, "kafka-python": with_kafka_python, "aiokafka": with_aiokafka}


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_with_a_token_works_and_one_with_a_wrong_token_does_not(
    client: str, secured: tuple[Broker, str]
) -> None:
    _, bootstrap = secured
    assert CLIENTS[client](bootstrap, token()) == ""
    assert CLIENTS[client](bootstrap, token(aud="other")) != ""


def test_librdkafka_shows_kafkas_answer(secured: tuple[Broker, str]) -> None:
    _, bootstrap = secured
    assert "invalid_token" in with_confluent(bootstrap, token(iss="https://evil.example.org"))


def test_the_broker_ends_a_session_whose_token_has_expired(secured: tuple[Broker, str]) -> None:
    """A client that hands out one token for ever is closed when the broker's clock passes its end."""
    broker, bootstrap = secured
    done: list[Any] = []
    failures: list[str] = []
    value = token()
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": lambda _: (value, time.time() + 600),
            "message.timeout.ms": 5000,
            "error_cb": lambda error: failures.append(str(error)),
        }
    )
    producer.produce("t", b"before", on_delivery=lambda error, _: done.append(error))
    producer.flush(10)
    assert done[0] is None
    broker.clock.advance(minutes=11)
    producer.produce("t", b"after", on_delivery=lambda error, _: done.append(error))
    producer.flush(10)
    assert done[1] is not None
    assert any("invalid_token" in each for each in failures)


@pytest.mark.kafka
def test_kafkas_tools_log_in_with_a_token_in_a_file(
    kafka: KafkaPeer, secured: tuple[Broker, str], tmp_path: Path
) -> None:
    _, bootstrap = secured
    (tmp_path / "token.jwt").write_text(token())
    config = tmp_path / "client.properties"
    package = "org.apache.kafka.common.security.oauthbearer"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
        f"sasl.jaas.config={package}.OAuthBearerLoginModule required;\n"
        f"sasl.login.callback.handler.class={package}.OAuthBearerLoginCallbackHandler\n"
        f"sasl.oauthbearer.token.endpoint.url={(tmp_path / 'token.jwt').as_uri()}\n"
    )
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={(tmp_path / 'token.jwt').as_uri()}"
    arguments = ("--bootstrap-server", bootstrap, "--command-config", str(config), "--list")
    assert "t" in kafka.java(allowed, "org.apache.kafka.tools.TopicCommand", *arguments).split()
