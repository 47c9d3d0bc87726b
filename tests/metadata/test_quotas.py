"""Which quota applies to a client."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.metadata.quotas import (
    QuotaEntity,
    Share,
    applying_ip_quota,
    applying_quota,
    covering_quotas,
    describe_entity,
    entity_of,
)

KEY = "producer_byte_rate"
PRECEDENCE: list[tuple[dict[str, str | None], Share]] = [
    ({"user": "alice", "client-id": "x"}, Share("alice", "x")),
    ({"user": "alice", "client-id": None}, Share("alice", "x")),
    ({"user": "alice"}, Share("alice", "")),
    ({"user": None, "client-id": "x"}, Share("alice", "x")),
    ({"user": None, "client-id": None}, Share("alice", "x")),
    ({"user": None}, Share("alice", "")),
    ({"client-id": "x"}, Share("", "x")),
    ({"client-id": None}, Share("", "x")),
]
"""The order in the documentation of Apache Kafka (Security, "Quotas"), and who shares each quota."""


@pytest.mark.parametrize("chosen", [each for size in range(1, 9) for each in combinations(range(8), size)])
def test_the_most_specific_quota_applies(chosen: tuple[int, ...]) -> None:
    quotas = {entity_of(PRECEDENCE[at][0]): {KEY: float(at)} for at in chosen}
    others: dict[QuotaEntity, dict[str, float]] = {
        entity_of({"user": "bob"}): {KEY: 99.0},
        entity_of({"user": "bob", "client-id": "x"}): {KEY: 99.0},
        entity_of({"client-id": "y"}): {KEY: 99.0},
        entity_of({"user": "alice", "client-id": "y"}): {KEY: 99.0},
    }
    applied = applying_quota(quotas | others, KEY, "alice", "x")
    assert applied is not None
    assert (applied.limit, applied.share) == (min(chosen), PRECEDENCE[min(chosen)][1])
    assert [each.limit for each in covering_quotas(quotas | others, KEY, "alice", "x")] == sorted(chosen)


def test_each_key_is_looked_up_by_itself() -> None:
    quotas = {
        entity_of({"user": "alice"}): {KEY: 1.0},
        entity_of({"user": None}): {"consumer_byte_rate": 2.0},
    }
    found = applying_quota(quotas, "consumer_byte_rate", "alice", "x")
    assert found is not None
    assert found.entity == entity_of({"user": None})
    assert applying_quota(quotas, "request_percentage", "alice", "x") is None


def test_an_address_has_its_own_quota_or_that_of_all() -> None:
    quotas = {
        entity_of({"ip": "10.0.0.7"}): {"connection_creation_rate": 1.0},
        entity_of({"ip": None}): {"connection_creation_rate": 2.0},
    }
    limits = [applying_ip_quota(quotas, each) for each in ("10.0.0.7", "10.0.0.8")]
    assert [each and each.limit for each in limits] == [1.0, 2.0]
    assert applying_ip_quota({}, "10.0.0.7") is None


@given(st.dictionaries(st.sampled_from(["user", "client-id", "ip"]), st.none() | st.text(min_size=1)))
def test_the_order_of_types_makes_no_difference(names: dict[str, str | None]) -> None:
    assert entity_of(names) == entity_of(dict(reversed(names.items())))


def test_an_entity_reads_well() -> None:
    assert describe_entity(entity_of({"client-id": None, "user": "alice"})) == "user alice, default client-id"
