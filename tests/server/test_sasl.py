"""A node with a SASL listener: who gets in, what those outside can do, and what they cost."""

import logging
import struct
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from tests.nodes import StillClient, StillNode
from tests.security.sasl.clients import ScramClient

from penstock.base.settings import BadSetting
from penstock.handlers.sasl import LOGIN_MS_MAX
from penstock.metadata.scram import ScramMechanism, salted_password
from penstock.server.config import NodeConfig, config_from
from penstock.server.connections import LOGIN_BYTES_MAX
from penstock.wire import KAFKA_RANGES, Api, request_module, write_request
from penstock.wire.primitives import uvarint

PASSWORD = "planted-s3cret"
JAAS = "listener.name.outside.plain.sasl.jaas.config"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SECURED = {
    "listeners": "PLAINTEXT://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUTSIDE:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    JAAS: f'{MODULE} user_alice="{PASSWORD}" user_bob="{PASSWORD}";',
}
GOOD = f"\0alice\0{PASSWORD}".encode()
MECHANISM = ScramMechanism.SCRAM_SHA_256


def node(**more: str) -> StillNode:
    return StillNode(settings={**SECURED, **{name.replace("_", "."): value for name, value in more.items()}})


def handshake(client: StillClient, mechanism: str = "PLAIN", version: int = 1) -> Any:
    return client.call(Api.SASL_HANDSHAKE, version, mechanism=mechanism)


def authenticate(client: StillClient, token: bytes, version: int = 2) -> Any:
    return client.call(Api.SASL_AUTHENTICATE, version, auth_bytes=token)


def logged_in(made: StillNode, token: bytes = GOOD) -> StillClient:
    client = made.client("OUTSIDE")
    handshake(client)
    assert authenticate(client, token).error_code is ErrorCode.none
    return client


def is_served(client: StillClient) -> bool:
    client.ask(Api.METADATA, 1, topics=None)
    client.node.world.advance(100)
    return client.reply() is not None


def is_closed(client: StillClient) -> bool:
    return client.transport.is_closed


def set_password(made: StillNode, user: str, password: str) -> None:
    module = request_module(Api.ALTER_USER_SCRAM_CREDENTIALS, 0)
    salt = f"salt of {user} and {password}".encode()
    upsertion = module.ScramCredentialUpsertion(
        name=user,
        mechanism=MECHANISM,
        iterations=4096,
        salt=salt,
        salted_password=salted_password(MECHANISM, password, salt, 4096),
    )
    reply = made.client().call(Api.ALTER_USER_SCRAM_CREDENTIALS, 0, deletions=(), upsertions=(upsertion,))
    assert reply.results[0].error_code is ErrorCode.none


# -- log-ins -------------------------------------------------------------------------------------------


def test_a_client_that_logs_in_is_served_as_its_principal() -> None:
    made = node()
    client = made.client("OUTSIDE")
    assert client.call(Api.API_VERSIONS, 0).error_code is ErrorCode.none
    shaken = handshake(client)
    assert (shaken.error_code, shaken.mechanisms) == (ErrorCode.none, ("PLAIN", "SCRAM-SHA-256"))
    done = authenticate(client, GOOD)
    assert (done.error_code, done.error_message, done.auth_bytes) == (ErrorCode.none, None, b"")
    assert done.session_lifetime.total_seconds() == 0
    assert client.connection.session.principal == "User:alice"
    assert is_served(client)


def test_scram_users_of_the_metadata_log_in() -> None:
    made = node()
    set_password(made, "carol", "first")
    client, scram = made.client("OUTSIDE"), ScramClient(MECHANISM, "carol", "first")
    handshake(client, "SCRAM-SHA-256")
    challenge = authenticate(client, scram.first)
    done = authenticate(client, scram.final(challenge.auth_bytes))
    assert done.error_code is ErrorCode.none
    assert scram.believes(done.auth_bytes)
    assert client.connection.session.principal == "User:carol"
    assert is_served(client)


