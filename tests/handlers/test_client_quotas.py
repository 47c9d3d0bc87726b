"""Quotas set, removed and described through a broker."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.handlers.cluster import Cluster

from penstock.metadata.acls import AclResourceType, Operation
from penstock.metadata.image import EMPTY
from penstock.metadata.quotas import entity_of, quota_record
from penstock.wire import Api

EXACT, DEFAULT, SPECIFIED = 0, 1, 2
Entity = dict[str, str | None]


def parts(entity: Entity) -> list[dict[str, str | None]]:
    return [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()]


def entry(entity: Entity, **limits: float | None) -> dict[str, Any]:
    ops = [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in limits.items()]
    return {"entity": parts(entity), "ops": ops}


def alter(
    cluster: Cluster, *entries: dict[str, Any], validate_only: bool = False, version: int = 1
) -> list[str]:
    reply = cluster.call(Api.ALTER_CLIENT_QUOTAS, version, entries=list(entries), validate_only=validate_only)
    return [each.error_code.name for each in reply.entries]


def ask(
    cluster: Cluster, *components: tuple[str, int, str | None], strict: bool = False, version: int = 1
) -> Any:
    wanted = [{"entity_type": kind, "match_type": how, "match": name} for kind, how, name in components]
    return cluster.call(Api.DESCRIBE_CLIENT_QUOTAS, version, components=wanted, strict=strict)


def described(cluster: Cluster, *components: tuple[str, int, str | None], strict: bool = False) -> list[Any]:
    reply = ask(cluster, *components, strict=strict)
    assert reply.error_code.name == "none", reply
    return [
        (
            {part.entity_type: part.entity_name for part in each.entity},
            {value.key: value.value for value in each.values},
        )
        for each in reply.entries
    ]


@pytest.mark.parametrize("version", [0, 1])
def test_quotas_come_and_go(cluster: Cluster, version: int) -> None:
    alice: Entity = {"user": "alice"}
    assert alter(
        cluster, entry(alice, producer_byte_rate=1000, request_percentage=12.5), version=version
    ) == ["none"]
    assert described(cluster) == [(alice, {"producer_byte_rate": 1000, "request_percentage": 12.5})]
    assert alter(cluster, entry(alice, producer_byte_rate=None, consumer_byte_rate=7)) == ["none"]
    assert described(cluster) == [(alice, {"consumer_byte_rate": 7, "request_percentage": 12.5})]
    assert alter(cluster, entry(alice, consumer_byte_rate=None, request_percentage=None)) == ["none"]
    assert described(cluster) == []


def test_only_changes_make_records(cluster: Cluster) -> None:
    alter(cluster, entry({"user": "alice"}, producer_byte_rate=1000))
    before = cluster.context.image.offset
    assert alter(cluster, entry({"user": "alice"}, producer_byte_rate=1000)) == ["none"]
    assert alter(cluster, entry({"user": "bob"}, producer_byte_rate=None)) == ["none"]
    assert alter(cluster, entry({"user": "bob"}, producer_byte_rate=5), validate_only=True) == ["none"]
    assert cluster.context.image.offset == before


@pytest.mark.parametrize(
    "refused",
    [
        entry({}, producer_byte_rate=1),
        entry({"group": "g"}, producer_byte_rate=1),
        entry({"user": ""}, producer_byte_rate=1),
        entry({"user": "alice", "ip": "10.0.0.7"}, connection_creation_rate=1),
        entry({"ip": "no address"}, connection_creation_rate=1),
        entry({"ip": "999.0.0.1"}, connection_creation_rate=1),
        entry({"ip": "10.0.0.7"}, producer_byte_rate=1),
        entry({"user": "alice"}, connection_creation_rate=1),
        entry({"user": "alice"}, no_such_key=1),
        entry({"user": "alice"}, producer_byte_rate=0),
        entry({"user": "alice"}, producer_byte_rate=-5),
        entry({"user": "alice"}, producer_byte_rate=1.5),
        entry({"user": "alice"}, producer_byte_rate=float("nan")),
        entry({"user": "alice"}, producer_byte_rate=1e19),
        entry({"ip": "10.0.0.7"}, connection_creation_rate=2.0**31),
        entry({"user": "alice"}, consumer_byte_rate=5, request_percentage=-1),
        {
            "entity": parts({"user": "alice"}),
            "ops": [{"key": "producer_byte_rate", "value": 1.0, "remove": False}] * 2,
        },
    ],
)
def test_what_cannot_be_is_refused_and_the_rest_is_done(cluster: Cluster, refused: dict[str, Any]) -> None:
    good = entry({"user": "good", "client-id": None}, producer_byte_rate=9)
    assert alter(cluster, refused, good) == ["invalid_request", "none"]
    assert described(cluster) == [({"user": "good", "client-id": None}, {"producer_byte_rate": 9})]


def test_an_entity_that_is_named_twice_is_refused(cluster: Cluster) -> None:
    same = [entry({"user": "a"}, producer_byte_rate=1), entry({"user": "a"}, producer_byte_rate=2)]
    assert alter(cluster, *same) == ["invalid_request"]


ENTITIES: list[Entity] = [
    {"user": "alice"},
    {"user": None},
    {"user": "alice", "client-id": "x"},
    {"user": "alice", "client-id": None},
    {"client-id": "x"},
]


@pytest.fixture
def filled(cluster: Cluster) -> Cluster:
    assert set(alter(cluster, *(entry(each, producer_byte_rate=5) for each in ENTITIES))) == {"none"}
    assert alter(cluster, entry({"ip": "10.0.0.7"}, connection_creation_rate=5)) == ["none"]
    return cluster


@pytest.mark.parametrize(
    ("components", "strict", "expected"),
    [
        ([("user", EXACT, "alice")], False, [0, 2, 3]),
        ([("user", EXACT, "alice")], True, [0]),
        ([("user", DEFAULT, None)], False, [1]),
        ([("user", SPECIFIED, None)], False, [0, 1, 2, 3]),
        ([("user", EXACT, "alice"), ("client-id", SPECIFIED, None)], True, [2, 3]),
        ([("user", EXACT, "alice"), ("client-id", DEFAULT, None)], False, [3]),
        ([("client-id", EXACT, "x")], False, [2, 4]),
        ([("client-id", EXACT, "y")], False, []),
        ([], True, []),
    ],
)
def test_a_filter_selects_entities(
    filled: Cluster, components: list[tuple[str, int, str | None]], strict: bool, expected: list[int]
) -> None:
    found = [each for each, _ in described(filled, *components, strict=strict)]
    assert sorted(map(repr, (dict(sorted(each.items())) for each in found))) == sorted(
        repr(dict(sorted(ENTITIES[at].items()))) for at in expected
    )
    assert len(described(filled)) == len(ENTITIES) + 1


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("user", EXACT, "a"), ("user", EXACT, "b")], "invalid_request"),
        ([("", EXACT, "a")], "invalid_request"),
        ([("group", EXACT, "a")], "unsupported_version"),
        ([("user", EXACT, None)], "invalid_request"),
        ([("user", DEFAULT, "a")], "invalid_request"),
        ([("user", SPECIFIED, "a")], "invalid_request"),
        ([("user", 9, None)], "invalid_request"),
        ([("user", EXACT, "a"), ("ip", EXACT, "10.0.0.7")], "invalid_request"),
    ],
)
def test_a_filter_that_cannot_be_is_refused(
    filled: Cluster, components: list[tuple[str, int, str | None]], code: str
) -> None:
    reply = ask(filled, *components)
    assert (reply.error_code.name, reply.entries) == (code, None)


def test_quotas_need_the_rights_on_settings_of_the_cluster(cluster: Cluster) -> None:
    cluster.deny(Operation.DESCRIBE_CONFIGS, AclResourceType.CLUSTER)
    reply = ask(cluster)
    assert (reply.error_code.name, reply.entries) == ("cluster_authorization_failed", None)
    assert alter(cluster, entry({"user": "a"}, producer_byte_rate=1)) == ["none"]
    cluster.deny(Operation.ALTER_CONFIGS, AclResourceType.CLUSTER)
    assert alter(cluster, entry({"user": "b"}, producer_byte_rate=1)) == ["cluster_authorization_failed"]


@given(
    st.lists(
        st.tuples(
            st.dictionaries(
                st.sampled_from(["user", "client-id"]),
                st.none() | st.text(min_size=1, max_size=5),
                min_size=1,
            ),
            st.sampled_from(["producer_byte_rate", "consumer_byte_rate", "a key of later"]),
            st.none() | st.floats(min_value=0.001, max_value=1e15),
        ),
        max_size=30,
    )
)
def test_a_snapshot_rebuilds_the_quotas(changes: list[tuple[Entity, str, float | None]]) -> None:
    records = [quota_record(entity_of(entity), key, value) for entity, key, value in changes]
    image = EMPTY.replay(records, len(records), 1)
    assert EMPTY.replay(image.records(), len(records), 1).quotas == image.quotas
    expected: dict[Any, dict[str, float]] = {}
    for entity, key, value in changes:
        limits = expected.setdefault(entity_of(entity), {})
        limits.pop(key, None)
        if value is not None:
            limits[key] = value
    assert dict(image.quotas) == {entity: limits for entity, limits in expected.items() if limits}
