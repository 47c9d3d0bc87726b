"""Clients of the doors that have not logged in: what they can do, for how long, and what they cost."""

from base64 import b64encode
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.nodes import StillNode
from tests.server.test_door_abuse import DoorTransport
from tests.server.test_sasl import set_password

from penstock.gateway.http.protocol.authentication import HttpLogins
from penstock.gateway.http.protocol.messages import HttpError
from penstock.gateway.line.commands import Auth, BadCommand, parse
from penstock.gateway.shared.login import BearerToken, Password
from penstock.handlers.sasl import LOGIN_MS_MAX
from penstock.metadata.delegation_tokens import TokenKeys
from penstock.metadata.records import DelegationTokenRecord
from penstock.server import connections

JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="a" user_bob="b";'
SETTINGS = {
    "http.listener": "127.0.0.1:0",
    "line.listener": "127.0.0.1:0",
    "http.security.protocol": "SASL_PLAINTEXT",
    "line.security.protocol": "SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "listener.name.http.plain.sasl.jaas.config": JAAS,
    "listener.name.line.plain.sasl.jaas.config": JAAS,
}
SECOND = 1000


class Doors:
    def __init__(self, settings: dict[str, str] = SETTINGS, **more: str) -> None:
        self.node = StillNode(
            settings={**settings, **{name.replace("_", "."): each for name, each in more.items()}}
        )
        self.world = self.node.world
        opened: list[bool] = []
        self.node.node.open_doors(lambda: opened.append(True))
        self.world.run_until(lambda: bool(opened))
        self.connections = self.node.node._connections

    def client(self, door: str) -> "Client":
        return Client(self, door)


class Client:
    def __init__(self, at: Doors, door: str) -> None:
        self.world = at.world
        self.transport = DoorTransport()
        self.connection: Any = at.node.node.door(door)
        self.connection.connection_made(self.transport)

    def say(self, data: bytes) -> None:
        room = self.connection.get_buffer(-1)
        room[: len(data)] = data
        del room
        self.connection.buffer_updated(len(data))

    def ask(self, data: bytes, ms: int = 200) -> bytes:
        self.say(data)
        self.world.advance(ms)
        received = bytes(self.transport.received)
        self.transport.received.clear()
        return received

    @property
    def is_open(self) -> bool:
        return not self.transport.is_closed


def request(user: str = "", password: str = "", path: str = "/topics") -> bytes:
    given = f"Authorization: Basic {b64encode(f'{user}:{password}'.encode()).decode()}\r\n" if user else ""
    return f"GET {path} HTTP/1.1\r\nHost: a\r\n{given}\r\n".encode()