def test_after_handshake_0_tokens_have_no_headers() -> None:
    made = node()
    client = made.client("OUTSIDE")
    handshake(client, version=0)
    client.feed(len(GOOD).to_bytes(4, "big") + GOOD)
    made.world.advance(10)
    assert bytes(client.transport.received) == bytes(4), "an empty token"
    client.transport.received.clear()
    assert is_served(client)
    wrong = made.client("OUTSIDE")
    handshake(wrong, version=0)
    wrong.feed((8).to_bytes(4, "big") + b"\0alice\0x")
    made.world.advance(200)
    assert is_closed(wrong)
    assert not wrong.transport.received


def test_a_refusal_comes_after_the_delay_and_ends_the_connection() -> None:
    made = node(connection_failed_authentication_delay_ms="700")
    client = made.client("OUTSIDE")
    handshake(client)
    client.ask(Api.SASL_AUTHENTICATE, 2, auth_bytes=b"\0alice\0planted-wrong")
    made.world.advance(650)
    assert client.reply() is None
    assert not is_closed(client)
    assert is_served(logged_in(made)), "others do not wait"
    made.world.advance(100)
    refused = client.reply()
    assert refused.error_code is ErrorCode.sasl_authentication_failed
    assert refused.error_message == "Authentication failed: Invalid username or password"
    assert is_closed(client)
    assert client.connection.session.principal == "User:ANONYMOUS"


def test_a_mechanism_that_is_off_is_refused_and_the_connection_is_closed() -> None:
    made = node(sasl_enabled_mechanisms="SCRAM-SHA-256")
    client = made.client("OUTSIDE")
    refused = handshake(client, "PLAIN")
    assert (refused.error_code, refused.mechanisms) == (
        ErrorCode.unsupported_sasl_mechanism,
        ("SCRAM-SHA-256",),
    )
    made.world.advance(200)
    assert is_closed(client)


def test_a_listener_may_have_its_own_mechanisms() -> None:
    settings = {**SECURED, "listener.name.outside.sasl.enabled.mechanisms": "SCRAM-SHA-512"}
    client = StillNode(settings=settings).client("OUTSIDE")
    assert handshake(client, "SCRAM-SHA-512").mechanisms == ("SCRAM-SHA-512",)


def test_on_a_listener_without_sasl_both_requests_are_in_an_illegal_state() -> None:
    client = node().client()
    assert handshake(client).error_code is ErrorCode.illegal_sasl_state
    refused = authenticate(client, GOOD)
    assert refused.error_code is ErrorCode.illegal_sasl_state
    assert refused.error_message == "SaslAuthenticate request received after successful authentication"
    assert is_served(client)


# -- before the log-in ---------------------------------------------------------------------------------


def test_no_other_request_is_served_before_the_log_in(caplog: pytest.LogCaptureFixture) -> None:
    made = node()
    for api, version, fields in (
        (Api.METADATA, 1, {"topics": None}),
        (Api.DESCRIBE_CLUSTER, 0, {"include_cluster_authorized_operations": False}),
        (Api.LIST_GROUPS, 0, {}),
    ):
        for before in ("nothing", "handshake"):
            client = made.client("OUTSIDE")
            if before == "handshake":
                handshake(client)
            client.ask(api, version, **fields)
            made.world.advance(1000)
            assert client.reply() is None
            assert is_closed(client)
    assert "Unexpected Kafka request of type Metadata during SASL handshake." in caplog.text
    assert "Unexpected Kafka request of type Metadata during SASL authentication." in caplog.text


def test_a_token_before_the_handshake_and_a_second_api_versions_end_the_connection() -> None:
    made = node()
    client = made.client("OUTSIDE")
    client.ask(Api.SASL_AUTHENTICATE, 2, auth_bytes=GOOD)
    made.world.advance(1000)
    assert client.reply() is None
    assert is_closed(client)
    client = made.client("OUTSIDE")
    client.call(Api.API_VERSIONS, 0)
    client.ask(Api.API_VERSIONS, 0)
    made.world.advance(1000)
    assert is_closed(client)


def test_a_frame_before_the_log_in_is_small() -> None:
    made = node(sasl_server_max_receive_size="1000")
    client = made.client("OUTSIDE")
    client.feed((1001).to_bytes(4, "big"))
    made.world.advance(10)
    assert is_closed(client)
    client = logged_in(made)
    client.feed((100_000).to_bytes(4, "big"))
    made.world.advance(10)
    assert not is_closed(client), "after it, requests are as large as anywhere"


