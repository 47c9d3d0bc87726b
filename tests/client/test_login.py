"""Log-ins of a conversation with a node whose clock a test moves, and of sockets with a real one."""

from typing import Any

import pytest
from tests.client.fake import feed
from tests.client.test_network import METADATA, dial
from tests.nodes import StillClient, StillNode

from penstock.base.errors import KafkaError
from penstock.client.cluster import Cluster
from penstock.client.connection import Call, Conversation
from penstock.client.errors import LoginFailed
from penstock.client.security import ClientSecurity
from penstock.client.settings import Address, ClientSettings
from penstock.security.sasl.client import BearerLogin, ClientLogin, PlainLogin, ScramLogin
from penstock.server.ports import free_ports
from penstock.testing import Broker

PASSWORD = "planted-s3cret"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"


def secured(**more: str) -> dict[str, str]:
    return {
        "listeners": "PLAINTEXT://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUTSIDE:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.outside.plain.sasl.jaas.config": f'{MODULE} user_alice="{PASSWORD}";',
        **{name.replace("_", "."): value for name, value in more.items()},
    }


ALICE = PlainLogin("alice", PASSWORD)


class Talk:
    """A conversation with a node, without sockets."""

    def __init__(self, node: StillNode, login: ClientLogin | None, listener: str = "OUTSIDE") -> None:
        self.node = node
        self.peer = StillClient(node, listener)
        self.conversation = Conversation(
            "peer", "test", 1 << 24, login, lambda: node.world.clock_ns() / 1_000_000
        )
        self.answered: list[Call[Any]] = []

    def go_on(self, duration_ms: float = 10) -> "Talk":
        """Pass bytes to and fro until neither side has more."""
        while True:
            outgoing = self.conversation.take()
            self.peer.feed(outgoing)
            self.node.world.advance(duration_ms)
            incoming = bytes(self.peer.transport.received)
            self.peer.transport.received.clear()
            self.answered += feed(self.conversation, incoming)
            if not incoming and not outgoing:
                return self

    @property
    def principal(self) -> str:
        return self.peer.connection.session.principal


def test_a_conversation_logs_in_before_it_is_ready() -> None:
    talk = Talk(StillNode(settings=secured()), ALICE)
    assert not talk.conversation.is_ready
    talk.go_on()
    assert talk.conversation.is_ready
    assert talk.principal == "User:alice"
    call = talk.conversation.send(METADATA)
    talk.go_on()
    assert talk.answered == [call]


@pytest.mark.parametrize(
    ("login", "why"),
    [
        (
            PlainLogin("alice", "planted-wrong"),
            r"^peer refused the log-in of alice with PLAIN: Authentication failed: Invalid username or password "
            r"\(SASL_AUTHENTICATION_FAILED\)$",
        ),
        (
            ScramLogin("SCRAM-SHA-256", "nobody", "planted-wrong", lambda: "nonce"),
            r"^peer refused the log-in of nobody with SCRAM-SHA-256: Authentication failed during authentication due "
            r"to invalid credentials with SASL mechanism SCRAM-SHA-256 \(SASL_AUTHENTICATION_FAILED\)$",
        ),
        (
            BearerLogin(lambda: "planted-token"),
            "^peer does not take the SASL mechanism OAUTHBEARER, it takes PLAIN, SCRAM-SHA-256; set sasl.mechanism",
        ),
    ],
)
def test_a_refusal_says_why_and_shows_no_secret(login: ClientLogin, why: str) -> None:
    talk = Talk(StillNode(settings=secured()), login)
    with pytest.raises(LoginFailed, match=why) as refused:
        talk.go_on(200)
    assert "planted" not in str(refused.value)


def test_a_listener_without_log_ins_is_reported() -> None:
    with pytest.raises(
        LoginFailed, match=r"^peer does not ask for a log-in; set security.protocol to one without"
    ):
        Talk(StillNode(settings=secured()), ALICE, "PLAINTEXT").go_on()


def test_the_log_in_is_renewed_within_its_lifetime_and_requests_wait_for_it() -> None:
    """KIP-368: requests before it are answered before it, and those after it are not sent until it is done."""
    talk = Talk(StillNode(settings=secured(connections_max_reauth_ms="60000")), ALICE)
    talk.go_on()
    talk.node.world.advance(50_900)
    early = talk.conversation.send(METADATA)
    talk.node.world.advance(200)
    late = [talk.conversation.send(METADATA) for _ in range(3)]
    assert talk.conversation.pending == 5, "the handshake too"
    assert talk.conversation.is_ready
    talk.go_on()
    assert talk.answered == [early, *late]
    assert talk.conversation.pending == 0
    for _ in range(10):
        talk.node.world.advance(30_000)
        call = talk.conversation.send(METADATA)
        talk.go_on()
        assert call.result().brokers


def test_a_connection_that_was_idle_beyond_its_session_logs_in_again() -> None:
    talk = Talk(StillNode(settings=secured(connections_max_reauth_ms="60000")), ALICE)
    talk.go_on()
    talk.node.world.advance(100_000)
    call = talk.conversation.send(METADATA)
    talk.go_on()
    assert call.result().brokers


def test_what_waits_for_a_log_in_fails_with_the_connection() -> None:
    talk = Talk(StillNode(settings=secured(connections_max_reauth_ms="60000")), ALICE)
    talk.go_on()
    talk.node.world.advance(55_000)
    call = talk.conversation.send(METADATA)
    talk.conversation.fail(KafkaError("it broke"))
    assert talk.conversation.pending == 0
    with pytest.raises(KafkaError, match="it broke"):
        call.result()


# -- over sockets --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def outside() -> Any:
    """The address of a listener with SASL."""
    inside, port = free_ports(2)
    listeners = f"PLAINTEXT://127.0.0.1:{inside},OUTSIDE://127.0.0.1:{port}"
    with Broker(settings=secured(listeners=listeners, connection_failed_authentication_delay_ms="0")):
        yield Address("127.0.0.1", port)


def with_login(login: ClientLogin | None) -> ClientSettings:
    return ClientSettings(security=ClientSecurity(login=login))


def test_a_link_logs_in(outside: Address) -> None:
    link = dial(outside, with_login(ALICE))
    assert link.ask(METADATA).brokers
    link.close()


def test_a_refused_log_in_is_final(outside: Address) -> None:
    retries: list[Exception] = []
    settings = with_login(PlainLogin("alice", "planted-wrong"))
    with (
        Cluster([outside], settings, on_retry=retries.append, retries_bootstrap=True) as cluster,
        pytest.raises(LoginFailed, match="refused the log-in of alice") as refused,
    ):
        cluster.refresh(None)
    assert not retries
    assert "planted" not in str(refused.value)


def test_without_credentials_the_error_says_that_the_listener_asks_for_a_log_in(outside: Address) -> None:
    retries: list[Exception] = []
    with (
        Cluster([outside], on_retry=retries.append, retries_bootstrap=True) as cluster,
        pytest.raises(LoginFailed) as refused,
    ):
        cluster.refresh(None)
    assert str(refused.value) == (
        f"{outside} asks for a log-in with PLAIN or SCRAM-SHA-256, and this client has no credentials; set "
        "security.protocol, sasl.mechanism and sasl.jaas.config"
    )
    assert not retries
