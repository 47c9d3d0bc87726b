"""Committed offsets over HTTP: previewed, moved together, deleted; members removed; lists with lag."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from confluent_kafka import Consumer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.gateway.http.rest import client_of, error_of, write
from tests.gateway.peer_rpc.doors import doors, good, produce

from penstock.base.ids import TopicPartition
from penstock.base.pipeline_report import COMMIT_METADATA
from penstock.client.cluster import Cluster as ClusterClient
from penstock.client.group_offsets import commit_offsets
from penstock.client.settings import parse_servers
from penstock.gateway.http import groups
from penstock.testing import Broker

pytestmark = pytest.mark.xdist_group("http-group-offsets")
"""One broker serves them all."""

ENDS = {("orders", 0): 5, ("orders", 1): 3, ("returns", 0): 4}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(http=True) as started:
        started.create_topic("orders", 2)
        started.create_topic("returns", 1)
        write(started, "orders", [b"x"] * 5, partition=0)
        write(started, "orders", [b"x"] * 3, partition=1, timestamps=[1000, 2000, 3000])
        write(started, "returns", [b"x"] * 4)
        yield started


@pytest.fixture(scope="module")
def http(broker: Broker) -> Iterator[httpx.Client]:
    with client_of(broker) as client:
        yield client


def member(broker: Broker, group: str, protocol: str = "classic") -> Consumer:
    """A consumer that has its assignment."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "client.id": "reader",
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["orders"])
    while not consumer.assignment():
        consumer.poll(0.1)
    return consumer


def committed(http: httpx.Client, group: str) -> dict[tuple[str, int], int]:
    rows = http.get(f"/groups/{group}/lag").json()["partitions"]
    return {(each["topic"], each["partition"]): each["committed"] for each in rows}


def change(http: httpx.Client, group: str, body: object, **query: Any) -> Any:
    response = http.post(f"/groups/{group}/offsets", json=body, params=query)
    assert response.status_code == 200, response.text
    return response.json()


# -- changing ----------------------------------------------------------------------------------------------------


def test_partitions_get_different_offsets_in_one_call(http: httpx.Client) -> None:
    changed = change(
        http,
        "different",
        [
            {"topic": "orders", "to": "latest"},
            {"topic": "orders", "partition": 1, "to": "1970-01-01T00:00:02Z"},
            {"topic": "returns", "partition": 0, "to": 4, "shift_by": -1},
        ],
    )
    assert changed["topic"] is None
    assert committed(http, "different") == {("orders", 0): 5, ("orders", 1): 1, ("returns", 0): 3}


def test_preview_tells_what_is_skipped_and_read_again_and_changes_nothing(http: httpx.Client) -> None:
    change(http, "previewed", [{"topic": "orders", "partition": 0, "to": 2}, {"topic": "returns", "to": 3}])
    shown = change(
        http,
        "previewed",
        [{"topic": "orders", "to": "latest"}, {"topic": "returns", "to": "earliest"}],
        dry_run=True,
    )
    assert (shown["dry_run"], shown["refused"]) == (True, None)
    rows = [
        (
            each["topic"],
            each["partition"],
            each["committed"],
            each["offset"],
            each["skipped"],
            each["read_again"],
        )
        for each in shown["partitions"]
    ]
    assert rows == [
        ("orders", 0, 2, 5, 3, 0),
        ("orders", 1, None, 3, None, None),
        ("returns", 0, 3, 0, 0, 3),
    ]
    assert committed(http, "previewed") == {("orders", 0): 2, ("returns", 0): 3}


def test_offsets_are_shifted_and_stay_within_the_partition(http: httpx.Client) -> None:
    change(http, "shifted", [{"topic": "orders", "partition": 0, "to": 3}, {"topic": "returns", "to": 1}])
    back = change(
        http,
        "shifted",
        [{"topic": each, "to": "committed", "shift_by": -2} for each in ("orders", "returns")],
    )
    assert [(each["offset"], each["limited"]) for each in back["partitions"]] == [(1, False), (0, True)]
    alone = {"topic": "orders", "partition": 1, "to": "committed", "shift_by": 1}
    error = error_of(http.post("/groups/shifted/offsets", json=alone), 409)
    assert error["code"] == "no_committed_offset"
    assert "orders-1" in error["message"]


def test_offsets_are_taken_from_another_group(http: httpx.Client) -> None:
    change(http, "teacher", [{"topic": "orders", "partition": 0, "to": 4}, {"topic": "returns", "to": 2}])
    wanted = [{"topic": each, "to": "committed", "from_group": "teacher"} for each in ("orders", "returns")]
    change(http, "pupil", wanted)
    assert committed(http, "pupil") == {("orders", 0): 4, ("returns", 0): 2}
    nobody = {"topic": "orders", "to": "committed", "from_group": "nobody"}
    message = error_of(http.post("/groups/pupil/offsets", json=nobody), 409)["message"]
    assert "'nobody'" in message


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_preview_says_that_the_change_would_be_refused_while_there_are_members(
    broker: Broker, http: httpx.Client, protocol: str
) -> None:
    group = f"busy-{protocol}"
    consumer = member(broker, group, protocol)
    try:
        body = {"topic": "orders", "to": "latest"}
        refused = change(http, group, body, dry_run=True)["refused"]
        error = error_of(http.post(f"/groups/{group}/offsets", json=body), 409)
        assert error["code"] == "non_empty_group"
        assert error["message"] == refused
        assert "'reader'" in refused
    finally:
        consumer.close()
    assert change(http, group, body, dry_run=True)["refused"] is None
    change(http, group, body)


