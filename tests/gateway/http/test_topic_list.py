"""The list of topics with sizes and rates, and settings that are tried before they are saved."""

import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from tests.gateway.http.rest import client_of, error_of, write

from penstock.testing import Broker

pytestmark = pytest.mark.xdist_group("http-topic-list")
"""One broker serves them all."""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(http=True) as started:
        yield started


@pytest.fixture(scope="module")
def http(broker: Broker) -> Iterator[httpx.Client]:
    with client_of(broker) as client:
        for name, partitions, configs in (
            ("Apples", 1, {}),
            ("bananas", 4, {"retention.ms": 1000, "cleanup.policy": "compact,delete"}),
            ("cherries", 2, {"retention.bytes": 5_000_000}),
        ):
            made = client.post("/topics", json={"name": name, "partitions": partitions, "configs": configs})
            assert made.status_code == 201
        write(broker, "cherries", [b"x" * 100] * 50)
        write(broker, "Apples", [b"x"] * 3)
        yield client


def listed(http: httpx.Client, query: str) -> dict[str, Any]:
    answer = http.get(f"/topics?{query}")
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def names(answer: dict[str, Any]) -> list[str]:
    return [each["name"] for each in answer["topics"]]


def test_list_without_details_is_as_it_was(http: httpx.Client) -> None:
    answer = listed(http, "")
    assert names(answer) == ["Apples", "bananas", "cherries"]
    assert answer["next"] is None
    assert answer["topics"][0]["size_bytes"] is None


def test_details_are_sizes_messages_and_retention(http: httpx.Client) -> None:
    answer = listed(http, "details=true")
    assert (answer["total"], answer["unanswered"]) == (3, [])
    apples, bananas, cherries = answer["topics"]
    assert (apples["messages"], bananas["messages"], cherries["messages"]) == (3, 0, 50)
    assert bananas["size_bytes"] == 0
    described = http.get("/topics/cherries").json()["partitions"]
    assert cherries["size_bytes"] == sum(each["size_bytes"] for each in described) > 5_000
    assert (bananas["retention_ms"], bananas["cleanup_policy"]) == (1000, ["compact", "delete"])
    assert (cherries["retention_ms"], cherries["retention_bytes"]) == (604_800_000, 5_000_000)
    assert (apples["retention_bytes"], apples["under_replicated"], apples["offline"]) == (-1, 0, 0)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("contains=AN", ["bananas"]),
        ("contains=nothing", []),
        ("sort=partitions", ["Apples", "cherries", "bananas"]),
        ("sort=messages&descending=true", ["cherries", "Apples", "bananas"]),
        ("sort=size_bytes&limit=1&skip=1", ["Apples"]),
        ("descending=true&limit=2", ["cherries", "bananas"]),
        ("details=true&skip=2", ["cherries"]),
        ("sort=retention_ms&limit=1", ["bananas"]),
        ("skip=1&limit=1", ["bananas"]),
    ],
)
def test_list_is_filtered_and_sorted(http: httpx.Client, query: str, expected: list[str]) -> None:
    assert names(listed(http, query)) == expected


@pytest.mark.parametrize("details", ["true", "false"])
def test_pages_in_order_of_name(http: httpx.Client, details: str) -> None:
    found, after = [], ""
    while True:
        page = listed(http, f"details={details}&limit=1&after={after}")
        found += names(page)
        if page["next"] is None:
            break
        after = page["next"]
    assert found == ["Apples", "bananas", "cherries"]


@pytest.mark.parametrize("query", ["sort=weight", "skip=-1", "details=maybe", f"contains={'x' * 250}"])
def test_bad_query_is_refused(http: httpx.Client, query: str) -> None:
    assert error_of(http.get(f"/topics?{query}"), 400)["code"] == "bad_parameter"