@pytest.mark.parametrize("api", [Api.API_VERSIONS, Api.SASL_AUTHENTICATE])
@pytest.mark.parametrize("of_header", [True, False])
def test_a_frame_full_of_tagged_fields_is_refused_unread(api: Api, of_header: bool) -> None:
    """Half a megabyte of them held up the broker for a second."""
    made = node()
    client = made.client("OUTSIDE")
    if api is Api.SASL_AUTHENTICATE:
        handshake(client)
    many = uvarint(100_000) + b"".join(uvarint(tag) + b"\0" for tag in range(100_000))
    header, body = (many, b"") if of_header else (b"\0", b"\2a\2b" if api is Api.API_VERSIONS else b"\2a")
    version = KAFKA_RANGES[api].max
    frame = struct.pack(">hhih", api, version, 1, -1) + header + body + many
    client.feed(len(frame).to_bytes(4, "big") + frame)
    made.world.advance(1000)
    assert client.reply() is None
    assert is_closed(client)


def test_a_client_that_does_not_log_in_is_closed_in_time() -> None:
    made = node()
    silent, half, done = made.client("OUTSIDE"), made.client("OUTSIDE"), logged_in(made)
    handshake(half)
    made.world.advance(LOGIN_MS_MAX + 100)
    assert is_closed(silent)
    assert is_closed(half)
    assert is_served(done)


def test_partial_frames_of_clients_that_have_not_logged_in_are_bounded_together() -> None:
    made = node()
    memory = made.node._connections.login_memory
    crowd = [made.client("OUTSIDE") for _ in range(200)]
    for client in crowd:
        client.feed((500_000).to_bytes(4, "big") + b"x")
    assert memory.total <= 512 * len(crowd), "a length alone reserves next to nothing"
    for client in crowd:
        for _ in range(300):
            room = 0 if is_closed(client) else len(client.connection.get_buffer(-1))
            client.feed(bytes(min(room, 1000)))
        assert memory.total <= LOGIN_BYTES_MAX
    assert any(is_closed(client) for client in crowd)
    assert is_served(logged_in(made)), "a log-in in one piece needs no memory"
    for client in crowd:
        client.connection.connection_lost(None)
    assert memory.total == 0


def test_what_follows_a_failed_log_in_is_bounded_with_the_partial_frames() -> None:
    """It is held until the refusal is sent, and does not count as memory of those who have logged in."""
    made = node()
    memory = made.node._connections.login_memory
    users_memory = made.node._tick.memory
    crowd = [made.client("OUTSIDE") for _ in range(100)]
    more = ((400_000).to_bytes(4, "big") + bytes(400_000))[:60_000]
    for client in crowd:
        handshake(client)
    for client in crowd:
        client.ask(Api.SASL_AUTHENTICATE, 2, auth_bytes=b"\0alice\0wrong")
        for _ in range(0 if is_closed(client) else 6):
            client.feed(more)
        assert memory.total <= LOGIN_BYTES_MAX
    assert any(is_closed(client) for client in crowd)
    assert not users_memory.total
    made.world.advance(1000)
    for client in crowd:
        client.connection.connection_lost(None)
    assert memory.total == 0


