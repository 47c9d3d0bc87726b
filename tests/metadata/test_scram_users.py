"""Users that log in with SCRAM: what the controller refuses, and what it writes."""

from base64 import b64decode, b64encode

import pytest
from tests.metadata.world import World

from penstock.base.errors import ErrorCode
from penstock.controlplane.image_wait import image_shows
from penstock.metadata import records as s
from penstock.metadata.controller import requests as r
from penstock.metadata.image import EMPTY, ScramUser
from penstock.metadata.scram import ScramMechanism, digest, hashed, salted_password, server_key, stored_key

SALT = b"a salt of 16 b.."
PLANTED = b"planted-salted-password"


def upsertion(user: str = "alice", mechanism: int = 1, iterations: int = 4096) -> r.ScramUpsertion:
    return r.ScramUpsertion(user, mechanism, iterations, SALT, PLANTED)


def altered(
    world: World, *changes: r.ScramUpsertion | r.ScramDeletion
) -> dict[str, tuple[ErrorCode, str | None]]:
    request = r.AlterScramUsers(
        tuple(each for each in changes if isinstance(each, r.ScramDeletion)),
        tuple(each for each in changes if isinstance(each, r.ScramUpsertion)),
    )
    return {user: tuple(result) for user, result in world.ask(request).items()}


def test_the_keys_prove_the_example_of_rfc_7677() -> None:
    """User "user", password "pencil": the server's signature of the exchange in section 3."""
    mechanism = ScramMechanism.SCRAM_SHA_256
    salted = salted_password(mechanism, "pencil", b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="), 4096)
    exchange = (
        b"n=user,r=rOprNGfwEbeRWgbNEkqO,"
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,"
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    )
    signature = digest(mechanism, server_key(mechanism, salted), exchange)
    assert b64encode(signature) == b"6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    proof = b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    of_client = digest(mechanism, stored_key(mechanism, salted), exchange)
    client_key = bytes(a ^ b for a, b in zip(proof, of_client, strict=True))
    assert hashed(mechanism, client_key) == stored_key(mechanism, salted)


def test_a_user_is_made_changed_and_removed() -> None:
    world = World()
    assert altered(world, upsertion()) == {"alice": (ErrorCode.NONE, None)}
    user = world.controller.image.scram_users[ScramUser(1, "alice")]
    assert (user.salt, user.iterations) == (SALT, 4096)
    assert user.stored_key == stored_key(ScramMechanism.SCRAM_SHA_256, PLANTED)
    assert user.server_key == server_key(ScramMechanism.SCRAM_SHA_256, PLANTED)
    altered(world, upsertion(iterations=8192), upsertion("bob", 2))
    assert world.controller.image.scram_users[ScramUser(1, "alice")].iterations == 8192
    assert len(world.controller.image.scram_users[ScramUser(2, "bob")].stored_key) == 64
    assert altered(world, r.ScramDeletion("alice", 1)) == {"alice": (ErrorCode.NONE, None)}
    assert list(world.controller.image.scram_users) == [(2, "bob")]


REFUSED = {
    "too few iterations": (
        upsertion(iterations=4095),
        ErrorCode.UNACCEPTABLE_CREDENTIAL,
        "Too few iterations",
    ),
    "too many iterations": (
        upsertion(iterations=16385),
        ErrorCode.UNACCEPTABLE_CREDENTIAL,
        "Too many iterations",
    ),
    "empty name": (upsertion(""), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"),
    "mechanism 0": (upsertion(mechanism=0), ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
    "mechanism 3": (upsertion(mechanism=3), ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
    "removal of nobody": (
        r.ScramDeletion("alice", 1),
        ErrorCode.RESOURCE_NOT_FOUND,
        "Attempt to delete a user credential that does not exist",
    ),
    "removal with an unknown mechanism": (
        r.ScramDeletion("alice", 7),
        ErrorCode.UNSUPPORTED_SASL_MECHANISM,
        "Unknown SCRAM mechanism",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_have_kafkas_codes_and_words(case: str) -> None:
    change, code, words = REFUSED[case]
    world = World()
    end = len(world.log)
    assert altered(world, change, upsertion("bob"))[change.user] == (code, words)
    assert len(world.log) == end + 2, "the other user's change was made, and the secret of unknown users"


def test_a_user_named_twice_is_not_changed() -> None:
    world = World()
    twice = (ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request")
    assert altered(world, upsertion(), upsertion(mechanism=2)) == {"alice": twice}
    altered(world, upsertion())
    assert altered(world, r.ScramDeletion("alice", 1), upsertion(mechanism=2)) == {"alice": twice}
    assert list(world.controller.image.scram_users) == [(1, "alice")]


def test_an_old_metadata_version_has_no_scram_users() -> None:
    world = World(features={"metadata.version": 10})
    assert altered(world, upsertion())["alice"][0] is ErrorCode.UNSUPPORTED_VERSION


def test_users_survive_a_snapshot_and_no_repr_shows_a_key() -> None:
    world = World()
    altered(world, upsertion(), upsertion("bob", 2))
    image = world.controller.image
    records = list(image.records())
    again = EMPTY.replay([s.decode(s.encode(each)) for each in records], image.offset, image.epoch)
    assert again.scram_users == image.scram_users
    assert [each.name for each in records if isinstance(each, s.UserScramCredentialRecord)] == [
        "alice",
        "bob",
    ]
    shown = repr(image.scram_users[ScramUser(1, "alice")]) + repr(upsertion()) + repr(image) + repr(records)
    for secret in (PLANTED, SALT, image.scram_users[ScramUser(1, "alice")].stored_key):
        assert repr(secret)[2:-1] not in shown


def test_the_asking_node_waits_until_its_image_shows_the_change() -> None:
    world = World()
    before = world.controller.image
    request = r.AlterScramUsers((), (upsertion(),))
    reply = world.ask(request)
    after = world.controller.image
    assert not image_shows(request, reply, before)
    assert image_shows(request, reply, after)
    removal = r.AlterScramUsers((r.ScramDeletion("alice", 1),))
    gone = world.ask(removal)
    assert not image_shows(removal, gone, after)
    assert image_shows(removal, gone, world.controller.image)