def test_rate_is_known_from_the_second_sample_on(broker: Broker, http: httpx.Client) -> None:
    http.post("/topics", json={"name": "busy", "partitions": 1})
    until = time.monotonic() + 60
    while time.monotonic() < until:  # a sample is kept for a second
        write(broker, "busy", [b"x" * 100] * 20)
        [row] = listed(http, "details=true&contains=busy")["topics"]
        if row["bytes_in_per_second"]:
            break
    assert row["bytes_in_per_second"] > row["messages_in_per_second"] > 0
    http.delete("/topics/busy")


def test_details_of_partitions_have_each_replica(http: httpx.Client) -> None:
    answer = http.get("/topics/bananas?details=true&from=1&limit=2").json()
    assert [each["partition"] for each in answer["partitions"]] == [1, 2]
    assert answer["unanswered"] == []
    for each in answer["partitions"]:
        [replica] = each["replica_states"]
        assert (replica["is_leader"], replica["in_sync"]) == (True, True)
        assert (replica["log_end"], replica["lag"], replica["behind_ms"]) == (each["end"], 0, 0)
        assert (each["segments"], each["lag_max"]) == (1, 0)
    plain = http.get("/topics/bananas").json()
    assert plain["partitions"][0]["replica_states"] is None
    assert len(plain["partitions"]) == 4


# -- settings ---------------------------------------------------------------------------------------------


def settings_of(http: httpx.Client, topic: str) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in http.get(f"/topics/{topic}/configs").json()["configs"]}


def test_settings_have_default_synonyms_limits_and_a_sentence(http: httpx.Client) -> None:
    found = settings_of(http, "bananas")
    retention = found["retention.ms"]
    assert (retention["value"], retention["default"], retention["source"]) == ("1000", "604800000", "topic")
    assert retention["synonyms"][0] == {"name": "retention.ms", "value": "1000", "source": "topic"}
    assert retention["min"] == -1
    assert found["cleanup.policy"]["choices"] == ["compact", "delete"]
    assert found["preallocate"]["has_effect"] is False
    assert all(each["documentation"].endswith(".") for each in found.values())


def test_default_in_hours_is_shown_in_the_setting_s_unit() -> None:
    with Broker(http=True, settings={"log.retention.hours": 2}) as broker, client_of(broker) as http:
        http.post("/topics", json={"name": "short", "configs": {"retention.ms": 5}})
        shown = settings_of(http, "short")["retention.ms"]
        assert (shown["value"], shown["default"]) == ("5", "7200000")


def test_dry_run_changes_nothing_and_tells_what_is_wrong(http: httpx.Client) -> None:
    tried = http.patch("/topics/Apples/configs?dry_run=true", json={"configs": {"retention.ms": 7}})
    assert tried.status_code == 200
    assert settings_of(http, "Apples")["retention.ms"]["source"] == "default"
    wrong = http.patch(
        "/topics/Apples/configs?dry_run=true",
        json={"configs": {"retention.ms": "soon", "segment.bytes": 1, "cleanup.policy": "delete"}},
    )
    error = error_of(wrong, 400)
    assert error["code"] == "invalid_config"
    assert error["settings"] == {
        "retention.ms": "retention.ms is 'soon', expected a number",
        "segment.bytes": "segment.bytes is 1, expected 1000 to 2147483647",
    }
    together = {"min.compaction.lag.ms": 2, "max.compaction.lag.ms": 1}
    odd = http.patch("/topics/Apples/configs?dry_run=true", json={"configs": together})
    assert error_of(odd, 409)["code"] == "invalid_config"


def test_a_new_topic_is_told_everything_that_is_wrong_at_once(http: httpx.Client) -> None:
    body = {"name": "x", "configs": {"retention.ms": None, "segment.bytes": "big", "no.such": 1}}
    assert set(error_of(http.post("/topics", json=body), 400)["settings"]) == {
        "retention.ms",
        "segment.bytes",
        "no.such",
    }
    many = {"name": "x", "configs": {f"no.such.{number}": 1 for number in range(1000)}}
    assert len(error_of(http.post("/topics", json=many), 400)["settings"]) == 20