def test_failed_log_ins_are_logged_in_few_lines_and_without_secrets(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    made = node()
    for _ in range(50):
        client = made.client("OUTSIDE")
        handshake(client)
        authenticate(client, b"\0alice\0planted-wrong")
    logged_in(made)
    lines = [each.getMessage() for each in caplog.records if "log-in" in each.getMessage()]
    assert 0 < len(lines) <= 10
    assert "planted" not in caplog.text


# -- logging in again ----------------------------------------------------------------------------------


def test_a_session_ends_and_a_client_that_logs_in_again_stays() -> None:
    made = node(connections_max_reauth_ms="60000")
    faithful, idle = made.client("OUTSIDE"), logged_in(made)
    handshake(faithful)
    assert authenticate(faithful, GOOD).session_lifetime.total_seconds() == 60
    made.world.advance(50_000)
    assert handshake(faithful).error_code is ErrorCode.none
    assert authenticate(faithful, GOOD).session_lifetime.total_seconds() == 60
    made.world.advance(20_000)
    assert is_served(faithful)
    assert not is_closed(idle), "it is closed at its next request"
    assert not is_served(idle)
    assert is_closed(idle)


def test_after_its_session_a_client_may_still_log_in_again() -> None:
    made = node(connections_max_reauth_ms="1000")
    client = logged_in(made)
    made.world.advance(5000)
    assert handshake(client).error_code is ErrorCode.none
    assert authenticate(client, GOOD).error_code is ErrorCode.none
    assert is_served(client)


def test_a_mechanism_may_have_its_own_lifetime_of_sessions() -> None:
    settings = {**SECURED, "listener.name.outside.plain.connections.max.reauth.ms": "7000"}
    client = StillNode(settings=settings).client("OUTSIDE")
    handshake(client)
    assert authenticate(client, GOOD).session_lifetime.total_seconds() == 7


def test_a_client_that_logs_in_again_cannot_change_its_user_or_send_requests_meanwhile() -> None:
    made = node()
    client = logged_in(made)
    handshake(client)
    refused = authenticate(client, f"\0bob\0{PASSWORD}".encode())
    assert refused.error_code is ErrorCode.sasl_authentication_failed
    assert (
        refused.error_message == "Cannot change principals during re-authentication from User.alice: User.bob"
    )
    assert is_closed(client)
    assert client.connection.session.principal == "User:alice"
    client = logged_in(made)
    handshake(client)
    assert not is_served(client)
    assert is_closed(client)


def test_a_client_logs_in_again_once_a_second() -> None:
    made = node()
    client = logged_in(made)
    handshake(client)
    authenticate(client, GOOD)
    assert handshake(client).error_code is ErrorCode.illegal_sasl_state
    assert is_served(client)
    made.world.advance(1000)
    assert handshake(client).error_code is ErrorCode.none


def test_logging_in_again_with_a_mechanism_that_is_off_ends_the_connection() -> None:
    made = node()
    client = logged_in(made)
    assert handshake(client, "GSSAPI").error_code is ErrorCode.unsupported_sasl_mechanism
    made.world.advance(200)
    assert is_closed(client)


def test_a_removed_user_is_not_let_in_again() -> None:
    made = node()
    set_password(made, "carol", "first")
    module = request_module(Api.ALTER_USER_SCRAM_CREDENTIALS, 0)
    deletion = module.ScramCredentialDeletion(name="carol", mechanism=MECHANISM)
    made.client().call(Api.ALTER_USER_SCRAM_CREDENTIALS, 0, deletions=(deletion,), upsertions=())
    client, scram = made.client("OUTSIDE"), ScramClient(MECHANISM, "carol", "first")
    handshake(client, "SCRAM-SHA-256")
    challenge = authenticate(client, scram.first)
    refused = authenticate(client, scram.final(challenge.auth_bytes))
    assert refused.error_code is ErrorCode.sasl_authentication_failed
    assert refused.error_message == (
        "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256"
    )


def test_the_registration_says_which_listener_has_sasl() -> None:
    [broker] = node().node.context.image.brokers.values()
    assert {each.name: each.security_protocol for each in broker.endpoints} == {"PLAINTEXT": 0, "OUTSIDE": 2}


def test_a_request_in_pieces_logs_in_too() -> None:
    made = node()
    client = made.client("OUTSIDE")
    handshake(client)
    request = request_module(Api.SASL_AUTHENTICATE, 2).SaslAuthenticateRequest(auth_bytes=GOOD)
    whole = bytearray()
    client.feed, feed = whole.extend, client.feed  # type: ignore[method-assign]
    client.send(Api.SASL_AUTHENTICATE, 2, write_request(Api.SASL_AUTHENTICATE, 2, request))
    client.feed = feed  # type: ignore[method-assign]
    for byte in whole:
        client.feed(bytes((byte,)))
    assert client.wait().error_code is ErrorCode.none
    assert is_served(client)


# -- settings ------------------------------------------------------------------------------------------


def loaded(**changes: str | None) -> NodeConfig:
    given = {**SECURED, **changes}
    return config_from("/data", {name: value for name, value in given.items() if value is not None})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({JAAS: None}, "listener OUTSIDE has the mechanism PLAIN without users, expected them in " + JAAS),
        ({JAAS: f'{MODULE} user_a="planted"'}, "does not end with a semicolon"),
        (
            {JAAS: 'com.planted.Module required user_a="planted";'},
            "has another login module, expected org.apache",
        ),
        ({JAAS: f'{MODULE} user_a="";'}, "has a user without a name or without a password"),
        (
            {"sasl.enabled.mechanisms": None},
            "sasl.enabled.mechanisms is 'GSSAPI', its default, and listener OUTSIDE has SASL, expected some of PLAIN",
        ),
        (
            {"sasl.enabled.mechanisms": "PLAIN,GSSAPI"},
            "expected some of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER",
        ),
        ({"listener.name.inside.plain.sasl.jaas.config": "planted"}, "is of no listener, expected one of"),
        (
            {"listener.name.plaintext.plain.sasl.jaas.config": "planted"},
            "is of a listener with the protocol PLAINTEXT, expected PLAINTEXT:SASL_PLAINTEXT or SASL_SSL in",
        ),
        (
            {"listener.name.outside.gssapi.sasl.jaas.config": "planted"},
            "Penstock has no such setting of a listener",
        ),
        ({"listener.name.outside.plain.connections.max.reauth.ms": "x"}, "expected a number"),
        (
            {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUTSIDE:SASL_SSL"},
            "the listener OUTSIDE has no certificate, expected ssl.keystore.location",
        ),
        (
            {"http.listener": "0.0.0.0:8080"},
            "http.listener is at 0.0.0.0:8080 and a listener has SASL, expected a",
        ),
        ({"line.listener": ":9090"}, "everyone could use the line door without a log-in"),
    ],
)
def test_what_cannot_be_honoured_is_refused_in_one_sentence(
    changes: dict[str, str | None], words: str
) -> None:
    with pytest.raises(BadSetting) as refused:
        loaded(**changes)
    assert words in str(refused.value)
    assert "planted" not in str(refused.value)