PLACES = [*ENDS, ("orders", None), ("returns", None)]
TARGETS = st.lists(
    st.builds(
        lambda place, to, shift: {
            "topic": place[0],
            "to": to,
            **({} if place[1] is None else {"partition": place[1]}),
            **({} if shift is None else {"shift_by": shift}),
        },
        st.sampled_from(PLACES),
        st.one_of(
            st.sampled_from(
                ["earliest", "latest", "committed", "1500", "1970-01-01T00:00:03Z", "2100-01-01"]
            ),
            st.integers(0, 6),
        ),
        st.one_of(st.none(), st.integers(-7, 7), st.just(2**63 - 1)),
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(targets=TARGETS)
def test_what_is_previewed_is_what_is_applied(http: httpx.Client, targets: list[dict[str, Any]]) -> None:
    url = "/groups/property/offsets"
    change(http, "property", [{"topic": "orders", "partition": 0, "to": 2}])
    before = committed(http, "property")
    preview = http.post(url, json=targets, params={"dry_run": True})
    assert committed(http, "property") == before
    applied = http.post(url, json=targets)
    assert applied.status_code == preview.status_code
    if preview.status_code != 200:
        assert preview.status_code == 409, preview.text
        assert applied.json() == preview.json()
        return
    assert applied.json()["partitions"] == preview.json()["partitions"]
    planned = {(each["topic"], each["partition"]): each for each in preview.json()["partitions"]}
    for place, row in planned.items():
        assert 0 <= row["offset"] <= ENDS[place]
        assert row["committed"] == before.get(place)
        if row["committed"] is not None:
            assert row["offset"] - row["committed"] == row["skipped"] - row["read_again"]
    assert committed(http, "property") == before | {place: row["offset"] for place, row in planned.items()}


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ([], 400),
        ([{"topic": "orders", "to": "latest"}, {"topic": "none", "to": "latest"}], 404),
        ([{"topic": "orders", "partition": 7, "to": "latest"}], 404),
        ([{"topic": "orders", "to": "soon"}], 400),
        ({"topic": "orders", "to": "latest", "shift_by": "1"}, 400),
        ({"topic": "orders", "to": "latest", "shift_by": 2**63}, 400),
        ({"topic": "orders", "to": "committed", "from_group": ""}, 400),
        ({"topic": "orders", "to": 2**63}, 400),
        ({"topic": "orders", "to": "latest", "more": 1}, 400),
        ([{"topic": "orders", "to": "latest"}] * 10_001, 400),
        ([{"topic": "orders", "partition": 0, "to": str(each)} for each in range(51)], 200),
        ([{"topic": "orders", "to": "latest"}] * 10_000, 200),
    ],
)
def test_bad_targets_are_refused(http: httpx.Client, body: object, status: int) -> None:
    response = http.post("/groups/bad/offsets", json=body, params={"dry_run": True})
    if status == 200:
        assert response.status_code == 200, response.text
    else:
        error_of(response, status)


# -- deleting ----------------------------------------------------------------------------------------------------


def test_offsets_of_one_topic_are_deleted(http: httpx.Client) -> None:
    change(http, "deleting", [{"topic": "orders", "to": 1}, {"topic": "returns", "to": 1}])
    one = http.delete("/groups/deleting/offsets", params={"topic": "orders", "partition": 1})
    assert one.json() == {"partitions": [1], "status": "deleted"}
    assert committed(http, "deleting") == {("orders", 0): 1, ("returns", 0): 1}
    assert http.delete("/groups/deleting/offsets?topic=orders").json()["partitions"] == [0]
    assert committed(http, "deleting") == {("returns", 0): 1}
    for target in ("/groups/deleting/offsets?topic=orders", "/groups/none/offsets?topic=orders"):
        assert error_of(http.delete(target), 404)["code"] == "no_committed_offset"
    error_of(http.delete("/groups/deleting/offsets"), 400)


