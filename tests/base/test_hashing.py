"""Java's string hash, by which internal topics are partitioned."""

import pytest

from penstock.base.hashing import java_string_hash, partition_for


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("my-transactional-id", -959806496),
        ("polygenelubricants", -(2**31)),
        ("Größe", 69209585),
        ("\N{GRINNING FACE}", 1772899),
    ],
)
def test_the_hash_is_javas(text: str, value: int) -> None:
    """Values are those of `String.hashCode` on a JVM."""
    assert java_string_hash(text) == value


def test_a_name_has_one_partition_whatever_the_sign_of_its_hash() -> None:
    assert partition_for("hello", 50) == 99162322 % 50
    assert partition_for("my-transactional-id", 50) == 959806496 % 50
    assert partition_for("polygenelubricants", 50) == 0, "Kafka's abs of the smallest int is 0"