def test_what_can_be_honoured_is_taken() -> None:
    config = loaded(
        **{
            "http.listener": "127.0.0.1:0",
            "listener.name.outside.scram-sha-256.sasl.jaas.config": (
                'org.apache.kafka.common.security.scram.ScramLoginModule required username="x" password="planted";'
            ),
        }
    )
    assert config.sasl["OUTSIDE"].mechanisms == ("PLAIN", "SCRAM-SHA-256")
    assert config.protocols == {"PLAINTEXT": "PLAINTEXT", "OUTSIDE": "SASL_PLAINTEXT"}
    assert "planted" not in repr(config)
    alone = config_from("/data", {**SECURED, "listeners": "OUTSIDE://127.0.0.1:0"})
    assert list(alone.sasl) == ["OUTSIDE"], "a single node needs no listener between brokers"


@pytest.mark.parametrize("cut", range(1, 40, 3))
def test_a_malformed_request_of_a_log_in_shows_no_secret(cut: int, caplog: pytest.LogCaptureFixture) -> None:
    made = node()
    client = made.client("OUTSIDE")
    handshake(client)
    request = request_module(Api.SASL_AUTHENTICATE, 2).SaslAuthenticateRequest(auth_bytes=GOOD)
    body = write_request(Api.SASL_AUTHENTICATE, 2, request)
    client.send(Api.SASL_AUTHENTICATE, 2, body[:-cut] if cut < len(body) else b"\xff" * cut + body)
    made.world.advance(1000)
    assert is_closed(client)
    assert "planted" not in caplog.text


def test_acls_decide_by_who_logged_in() -> None:
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    made = StillNode(settings={**SECURED, "authorizer.class.name": authorizer, "super.users": "User:alice"})
    alice, bob = logged_in(made), logged_in(made, f"\0bob\0{PASSWORD}".encode())
    seen = alice.call(Api.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=None)
    assert seen.error_code is ErrorCode.none
    denied = bob.call(Api.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=None)
    assert denied.error_code is ErrorCode.cluster_authorization_failed
    anonymous = made.client().call(Api.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=None)
    assert anonymous.error_code is ErrorCode.cluster_authorization_failed
