"""Delegation tokens at a node: made, used, renewed, expired; who may do what."""

from base64 import b64encode
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from tests.nodes import StillClient, StillNode
from tests.security.sasl.clients import ScramClient

from penstock.metadata.records import DelegationTokenRecord
from penstock.metadata.scram import ScramMechanism
from penstock.wire import Api, request_module

SECRET = "planted-secret-key"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
USERS = ("admin", "alice", "bob", "carol")
SECURED = {
    "listeners": "PLAINTEXT://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUTSIDE:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "listener.name.outside.plain.sasl.jaas.config": MODULE
    + "".join(f' user_{name}="pw"' for name in USERS)
    + ";",
    "delegation.token.secret.key": SECRET,
}
ACLS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin;User:ANONYMOUS",
}
NONE = ErrorCode.none
MECHANISM = ScramMechanism.SCRAM_SHA_256
DEFAULT = -1


def node(**more: str) -> StillNode:
    return StillNode(settings={**SECURED, **{name.replace("_", "."): value for name, value in more.items()}})


def client_of(made: StillNode, user: str) -> StillClient:
    client = made.client("OUTSIDE")
    client.call(Api.SASL_HANDSHAKE, 1, mechanism="PLAIN")
    reply = client.call(Api.SASL_AUTHENTICATE, 2, auth_bytes=f"\0{user}\0pw".encode())
    assert reply.error_code is NONE
    return client


def ask(client: StillClient, api: Api, version: int, **values: Any) -> Any:
    client.ask(api, version, **values)
    client.node.world.advance(200)
    return client.reply()


def renewing(version: int, *names: str, kind: str = "User") -> Any:
    make = request_module(Api.CREATE_DELEGATION_TOKEN, version).CreatableRenewers
    return tuple(make(principal_type=kind, principal_name=name) for name in names)


def create(client: StillClient, owner: str | None = None, renewers: Any = (), lifetime: Any = DEFAULT) -> Any:
    return ask(
        client,
        Api.CREATE_DELEGATION_TOKEN,
        3,
        owner_principal_type=None if owner is None else "User",
        owner_principal_name=owner,
        renewers=renewing(3, *renewers),
        max_lifetime=lifetime,
    )


def renew(client: StillClient, key: bytes, period: int = DEFAULT) -> Any:
    return ask(client, Api.RENEW_DELEGATION_TOKEN, 2, hmac=key, renew_period=period)


def expire(client: StillClient, key: bytes, period: int = DEFAULT) -> Any:
    return ask(client, Api.EXPIRE_DELEGATION_TOKEN, 2, hmac=key, expiry_time_period=period)


def described(client: StillClient, *owners: str, version: int = 3) -> Any:
    module = request_module(Api.DESCRIBE_DELEGATION_TOKEN, version)
    named = (
        tuple(
            module.DescribeDelegationTokenOwner(principal_type="User", principal_name=name) for name in owners
        )
        or None
    )
    return ask(client, Api.DESCRIBE_DELEGATION_TOKEN, version, owners=named)


def log_in(made: StillNode, made_token: Any) -> tuple[StillClient, Any]:
    client = made.client("OUTSIDE")
    scram = ScramClient(
        MECHANISM, made_token.token_id, b64encode(made_token.hmac).decode(), extensions="tokenauth=true"
    )
    client.call(Api.SASL_HANDSHAKE, 1, mechanism="SCRAM-SHA-256")
    challenge = ask(client, Api.SASL_AUTHENTICATE, 2, auth_bytes=scram.first)
    return client, ask(client, Api.SASL_AUTHENTICATE, 2, auth_bytes=scram.final(challenge.auth_bytes))


def test_a_token_stands_for_its_owner_until_it_expires() -> None:
    made = node(delegation_token_expiry_time_ms="500000")
    token = create(client_of(made, "alice"), renewers=["bob"])
    assert token.error_code is NONE
    assert (token.principal_type, token.principal_name) == ("User", "alice")
    assert (token.token_requester_principal_type, token.token_requester_principal_name) == ("User", "alice")
    assert token.expiry_timestamp - token.issue_timestamp == 500_000
    assert token.max_timestamp - token.issue_timestamp == 7 * 86_400_000
    client, done = log_in(made, token)
    assert done.error_code is NONE
    assert client.connection.session.principal == "User:alice"
    assert 400 < done.session_lifetime.total_seconds() <= 500
    made.world.advance(500_000)
    assert log_in(made, token)[1].error_code is ErrorCode.sasl_authentication_failed


