"""Unknown SCRAM users look like known ones."""

from penstock.metadata.image import ALL_BROKERS, EMPTY, ClusterImage
from penstock.metadata.records import AnyRecord, ConfigRecord, UserScramCredentialRecord
from penstock.metadata.scram import UNKNOWN_USERS_SECRET, ScramMechanism
from penstock.security.sasl.unknown_users import UnknownUsers

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512


def user(name: str, salt: bytes, iterations: int, mechanism: ScramMechanism = SHA_256) -> AnyRecord:
    return UserScramCredentialRecord(name=name, mechanism=mechanism, salt=salt, iterations=iterations)


def secret(value: str) -> ConfigRecord:
    return ConfigRecord(
        resource_type=ALL_BROKERS.type, resource_name=ALL_BROKERS.name, name=UNKNOWN_USERS_SECRET, value=value
    )


def image(*records: AnyRecord) -> ClusterImage:
    return EMPTY.replay(records, 10, 1)


def test_a_name_has_the_same_salt_at_all_brokers_and_another_in_each_cluster() -> None:
    def salt(name: str, value: str) -> bytes:
        return UnknownUsers(lambda: image(secret(value)), b"of this process").challenge(SHA_256, name)[0]

    assert salt("bob", "one") == salt("bob", "one")
    assert len({salt("bob", "one"), salt("eve", "one"), salt("bob", "two")}) == 3


def test_salt_and_iterations_look_like_those_of_most_users() -> None:
    own = image(
        secret("s"),
        user("a", bytes(64), 8192),
        user("b", b"\xff" * 64, 8192),
        user("c", b"abc", 4096),
        user("d", b"abcdefghijklmnopqrstuvwx01", 4096, SHA_512),
    )
    unknown = UnknownUsers(lambda: own, b"")
    salt, iterations = unknown.challenge(SHA_256, "nobody")
    assert (len(salt), iterations) == (64, 8192)
    assert not salt.isalnum()
    salt, iterations = unknown.challenge(SHA_512, "nobody")
    assert (len(salt), iterations) == (26, 4096)
    assert salt.isalnum()


def test_changed_users_do_not_change_the_salt_of_an_unknown_one() -> None:
    images = [image(secret("s"), user("a", bytes(20), 4096))]
    unknown = UnknownUsers(lambda: images[-1], b"")
    before = unknown.challenge(SHA_256, "nobody")
    images.append(images[-1].replay([user("b", b"\1" * 20, 4096)], 11, 1))
    assert unknown.challenge(SHA_256, "nobody") == before


def test_no_repr_shows_the_secret() -> None:
    assert "planted" not in repr(secret("planted"))
