"""Settings over HTTP."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from confluent_kafka.admin import AdminClient, ConfigResource
from tests.gateway.http.rest import client_of, error_of

from penstock.testing import Broker

pytestmark = pytest.mark.xdist_group("http-configs")
"""One broker serves them all."""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(http=True, settings={"log.retention.hours": 5}) as started:
        started.create_topic("orders", segment_bytes=20_000)
        yield started


@pytest.fixture(scope="module")
def http(broker: Broker) -> Iterator[httpx.Client]:
    with client_of(broker) as client:
        yield client


def by_name(response: httpx.Response) -> dict[str, Any]:
    assert response.status_code == 200, response.text
    return {each["name"]: each for each in response.json()["configs"]}


def test_settings_say_their_value_and_who_said_so(http: httpx.Client) -> None:
    found = by_name(http.get("/topics/orders/configs"))
    assert (found["segment.bytes"]["value"], found["segment.bytes"]["source"]) == ("20000", "topic")
    # As Kafka says of it: only `log.retention.ms` itself would be the broker's word on a topic's `retention.ms`.
    assert (found["retention.ms"]["value"], found["retention.ms"]["source"]) == ("18000000", "default")
    assert found["cleanup.policy"]["is_default"]
    assert not found["segment.bytes"]["is_default"]
    brokers = by_name(http.get("/cluster/configs"))
    assert brokers["log.retention.hours"]["value"] == "5"
    assert brokers["log.retention.hours"]["read_only"]


def test_change_sets_and_takes_back_and_leaves_the_rest(broker: Broker, http: httpx.Client) -> None:
    changes = {"segment.bytes": None, "retention.ms": 99, "cleanup.policy": "compact", "preallocate": False}
    changed = by_name(http.patch("/topics/orders/configs", json={"configs": changes}))
    assert changed["segment.bytes"]["is_default"]
    assert (changed["retention.ms"]["value"], changed["retention.ms"]["source"]) == ("99", "topic")
    assert changed["preallocate"]["value"] == "false"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    resource = ConfigResource(ConfigResource.Type.TOPIC, "orders")
    seen = admin.describe_configs([resource])[resource].result(10)
    assert seen["cleanup.policy"].value == "compact"
    assert seen["retention.ms"].value == "99"


def test_settings_of_brokers_change_while_they_run(http: httpx.Client) -> None:
    changed = by_name(http.patch("/cluster/configs", json={"configs": {"log.retention.ms": 5}}))
    assert (changed["log.retention.ms"]["value"], changed["log.retention.ms"]["source"]) == (
        "5",
        "all_brokers",
    )
    back = by_name(http.patch("/cluster/configs", json={"configs": {"log.retention.ms": None}}))
    assert back["log.retention.ms"]["source"] != "all_brokers"


@pytest.mark.parametrize(
    ("configs", "named"),
    [
        ({"no.such": "1"}, "no.such"),
        ({"retention.ms": "soon"}, "retention.ms"),
        ({"retention.ms": 1, "cleanup.policy": "burn"}, "cleanup.policy"),
        ({"retention.ms": " 1 "}, "retention.ms"),
        ({"retention.ms": True}, "retention.ms"),
        ({"preallocate": 1}, "preallocate"),
        ({"compression.gzip.level": 0}, "compression.gzip.level"),
        ({"max.message.bytes": 100}, "4096"),
    ],
)
def test_bad_setting_is_named_and_none_is_changed(
    http: httpx.Client, configs: dict[str, object], named: str
) -> None:
    before = by_name(http.get("/topics/orders/configs"))
    assert named in error_of(http.patch("/topics/orders/configs", json={"configs": configs}), 400)["message"]
    assert by_name(http.get("/topics/orders/configs")) == before


def test_settings_at_odds_with_each_other_or_with_what_there_is_are_a_conflict(http: httpx.Client) -> None:
    for configs, code in (
        ({"min.compaction.lag.ms": 2, "max.compaction.lag.ms": 1}, "invalid_config"),
        ({"min.insync.replicas": 2}, "not_enough_replicas"),
    ):
        refused = http.patch("/topics/orders/configs", json={"configs": configs})
        assert error_of(refused, 409)["code"] == code
    refused = http.patch("/cluster/configs", json={"configs": {"min.insync.replicas": 2}})
    assert error_of(refused, 409)["code"] == "not_enough_replicas"


@pytest.mark.parametrize("name", ["log.retention.hours", "follower.replication.throttled.rate", "no.such"])
@pytest.mark.parametrize("value", [1, None])
def test_brokers_setting_that_cannot_be_changed_here_is_named(
    http: httpx.Client, name: str, value: int | None
) -> None:
    refused = http.patch("/cluster/configs", json={"configs": {name: value}})
    assert name in error_of(refused, 400)["message"]


def test_a_client_cannot_set_limits_that_lock_it_out(http: httpx.Client) -> None:
    for name in ("max.connections", "max.connections.per.ip", "message.max.bytes"):
        error_of(http.patch("/cluster/configs", json={"configs": {name: 1}}), 400)


@pytest.mark.parametrize("body", [{}, {"configs": {}}, {"configs": {"a": [1]}}, {"configs": 1}, [], "x"])
def test_body_that_is_no_change_is_refused(http: httpx.Client, body: object) -> None:
    assert error_of(http.patch("/topics/orders/configs", json=body), 400)["code"] == "invalid_body"


def test_settings_of_a_topic_that_is_not_there_are_not_found(http: httpx.Client) -> None:
    error_of(http.get("/topics/none/configs"), 404)
    error_of(http.patch("/topics/none/configs", json={"configs": {"retention.ms": 1}}), 404)