def test_offsets_of_a_topic_with_subscribed_members_are_kept(broker: Broker, http: httpx.Client) -> None:
    change(http, "subscribed", [{"topic": "orders", "to": 1}, {"topic": "returns", "to": 1}])
    consumer = member(broker, "subscribed")
    try:
        error = error_of(http.delete("/groups/subscribed/offsets?topic=orders"), 409)
        assert error["code"] == "group_subscribed_to_topic"
        assert http.delete("/groups/subscribed/offsets?topic=returns").json()["partitions"] == [0]
    finally:
        consumer.close()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_member_is_removed(broker: Broker, http: httpx.Client, protocol: str) -> None:
    group = f"removing-{protocol}"
    consumer = member(broker, group, protocol)
    try:
        described = http.get(f"/groups/{group}").json()
        [before], epoch = described["members"], described["epoch"]
        removed = http.delete(f"/groups/{group}/members/{quote(before['member_id'], safe='')}")
        assert removed.json() == {"status": "removed"}
        after = http.get(f"/groups/{group}").json()
        # A client may have joined again by now, with a new member id or, with the consumer protocol, a new epoch.
        assert before["member_id"] not in [each["member_id"] for each in after["members"]] or (
            protocol == "consumer" and after["epoch"] > epoch
        )
        again = error_of(http.delete(f"/groups/{group}/members/nobody"), 404)
        assert again["code"] == "unknown_member_id"
    finally:
        consumer.close()


def test_member_over_http_is_removed(http: httpx.Client) -> None:
    joined = http.post("/join", params={"group": "removing-http", "consumer": "alice", "topic": "orders"})
    assert joined.json()["assignments"] == {"orders": [0, 1]}
    assert http.delete("/groups/removing-http/members/alice").status_code == 200
    assert http.get("/groups/removing-http").json()["members"] == []
    assert http.post(
        "/join", params={"group": "removing-http", "consumer": "alice", "topic": "orders"}
    ).json()["assignments"] == {"orders": [0, 1]}


# -- lists with lag ----------------------------------------------------------------------------------------------


def test_pages_with_lag_end_early_and_show_every_group_once(
    http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(7):
        change(http, f"paged-{number}", {"topic": "orders", "to": number % 4})
    monkeypatch.setattr(groups, "POSITIONS_MAX", 3)
    query: dict[str, Any] = {"lag": True, "contains": "paged-"}
    found, pages = [], 0
    while True:
        page = http.get("/groups", params=query).json()
        found += page["groups"]
        pages += 1
        if page["next"] is None:
            break
        query["after"] = page["next"]
    assert [each["group"] for each in found] == [f"paged-{number}" for number in range(7)]
    assert [each["lag"] for each in found] == [8 - 2 * (number % 4) for number in range(7)]
    assert pages > 2
    assert {each["members"] for each in found} == {0}
    plain = http.get("/groups", params={"contains": "paged-"}).json()["groups"]
    assert "lag" not in plain[0]


def test_group_of_a_spark_query_is_marked(broker: Broker, http: httpx.Client) -> None:
    cluster = ClusterClient(parse_servers(broker.bootstrap))
    try:
        offsets = {TopicPartition("orders", 0): 2}
        commit_offsets(cluster, "spark-orders", offsets, metadata=COMMIT_METADATA)
        commit_offsets(cluster, "spark-other", offsets)
    finally:
        cluster.close()
    rows = http.get("/groups", params={"lag": True, "contains": "spark-o"}).json()["groups"]
    assert [(each["group"], each.get("spark")) for each in rows] == [
        ("spark-orders", True),
        ("spark-other", None),
    ]
    assert [http.get(f"/groups/{each['group']}/lag").json()["spark"] for each in rows] == [True, False]


# -- a cluster ---------------------------------------------------------------------------------------------------


def test_every_node_of_a_cluster_lists_lag_and_changes_offsets() -> None:
    with doors() as cluster:
        cluster.create_topic("spread", partitions=3, replication_factor=3)
        for partition in range(3):
            for value in "abc":
                produce(cluster.brokers[0], "spread", value, partition=partition, seconds_max=30)
        names = [f"of-{number}" for number in range(6)]
        for number, name in enumerate(names):
            body = [{"topic": "spread", "partition": each, "to": number % 3} for each in range(3)]
            good(cluster.brokers[number % 3], "POST", f"/groups/{name}/offsets", body)
        for broker in cluster.brokers:
            rows = good(broker, "GET", "/groups?lag=true")["groups"]
            assert [each["group"] for each in rows] == names
            assert [each["lag"] for each in rows] == [9 - 3 * (number % 3) for number in range(6)]
            assert all(each["lag_seconds"] > 0 for each in rows)
        coordinators = {each["coordinator"] for each in rows}
        assert len(coordinators) > 1
        for broker, name in zip(cluster.brokers, names, strict=False):
            body = {"topic": "spread", "to": "committed", "shift_by": 1}
            preview = good(broker, "POST", f"/groups/{name}/offsets?dry_run=true", body)
            assert (
                good(broker, "POST", f"/groups/{name}/offsets", body)["partitions"] == preview["partitions"]
            )
            assert good(broker, "DELETE", f"/groups/{name}/offsets?topic=spread")["partitions"] == [0, 1, 2]
        rows = good(cluster.brokers[2], "GET", "/groups?lag=true")["groups"]
        assert [each["lag"] for each in rows if each["topics"]] == [9, 6, 3], "others are as they were"