def test_the_key_is_the_one_that_kafka_computes() -> None:
    """HMAC-SHA-512 of the token's id, with delegation.token.secret.key."""
    import hmac  # noqa: PLC0415

    token = create(client_of(node(), "alice"))
    assert token.hmac == hmac.digest(SECRET.encode(), token.token_id.encode(), "sha512")
    assert len(token.token_id) == 22


def test_the_older_name_of_the_secret_key() -> None:
    settings = {name: value for name, value in SECURED.items() if name != "delegation.token.secret.key"}
    made = StillNode(settings={**settings, "delegation.token.master.key": SECRET})
    assert create(client_of(made, "alice")).error_code is NONE


def test_a_session_with_a_token_may_not_ask_for_tokens() -> None:
    made = node()
    token = create(client_of(made, "alice"))
    client, _ = log_in(made, token)
    refused = ErrorCode.delegation_token_request_not_allowed
    assert create(client).error_code is refused
    assert create(client).issue_timestamp == -1
    assert renew(client, token.hmac).error_code is refused
    assert expire(client, token.hmac).error_code is refused
    assert described(client).error_code is refused


def test_a_client_that_has_not_logged_in_may_not_ask_for_tokens() -> None:
    client = node().client()
    refused = ErrorCode.delegation_token_request_not_allowed
    assert create(client).error_code is refused
    assert described(client).error_code is refused


def test_without_a_secret_key_tokens_are_off(caplog: pytest.LogCaptureFixture) -> None:
    settings = {name: value for name, value in SECURED.items() if name != "delegation.token.secret.key"}
    made = StillNode(settings=settings)
    client, off = client_of(made, "alice"), ErrorCode.delegation_token_auth_disabled
    made.node._control_plane.active.write([DelegationTokenRecord(owner="User:alice", token_id="t")])
    assert create(client).error_code is off
    assert renew(client, b"x").error_code is off
    assert expire(client, b"x").error_code is off
    assert described(client).error_code is off
    made.stop()
    made.restart()
    assert "1 delegation tokens, and delegation.token.secret.key is not set" in caplog.text


def test_only_owner_and_renewers_renew() -> None:
    made = node(delegation_token_expiry_time_ms="500000", delegation_token_max_lifetime_ms="5000000")
    alice, bob, carol = (client_of(made, name) for name in ("alice", "bob", "carol"))
    token = create(alice, renewers=["bob"])
    assert token.max_timestamp - token.issue_timestamp == 5_000_000
    made.world.advance(400_000)
    renewed = renew(bob, token.hmac)
    assert renewed.error_code is NONE
    assert abs(renewed.expiry_timestamp - made.world.now_ms() - 500_000) < 1000
    shorter = renew(alice, token.hmac, 5000)
    assert abs(shorter.expiry_timestamp - made.world.now_ms() - 5000) < 1000
    refused = renew(carol, token.hmac)
    assert refused.error_code is ErrorCode.delegation_token_owner_mismatch
    assert refused.expiry_timestamp == 0
    assert renew(alice, b"unknown").error_code is ErrorCode.delegation_token_not_found
    made.world.advance(10_000)
    assert renew(alice, token.hmac).error_code is ErrorCode.delegation_token_expired
    assert expire(alice, token.hmac, 5).error_code is ErrorCode.delegation_token_expired
    assert expire(carol, token.hmac).error_code is ErrorCode.delegation_token_owner_mismatch
    assert expire(alice, token.hmac).error_code is NONE, "removed at once"


def test_no_renewal_is_longer_than_the_longest_lifetime() -> None:
    made = node()
    alice = client_of(made, "alice")
    token = create(alice, lifetime=100_000)
    assert token.expiry_timestamp == token.max_timestamp
    assert renew(alice, token.hmac).expiry_timestamp == token.max_timestamp


def test_a_token_is_expired_at_once_or_later() -> None:
    made = node()
    alice = client_of(made, "alice")
    later, now = create(alice), create(alice)
    assert expire(alice, later.hmac, 50_000).error_code is NONE
    assert log_in(made, later)[1].error_code is NONE
    gone = expire(alice, now.hmac)
    assert gone.error_code is NONE
    assert abs(gone.expiry_timestamp - made.world.now_ms()) < 1000
    assert log_in(made, now)[1].error_code is ErrorCode.sasl_authentication_failed
    assert [each.token_id for each in described(alice).tokens] == [later.token_id]


