"""SCRAM users of a new cluster, in the form of Kafka's `kafka-storage format --add-scram` (KIP-900)."""

from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.settings import BadSetting
from penstock.metadata.bootstrap_users import parse_users
from penstock.metadata.scram import ScramMechanism, salted_password, server_key, stored_key

SECRET = "planted-s3cret"
SALT = b"the salt of a test, 20"


def parsed(text: str) -> list[tuple[str, int, int, bytes, bytes, bytes]]:
    return [
        (each.name, each.mechanism, each.iterations, each.salt, each.stored_key, each.server_key)
        for each in parse_users(text, "--add-scram", lambda size: SALT[:size])
    ]


def expected(
    name: str, mechanism: ScramMechanism, password: str, iterations: int = 4096, salt: bytes = SALT[:20]
) -> tuple[str, int, int, bytes, bytes, bytes]:
    salted = salted_password(mechanism, password, salt, iterations)
    return (
        name,
        mechanism,
        iterations,
        salt,
        stored_key(mechanism, salted),
        server_key(mechanism, salted),
    )


def test_kafkas_examples() -> None:
    sha_256, sha_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
    assert parsed("SCRAM-SHA-256=[name=alice,password=alice-secret]") == [
        expected("alice", sha_256, "alice-secret")
    ]
    salt = b64encode(b"salt").decode()
    assert parsed(f'SCRAM-SHA-512=[name="bob",iterations=8192,salt="{salt}",password="a, b"]') == [
        expected("bob", sha_512, "a, b", 8192, b"salt")
    ]
    salted = b64encode(salted_password(sha_256, "pw", b"salt", 4096)).decode()
    assert parsed(f'SCRAM-SHA-256=[name=c,salt="{salt}",saltedpassword="{salted}"]') == [
        expected("c", sha_256, "pw", salt=b"salt")
    ]


def test_several_users() -> None:
    text = "SCRAM-SHA-256=[name=a,password=x],SCRAM-SHA-512=[name=a,password=x]; SCRAM-SHA-256=[name=b,password=y]"
    assert [(each[0], each[1]) for each in parsed(text)] == [("a", 1), ("a", 2), ("b", 1)]


@given(st.text(min_size=1, max_size=20), st.text(min_size=1, max_size=20))
def test_whatever_is_quoted_is_taken_as_it_is(name: str, password: str) -> None:
    def quoted(text: str) -> str:
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

    (found,) = parse_users(
        f"SCRAM-SHA-256=[name={quoted(name)},salt=AAAA,saltedpassword=AAAA]", "x", lambda _: SALT
    )
    assert found.name == name
    (found,) = parse_users(
        f"SCRAM-SHA-256=[name={quoted(name)},password={quoted(password)}]", "x", lambda _: SALT
    )
    assert found.stored_key == stored_key(
        ScramMechanism.SCRAM_SHA_256, salted_password(ScramMechanism.SCRAM_SHA_256, password, SALT, 4096)
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (f"name=alice,password={SECRET}", "is not written as expected, which is SCRAM-SHA-256=\\[name=alice"),
        (f"PLAIN=[name=alice,password={SECRET}]", "has the mechanism PLAIN, expected SCRAM-SHA-256 or SCRAM"),
        (f"SCRAM-SHA-256=[password={SECRET}]", "user 1 of --add-scram has no name"),
        ("SCRAM-SHA-256=[name=a]", "both or neither of password and saltedpassword"),
        (f"SCRAM-SHA-256=[name=a,password={SECRET},saltedpassword=AAAA]", "both or neither"),
        ("SCRAM-SHA-256=[name=a,saltedpassword=AAAA]", "has a saltedpassword without a salt"),
        ("SCRAM-SHA-256=[name=a,salt=!,saltedpassword=AAAA]", "has a salt that is not base64"),
        (
            f"SCRAM-SHA-256=[name=a,password={SECRET},iterations=1]",
            "has 1 iterations, expected 4096 to 16384",
        ),
        (f"SCRAM-SHA-256=[name=a,password={SECRET},color=red]", "is not written as expected"),
        (f"SCRAM-SHA-256=[name=a,name=b,password={SECRET}]", "is not written as expected"),
        (
            f"SCRAM-SHA-256=[name=a,password={SECRET}],SCRAM-SHA-256=[name=a,password={SECRET}]",
            "has the user a twice with one mechanism",
        ),
    ],
)
def test_what_is_wrong_is_refused_without_its_secret(text: str, why: str) -> None:
    with pytest.raises(BadSetting, match=why) as refused:
        parsed(text)
    assert SECRET not in str(refused.value)