def test_a_client_has_30_seconds_to_log_in() -> None:
    at = Doors()
    silent, asking, trickling = at.client("http"), at.client("http"), at.client("line")
    users = [at.client("http"), at.client("line")]
    assert b" 200 OK" in users[0].ask(request("alice", "a"))
    assert users[1].ask(b"AUTH alice a\n") == b"+OK\n"
    for _ in range(LOGIN_MS_MAX // SECOND + 6):
        assert b" 200 OK" in asking.ask(request(path="/health/live"), 1)
        if trickling.is_open:
            trickling.ask(b"\n", 1)
        at.world.advance(SECOND)
    assert not silent.is_open
    assert not trickling.is_open
    assert asking.is_open, "it asks for what needs no log-in"
    assert all(each.is_open for each in users)


def test_what_guests_keep_is_bounded_for_all_together(monkeypatch: pytest.MonkeyPatch) -> None:
    at = Doors()
    memory = at.connections.login_memory
    monkeypatch.setattr(connections, "LOGIN_BYTES_MAX", 100_000)
    half = b"GET /topics HTTP/1.1\r\nHost: a\r\nX-Long: " + b"x" * 20_000
    guests = [at.client("http") for _ in range(4)]
    for each in guests:
        each.say(half)
    assert 80_000 < memory.total < 100_000
    one_more = at.client("http")
    one_more.say(half)
    assert not one_more.is_open
    line = at.client("line")
    line.say(b"AUTH alice " + b"x" * 5000)
    assert memory.total > 85_000
    user = at.client("http")
    user.ask(request("alice", "a"))
    user.say(half)
    assert user.is_open, "users have their own room"
    for each in (*guests, line):
        each.connection.connection_lost(None)
    assert memory.total == 0


def test_a_guest_that_was_answered_keeps_nothing() -> None:
    at = Doors()
    guest = at.client("http")
    assert b" 401 " in guest.ask(request())
    assert b" 200 OK" in guest.ask(request(path="/health/live"))
    assert at.connections.login_memory.total == 0
    assert guest.is_open


def test_requests_wait_for_the_log_in_before_them() -> None:
    """Pipelined, each as its own user."""
    at = Doors()
    set_password(at.node, "carol", "c")
    client = at.client("http")
    answers = client.ask(
        request("carol", "c")
        + request("alice", "a")
        + request()
        + request("carol", "c")
        + request("carol", "x"),
        500,
    )
    assert [int(each[:3]) for each in answers.split(b"HTTP/1.1 ")[1:]] == [200, 200, 401, 200, 401]
    assert not client.is_open


def test_tls_on_a_port_without_it_is_said_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    at = Doors()
    for door in ("http", "line"):
        client = at.client(door)
        assert client.ask(b"\x16\x03\x01\x02\x00\x01\x00") == b""
        assert not client.is_open
    assert "the client uses TLS, but the listener HTTP has none" in caplog.text
    assert "http.security.protocol=SSL or SASL_SSL" in caplog.text


# -- sessions of the line protocol ---------------------------------------------------------------------


def test_a_session_ends_and_can_be_renewed_by_the_same_user() -> None:
    at = Doors(connections_max_reauth_ms="5000")
    renewed, forgetful, other = (at.client("line") for _ in range(3))
    for each in (renewed, forgetful, other):
        assert each.ask(b"AUTH alice a\n") == b"+OK\n"
    at.world.advance(3000)
    assert renewed.ask(b"AUTH alice a\n") == b"+OK\n"
    assert other.ask(b"AUTH bob b\n").startswith(b"-ERR this connection is that of User:alice")
    assert not other.is_open
    at.world.advance(3000)
    assert forgetful.transport.received.startswith(b"-ERR the session has ended")
    assert not forgetful.is_open
    assert renewed.is_open
    at.world.advance(6000)
    assert not renewed.is_open


def test_without_log_ins_auth_is_refused_and_the_connection_stays() -> None:
    settings = {"http.listener": "127.0.0.1:0", "line.listener": "127.0.0.1:0"}
    at = Doors(settings)
    client = at.client("line")
    assert client.ask(b"AUTH alice a\n") == b"-ERR this listener asks for no log-in\n"
    assert client.ask(b"TOPIC orders - 2\nhi").startswith(b"+OFFSET 0")
    assert b" 200 OK" in at.client("http").ask(request("alice", "wrong")), "what nobody asked for is not read"


# -- delegation tokens ---------------------------------------------------------------------------------


def test_a_delegation_token_logs_in_until_it_expires() -> None:
    at = Doors(delegation_token_secret_key="secret")
    context = at.node.node.context
    now_ms = at.world.now_ms()
    token = DelegationTokenRecord(
        owner="User:dave",
        requester="User:dave",
        renewers=(),
        issue_timestamp=now_ms,
        max_timestamp=now_ms + 3_600_000,
        expiration_timestamp=now_ms + 10_000,
        token_id="token-1",
    )
    context.image = context.image.replay([token], context.image.offset, context.image.epoch)
    key = b64encode(TokenKeys(b"secret").key("token-1")).decode()
    client, line = at.client("http"), at.client("line")
    assert b" 200 OK" in client.ask(request("token-1", key))
    assert b" 401 " in at.client("http").ask(request("token-1", "wrong"))
    assert line.ask(f"AUTH token-1 {key}\n".encode()) == b"+OK\n"
    at.world.advance(11_000)
    assert line.transport.received.startswith(b"-ERR the session has ended")
    assert b" 401 " in client.ask(request("token-1", key))


# -- whatever clients send -----------------------------------------------------------------------------


class Anything:
    takes_passwords = takes_tokens = True
    check = fingerprint = None


def result_of(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except (HttpError, BadCommand) as error:
        return error


@given(
    st.one_of(
        st.text(max_size=200), st.binary(max_size=100).map(lambda each: f"Basic {b64encode(each).decode()}")
    )
)
def test_every_header_is_credentials_or_401(header: str) -> None:
    logins = HttpLogins(Anything())  # type: ignore[arg-type]
    found = result_of(lambda: logins.credentials({"authorization": header}))
    if isinstance(found, HttpError):
        assert found.status == 401
        assert [name for name, _ in found.headers] == ["WWW-Authenticate", "WWW-Authenticate"]
    else:
        assert isinstance(found, Password | BearerToken)


@given(st.binary(max_size=100))
def test_every_auth_line_is_a_log_in_or_an_error_that_shows_nothing_of_it(rest: bytes) -> None:
    found = result_of(lambda: parse(b"AUTH " + rest.replace(b"\n", b"") + b"planted more"))
    assert isinstance(found, Auth) or "planted" not in str(found)