def test_expired_tokens_are_removed_from_the_metadata() -> None:
    made = node(delegation_token_expiry_check_interval_ms="60000", delegation_token_expiry_time_ms="100000")
    alice = client_of(made, "alice")
    token = create(alice)
    made.world.advance(99_000)
    assert token.token_id in made.node.context.image.tokens
    made.world.advance(65_000)
    assert token.token_id not in made.node.context.image.tokens


def test_tokens_survive_a_restart() -> None:
    made = node()
    token = create(client_of(made, "alice"))
    made.stop()
    made.restart()
    assert log_in(made, token)[1].error_code is NONE


def test_who_sees_which_tokens() -> None:
    made = StillNode(settings={**SECURED, **ACLS})
    alice, bob, carol, admin = (client_of(made, name) for name in ("alice", "bob", "carol", "admin"))
    own = create(alice, renewers=["bob"])
    other = create(admin, owner="carol")

    def seen(client: StillClient, *owners: str) -> set[str]:
        reply = described(client, *owners)
        assert reply.error_code is NONE
        return {each.token_id for each in reply.tokens}

    assert seen(alice) == {own.token_id}
    assert seen(bob) == {own.token_id}, "a renewer"
    assert seen(carol) == {other.token_id}
    assert seen(admin) == {own.token_id, other.token_id}
    assert seen(admin, "bob") == {own.token_id}
    assert seen(bob, "carol") == set()
    [shown] = described(carol).tokens
    assert (shown.hmac, shown.token_requester_principal_name) == (other.hmac, "admin")
    reply = ask(carol, Api.DESCRIBE_DELEGATION_TOKEN, 3, owners=())
    assert reply.tokens == ()
    allow(made, bob, 14, 7, "User:carol")
    assert seen(bob) == {own.token_id, other.token_id}
    allow(made, alice, 8, 6, other.token_id)
    assert seen(alice) == {own.token_id, other.token_id}


def allow(made: StillNode, client: StillClient, operation: int, resource_type: int, name: str) -> None:
    creation = request_module(Api.CREATE_ACLS, 3).AclCreation(
        resource_type=resource_type,
        resource_name=name,
        resource_pattern_type=3,
        principal=client.connection.session.principal,
        host="*",
        operation=operation,
        permission_type=3,
    )
    reply = ask(made.client(), Api.CREATE_ACLS, 3, creations=(creation,))
    assert reply.results[0].error_code is NONE


def test_a_token_for_another_owner_needs_create_tokens_on_that_user() -> None:
    made = StillNode(settings={**SECURED, **ACLS})
    bob = client_of(made, "bob")
    refused = create(bob, owner="alice")
    assert refused.error_code is ErrorCode.delegation_token_authorization_failed
    assert (refused.principal_name, refused.token_requester_principal_name) == ("alice", "bob")
    allow(made, bob, 13, 7, "User:alice")
    token = create(bob, owner="alice")
    assert token.error_code is NONE
    assert log_in(made, token)[0].connection.session.principal == "User:alice"
    assert renew(bob, token.hmac).error_code is ErrorCode.delegation_token_owner_mismatch


def test_odd_renewers_are_refused() -> None:
    alice = client_of(node(), "alice")
    reply = ask(
        alice,
        Api.CREATE_DELEGATION_TOKEN,
        2,
        renewers=renewing(2, "g", kind="Group"),
        max_lifetime=DEFAULT,
    )
    assert reply.error_code is ErrorCode.invalid_principal_type
    assert create(alice, renewers=["x"] * 1001).error_code is ErrorCode.invalid_request


@pytest.mark.parametrize("version", [1, 2])
def test_older_versions(version: int) -> None:
    made = node()
    alice = client_of(made, "alice")
    token = ask(alice, Api.CREATE_DELEGATION_TOKEN, version, renewers=(), max_lifetime=DEFAULT)
    assert token.error_code is NONE
    assert ask(alice, Api.RENEW_DELEGATION_TOKEN, 1, hmac=token.hmac, renew_period=DEFAULT).error_code is NONE
    assert [each.token_id for each in described(alice, version=version).tokens] == [token.token_id]
    gone = ask(alice, Api.EXPIRE_DELEGATION_TOKEN, 1, hmac=token.hmac, expiry_time_period=DEFAULT)
    assert gone.error_code is NONE
