"""The client's side of SASL, against the server's side of it."""

from base64 import b64encode

import pytest
from tests.security.sasl.clients import Users, credential

from penstock.metadata.scram import ScramMechanism
from penstock.security.sasl.client import (
    BearerLogin,
    ClientExchange,
    PlainLogin,
    ScramLogin,
    ServerNotBelieved,
)
from penstock.security.sasl.exchange import Accepted, Challenge, Refused
from penstock.security.sasl.plain import PlainExchange, PlainUsers
from penstock.security.sasl.scram import ScramExchange

PASSWORD = "planted, s3cret="
SHA_256 = "SCRAM-SHA-256"


def scram(
    user: str = "alice", password: str = PASSWORD, mechanism: str = SHA_256, **more: bool
) -> ScramLogin:
    return ScramLogin(mechanism, user, password, lambda: "client-nonce", **more)


def server(user: str = "alice", mechanism: ScramMechanism = ScramMechanism.SCRAM_SHA_256) -> ScramExchange:
    known = credential(PASSWORD, mechanism, user)
    return ScramExchange(mechanism, Users(known), "server-nonce")


@pytest.mark.parametrize("mechanism", ScramMechanism)
@pytest.mark.parametrize("user", ["alice", "a,b=c"])
def test_scram_proves_both_sides(user: str, mechanism: ScramMechanism) -> None:
    theirs, ours = server(user, mechanism), scram(user, mechanism=mechanism.label).begin()
    challenge = theirs.evaluate(ours.first(), is_latest=True)
    assert isinstance(challenge, Challenge)
    proof = ours.respond(challenge.token)
    assert proof is not None
    accepted = theirs.evaluate(proof, is_latest=True)
    assert isinstance(accepted, Accepted)
    assert accepted.user == user
    assert ours.respond(accepted.token) is None


def test_a_wrong_password_is_refused() -> None:
    theirs, ours = server(), scram(password="planted-wrong").begin()
    challenge = theirs.evaluate(ours.first(), is_latest=True)
    proof = ours.respond(challenge.token)  # type: ignore[union-attr]
    assert proof is not None
    assert isinstance(theirs.evaluate(proof, is_latest=True), Refused)


def test_a_delegation_token_says_that_it_is_one() -> None:
    """KIP-48: the extension `tokenauth=true` of the first message."""
    assert scram(is_delegation_token=True).begin().first() == b"n,,n=alice,r=client-nonce,tokenauth=true"


def proved() -> ClientExchange:
    theirs, ours = server(), scram().begin()
    challenge = theirs.evaluate(ours.first(), is_latest=True)
    ours.respond(challenge.token)  # type: ignore[union-attr]
    return ours


@pytest.mark.parametrize(
    ("final", "why"),
    [
        (b"v=" + b64encode(bytes(32)), "may be an impostor"),
        (b"v=" + b64encode(bytes(3)), "may be an impostor"),
        (b"v=A", "not base64"),
        (b"e=unknown-user", "reports 'unknown-user'"),
        (b"", "final message is not one of SCRAM"),
        (b"\xff\xfe", "final message is not one of SCRAM"),
    ],
)
def test_a_server_that_does_not_know_the_user_is_rejected(final: bytes, why: str) -> None:
    with pytest.raises(ServerNotBelieved, match=why):
        proved().respond(final)


@pytest.mark.parametrize(
    ("first", "why"),
    [
        (b"r=client-nonce,s=AAAA,i=4096", "nonce does not continue"),
        (b"r=other-nonce-x,s=AAAA,i=4096", "nonce does not continue"),
        (b"r=client-nonce-x,s=AAAA,i=4095", "asks for 4095 iterations, expected 4096 to 100000"),
        (b"r=client-nonce-x,s=AAAA,i=999999999", "asks for 999999999 iterations"),
        (b"r=client-nonce-x,s=A,i=4096", "not base64"),
        (b"m=must,r=client-nonce-x,s=AAAA,i=4096", "first message is not one of SCRAM"),
        (b"e=other-error", "first message is not one of SCRAM"),
        (b"\xff", "first message is not one of SCRAM"),
    ],
)
def test_a_challenge_that_is_none_is_refused(first: bytes, why: str) -> None:
    exchange = scram().begin()
    with pytest.raises(ServerNotBelieved, match=why):
        exchange.respond(first)


def test_the_hashes_of_a_password_are_computed_once_for_each_salt(monkeypatch: pytest.MonkeyPatch) -> None:
    import penstock.security.sasl.client as module  # noqa: PLC0415

    salts: list[bytes] = []

    def counted(_: object, __: str, salt: bytes, ___: int) -> bytes:
        salts.append(salt)
        return bytes(32)

    monkeypatch.setattr(module, "salted_password", counted)
    login = scram()
    for salt in (b"one", b"one", b"two"):
        challenge = b"r=client-nonce-x,i=4096".replace(b",", b",s=" + b64encode(salt) + b",")
        login.begin().respond(challenge)
    assert salts == [b"one", b"two"]


def test_plain_sends_the_user_and_the_password() -> None:
    exchange = PlainLogin("alice", PASSWORD).begin()
    users = PlainUsers({"alice": PASSWORD}, b"key" * 20)
    assert PlainExchange(users).evaluate(exchange.first(), is_latest=True) == Accepted("alice")
    assert exchange.respond(b"") is None


def test_a_bearer_token_is_taken_anew_for_each_log_in_and_an_error_is_acknowledged() -> None:
    """RFC 7628, 3.1 and 3.2.3; KIP-342 has the extensions."""
    tokens = iter(["one", "two"])
    login = BearerLogin(lambda: next(tokens), {"logicalCluster": "lkc-1"})
    first, second = login.begin(), login.begin()
    assert first.first() == b"n,,\x01auth=Bearer one\x01logicalCluster=lkc-1\x01\x01"
    assert second.first() == b"n,,\x01auth=Bearer two\x01logicalCluster=lkc-1\x01\x01"
    assert first.respond(b"") is None
    assert second.respond(b'{"status":"invalid_token"}') == b"\x01"


def test_no_repr_shows_a_secret() -> None:
    for login in (PlainLogin("alice", PASSWORD), scram(), BearerLogin(lambda: PASSWORD)):
        assert "planted" not in repr(login)
        assert "planted" not in repr(login.begin())
