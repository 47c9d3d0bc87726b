"""SCRAM as a server: who is accepted, who is refused, and that unknown users are not told apart."""

from base64 import b64encode

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.security.sasl.clients import EXPIRES_MS, ScramClient, Users, credential

from penstock.metadata.scram import ScramMechanism
from penstock.security.sasl.exchange import Accepted, Challenge, Refused, Undecided
from penstock.security.sasl.scram import TOKEN_BYTES_MAX, ScramExchange

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
KNOWN = {mechanism: credential("s3cret", mechanism) for mechanism in ScramMechanism}


def exchange(mechanism: ScramMechanism = SHA_256, users: Users | None = None) -> ScramExchange:
    return ScramExchange(mechanism, users or Users(*KNOWN.values()), "server-nonce")


def challenged(server: ScramExchange, client: ScramClient, *, is_latest: bool = True) -> bytes:
    challenge = server.evaluate(client.first, is_latest=is_latest)
    assert isinstance(challenge, Challenge)
    return challenge.token


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_a_user_with_the_password_is_accepted_and_can_believe_the_server(mechanism: ScramMechanism) -> None:
    server, client = exchange(mechanism), ScramClient(mechanism, "alice", "s3cret")
    assert server.needs_latest
    final = client.final(challenged(server, client))
    assert not server.needs_latest
    accepted = server.evaluate(final, is_latest=True)
    assert isinstance(accepted, Accepted)
    assert accepted.user == "alice"
    assert client.believes(accepted.token)


def test_names_with_commas_and_equal_signs_are_read_back() -> None:
    users = Users(credential("s3cret", user="a,b=c"))
    server, client = exchange(users=users), ScramClient(SHA_256, "a,b=c", "s3cret")
    accepted = server.evaluate(client.final(challenged(server, client)), is_latest=True)
    assert isinstance(accepted, Accepted)
    assert accepted.user == "a,b=c"


@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("nobody", "s3cret")])
def test_a_wrong_password_and_an_unknown_user_are_refused_alike(user: str, password: str) -> None:
    server, client = exchange(), ScramClient(SHA_256, user, password)
    final = client.final(challenged(server, client))
    assert server.evaluate(final, is_latest=True) == Refused("unknown user or wrong password", user=user)


def test_an_unknown_user_has_the_same_salt_each_time_and_another_than_others() -> None:
    def salt(user: str) -> bytes:
        return challenged(exchange(), ScramClient(SHA_256, user, "x")).split(b",")[1]

    assert salt("nobody") == salt("nobody")
    assert salt("nobody") != salt("somebody")


def test_a_proof_for_the_stand_in_of_an_unknown_user_is_not_accepted() -> None:
    """Its keys are known to all who know the cluster's id, but no proof makes the user known."""
    server, client = (
        exchange(users=Users(credential("x", user="other"))),
        ScramClient(SHA_256, "alice", "s3cret"),
    )
    assert isinstance(server.evaluate(client.final(challenged(server, client)), is_latest=True), Refused)


def test_a_mismatch_proves_nothing_if_the_metadata_may_be_old() -> None:
    server, client = exchange(), ScramClient(SHA_256, "nobody", "s3cret")
    final = client.final(challenged(server, client, is_latest=False))
    assert isinstance(server.evaluate(final, is_latest=True), Undecided)


def test_a_known_user_logs_in_although_the_metadata_may_be_old() -> None:
    server, client = exchange(), ScramClient(SHA_256, "alice", "s3cret")
    final = client.final(challenged(server, client, is_latest=False))
    assert isinstance(server.evaluate(final, is_latest=False), Accepted)


def test_a_user_that_changes_during_the_log_in_must_begin_again() -> None:
    users = Users()
    server, client = exchange(users=users), ScramClient(SHA_256, "alice", "new")
    challenge = challenged(server, client)
    users.by_key[SHA_256, "alice"] = credential("new", salt=b"another salt....")
    assert isinstance(server.evaluate(client.final(challenge), is_latest=True), Undecided)


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_a_delegation_token_logs_in_as_its_owner_until_it_expires(mechanism: ScramMechanism) -> None:
    server, client = (
        exchange(mechanism),
        ScramClient(mechanism, "token-1", "key-1", extensions="tokenauth=true"),
    )
    accepted = server.evaluate(client.final(challenged(server, client)), is_latest=True)
    assert isinstance(accepted, Accepted)
    assert (accepted.user, accepted.expires_ms, accepted.is_by_token) == ("carol", EXPIRES_MS, True)
    assert client.believes(accepted.token)


@pytest.mark.parametrize(
    ("name", "password", "extensions"),
    [
        ("token-1", "wrong", "tokenauth=true"),
        ("token-2", "key-1", "tokenauth=true"),
        ("token-1", "key-1", ""),
        ("alice", "s3cret", "tokenauth=true"),
    ],
)
def test_a_token_is_no_user_and_a_user_no_token(name: str, password: str, extensions: str) -> None:
    server, client = exchange(), ScramClient(SHA_256, name, password, extensions=extensions)
    refused = server.evaluate(client.final(challenged(server, client)), is_latest=True)
    assert isinstance(refused, Refused)


def test_a_client_cannot_act_for_another() -> None:
    refused = exchange().evaluate(b"n,a=bob,n=alice,r=x", is_latest=True)
    assert isinstance(refused, Refused)
    assert refused.message is not None
    assert "authorization id that is different" in refused.message
    assert isinstance(exchange().evaluate(b"n,a=alice,n=alice,r=x", is_latest=True), Challenge)


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"n,,",
        b"y,,n=alice,r=x",
        b"p=tls-unique,,n=alice,r=x",
        b"n,,n=,r=x",
        b"n,,n=a=b,r=x",
        b"n,,n=alice,r=",
        b"n,,n=alice,r=" + b"x" * TOKEN_BYTES_MAX,
        b"\xff\xfe",
    ],
)
def test_a_first_message_that_is_none_is_refused(token: bytes) -> None:
    assert isinstance(exchange().evaluate(token, is_latest=True), Refused)


def test_a_final_message_with_another_nonce_or_half_a_proof_is_refused() -> None:
    client = ScramClient(SHA_256, "alice", "s3cret")
    for change in (
        lambda final: final.replace(b"server-nonce", b"server-other"),
        lambda final: final.partition(b",p=")[0] + b",p=" + b64encode(b"short"),
        lambda final: final.partition(b",p=")[0],
        lambda final: final + b",x=y",
    ):
        server = exchange()
        final = client.final(challenged(server, client))
        assert isinstance(server.evaluate(change(final), is_latest=True), Refused)


@given(st.lists(st.binary(max_size=200), min_size=1, max_size=3), st.booleans())
@example([b"n,,n=alice,r=x", b"c=biws,r=xserver-nonce,p="], True)
def test_no_bytes_are_accepted_that_prove_nothing(tokens: list[bytes], is_latest: bool) -> None:
    server = exchange()
    for token in tokens:
        verdict = server.evaluate(token, is_latest=is_latest)
        assert not isinstance(verdict, Accepted)


@given(st.data())
def test_a_proof_with_a_changed_byte_is_not_accepted(data: st.DataObject) -> None:
    server, client = exchange(), ScramClient(SHA_256, "alice", "s3cret")
    final = bytearray(client.final(challenged(server, client)))
    at = data.draw(st.integers(0, len(final) - 1))
    final[at] ^= data.draw(st.integers(1, 255))
    assert not isinstance(server.evaluate(bytes(final), is_latest=True), Accepted)


def test_no_repr_shows_a_secret() -> None:
    assert "planted" not in repr(exchange()) + repr(credential("planted"))
