"""The overview, the history and the events of one node, and of a cluster in which a broker dies."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from tests.gateway.http.rest import client_of, error_of, write

from penstock.gateway.observing.event import Kind
from penstock.gateway.observing.series import SERIES
from penstock.testing import Broker, Cluster

SECONDS_MAX = 60
NODE, DYING = 1, 3
"""Ids of the only broker, and of the one that is killed."""


def eventually(look: Callable[[], Any], what: str) -> Any:
    until = time.monotonic() + SECONDS_MAX
    while not (found := look()):
        assert time.monotonic() < until, f"it never came true: {what}"
        time.sleep(0.05)
    return found


def events_of(http: httpx.Client, **query: object) -> list[Any]:
    found: list[Any] = http.get("/cluster/events", params=query).raise_for_status().json()["events"]
    return found


def has_event(http: httpx.Client, kind: Kind, **fields: object) -> Any:
    def look() -> Any:
        for each in events_of(http, kind=kind.value):
            if all(each[name] == value for name, value in fields.items()):
                return each
        return None

    return eventually(look, f"{kind} {fields}")


@contextmanager
def stream(
    http: httpx.Client, after: str | None = None, **query: object
) -> Iterator[Iterator[tuple[str, Any]]]:
    """Ids and data of server-sent events; the first has no data."""

    def read(response: httpx.Response) -> Iterator[tuple[str, Any]]:
        event_id = ""
        for line in response.iter_lines():
            name, _, value = line.partition(": ")
            if name == "id":
                event_id = value
            elif name == "data":
                yield event_id, json.loads(value)
            elif name == "retry":
                yield "", None

    headers = {"Last-Event-ID": after} if after else {}
    with http.stream("GET", "/cluster/events/stream", params=query, headers=headers) as response:
        assert response.status_code == 200, response.read()
        assert response.headers["content-type"] == "text/event-stream"
        yield read(response)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(http=True) as started:
        yield started


# -- one node ------------------------------------------------------------------------------------------


def test_overview_of_a_node_that_is_well(broker: Broker) -> None:
    with client_of(broker) as http:
        broker.create_topic("orders", 3)
        shown = http.get("/cluster/overview").raise_for_status().json()
        assert shown["status"] == "ok"
        assert shown["problems"] == []
        assert shown["partitions"]["total"] >= 3
        assert shown["partitions"]["offline"] == shown["partitions"]["under_replicated"] == 0
        [node] = shown["brokers"]
        assert (node["state"], node["missing"], node["problems"]) == ("active", None, [])
        assert node["leaders"] == node["replicas"] == shown["partitions"]["total"]
        assert node["version"]
        assert shown["quorum"]["leader"] == node["id"] == shown["node_id"]
        assert shown["quorum"]["voters"] == [{"id": node["id"], "lag": 0, "behind_ms": 0}]


def test_history_has_what_clients_wrote(broker: Broker) -> None:
    with client_of(broker) as http:
        broker.create_topic("written", 1)
        broker.clock.advance(seconds=10)
        began = http.get("/cluster/overview").json()["time"]
        write(broker, "written", [b"x" * 100] * 50)
        broker.clock.advance(seconds=10)
        names = ["messages_in", "bytes_in", "requests_produce", "produce_p99_ms", "connections", "disk_bytes"]
        history = eventually(
            lambda: _if_some(http, series=",".join(names), since=began - 1000), "a sample after the records"
        )
        assert [each["name"] for each in history["series"]] == names
        found = {each["name"]: each for each in history["series"]}
        times = history["times"]
        assert times == sorted(times)
        assert all(each % 5000 == 0 for each in times)
        for each in history["series"]:
            assert len(each["total"]) == len(times)
            assert each["brokers"] == {str(NODE): each["total"]}
        assert max(found["messages_in"]["total"]) > 0
        assert max(found["bytes_in"]["total"]) > max(found["messages_in"]["total"]) * 100
        assert max(each for each in found["produce_p99_ms"]["total"] if each is not None) > 0
        assert min(found["disk_bytes"]["total"]) > 0
        overview = http.get("/cluster/overview").json()
        assert overview["brokers"][0]["disk_bytes"] > 0
        assert http.get("/cluster/history", params={"since": times[-1]}).json()["times"] == []


def _if_some(http: httpx.Client, **query: object) -> Any:
    history = http.get("/cluster/history", params=query).raise_for_status().json()
    return history if history["times"] and (history["series"][0]["total"][-1] or 0) >= 0 else None


def test_larger_steps_have_fewer_values(broker: Broker) -> None:
    with client_of(broker) as http:
        for _ in range(8):
            broker.clock.advance(seconds=5)
        fine = http.get("/cluster/history", params={"series": "connections", "broker": "this"}).json()
        coarse = http.get("/cluster/history", params={"series": "connections", "step": 18}).json()
        assert (fine["step"], coarse["step"]) == (5, 20)
        assert {each // 20_000 * 20_000 for each in fine["times"]} == set(coarse["times"])


@pytest.mark.parametrize(
    "query",
    ["series=nonsense", "series=bytes_in,bytes_in", "step=0", "step=3601", "since=yesterday", "broker=7"],
)
def test_bad_question_about_history_is_refused(broker: Broker, query: str) -> None:
    with client_of(broker) as http:
        error_of(http.get(f"/cluster/history?{query}"), 400)


@pytest.mark.parametrize(
    "query", ["kind=nonsense", "limit=0", "limit=1001", "after=x", "after=c:1,", "after=1:"]
)
def test_bad_question_about_events_is_refused(broker: Broker, query: str) -> None:
    with client_of(broker) as http:
        error_of(http.get(f"/cluster/events?{query}"), 400)
        error_of(http.get("/cluster/events/stream", headers={"Last-Event-ID": "0:x"}), 400)


def test_events_tell_of_topics_and_settings(broker: Broker) -> None:
    with client_of(broker) as http:
        assert has_event(http, Kind.NODE_STARTED)["broker"] == NODE
        broker.create_topic("told", 2)
        created = has_event(http, Kind.TOPIC_CREATED, topic="told")
        assert created["text"] == "Topic told was created with 2 partitions"
        http.patch("/topics/told", json={"partitions": 4}).raise_for_status()
        has_event(http, Kind.TOPIC_WIDENED, topic="told")
        http.patch("/topics/told/configs", json={"configs": {"retention.ms": 1000}}).raise_for_status()
        changed = has_event(http, Kind.SETTINGS_CHANGED, topic="told")
        assert changed["text"] == "Settings of topic told changed: retention.ms"
        http.delete("/topics/told").raise_for_status()
        has_event(http, Kind.TOPIC_DELETED, topic="told")


def test_events_after_a_cursor_are_the_rest(broker: Broker) -> None:
    with client_of(broker) as http:
        before = http.get("/cluster/events?limit=1").json()["next"]
        for number in range(3):
            broker.create_topic(f"rest-{number}")
            has_event(http, Kind.TOPIC_CREATED, topic=f"rest-{number}")
        page = http.get("/cluster/events", params={"after": before, "limit": 2}).json()
        rest = http.get("/cluster/events", params={"after": page["next"]}).json()
        assert [each["topic"] for each in page["events"] + rest["events"]] == ["rest-0", "rest-1", "rest-2"]
        assert http.get("/cluster/events", params={"after": rest["next"]}).json()["events"] == []
        assert [each["topic"] for each in events_of(http, limit=2)] == ["rest-1", "rest-2"]


def test_stream_of_events_goes_on_after_the_last_id(broker: Broker) -> None:
    with client_of(broker) as http, client_of(broker) as other:
        with stream(http, kind=Kind.TOPIC_CREATED.value) as events:
            assert next(events) == ("", None)
            broker.create_topic("streamed-0")
            event_id, event = next(events)
            assert event["topic"] == "streamed-0"
        broker.create_topic("streamed-1")
        has_event(other, Kind.TOPIC_CREATED, topic="streamed-1")
        broker.create_topic("streamed-2")
        with stream(other, event_id, kind=Kind.TOPIC_CREATED.value) as events:
            assert next(events) == ("", None)
            assert [next(events)[1]["topic"] for _ in range(2)] == ["streamed-1", "streamed-2"]


def test_rebalances_and_lag_of_a_group_are_remembered(broker: Broker) -> None:
    with client_of(broker) as http:
        broker.create_topic("read", 2)
        write(broker, "read", [b"x"] * 10)
        consumer = Consumer(
            {"bootstrap.servers": broker.bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe(["read"])
        for message in consumer.consume(4, timeout=SECONDS_MAX):
            consumer.commit(message, asynchronous=False)
        told = has_event(http, Kind.GROUP_REBALANCED, group="readers")
        assert told["text"] == "Group readers rebalanced: generation 1 with 1 member (1 joined)"
        consumer.close()
        assert has_event(http, Kind.GROUP_EMPTIED, group="readers")

        def sampled() -> Any:
            broker.clock.advance(seconds=15)
            found = http.get("/groups/readers/lag/history").raise_for_status().json()
            return found if found["times"] else None

        history = eventually(sampled, "a sample of the group's lag")
        assert history["step"] == 15
        assert history["lag"][-1] == 6 == http.get("/groups/readers/lag").json()["lag"]
        assert history["lag_seconds"][-1] > 0
        error_of(http.get("/groups/nobody/lag/history"), 404)
        error_of(http.get("/groups/readers/lag/history?since=x"), 400)


def test_every_series_is_answered(broker: Broker) -> None:
    with client_of(broker) as http:
        broker.clock.advance(seconds=5)
        history = http.get("/cluster/history", params={"series": ",".join(SERIES)}).raise_for_status().json()
        assert [each["name"] for each in history["series"]] == list(SERIES)


def test_client_sees_events_of_the_topics_that_it_may_describe() -> None:
    """Topics with an ACL are hidden from those that it does not name; of a storm, only their names are."""
    guarded = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    denied = AclBinding(
        ResourceType.TOPIC,
        "secret",
        ResourcePatternType.PREFIXED,
        "User:ANONYMOUS",
        "*",
        AclOperation.DESCRIBE,
        AclPermissionType.DENY,
    )
    with Broker(http=True, settings=guarded) as guarding, client_of(guarding) as http:
        for name in ("open", "secret-plan"):
            guarding.create_topic(name)
            has_event(http, Kind.TOPIC_CREATED, topic=name)
        admin = AdminClient({"bootstrap.servers": guarding.bootstrap})
        for done in admin.create_acls([denied]).values():
            done.result(SECONDS_MAX)
        topics = [each["topic"] for each in events_of(http, kind="topic_created")]
        assert "open" in topics
        assert "secret-plan" not in http.get("/cluster/events").text
        with stream(http, "c:0,1:0", wait_ms=0) as events:
            told = [each for _, each in events if each is not None]
        assert "secret-plan" not in json.dumps(told)
        assert "open" in json.dumps(told)
        for done in admin.create_acls([on_the_cluster(denied)]).values():
            done.result(SECONDS_MAX)
        for path in ("overview", "history", "events", "events/stream"):
            error_of(http.get(f"/cluster/{path}"), 403)


def on_the_cluster(acl: AclBinding) -> AclBinding:
    """The same on the cluster."""
    return AclBinding(
        ResourceType.BROKER,
        "kafka-cluster",
        ResourcePatternType.LITERAL,
        acl.principal,
        acl.host,
        acl.operation,
        acl.permission_type,
    )


# -- a cluster -----------------------------------------------------------------------------------------


def test_death_and_return_of_a_broker_are_seen_by_the_others() -> None:
    settings = {"offsets.topic.replication.factor": 3, "offsets.topic.num.partitions": 6}
    with Cluster(brokers=3, http=True, settings=settings) as cluster:
        cluster.create_topic("orders", partitions=6, replication_factor=3)
        here, dying = cluster.brokers[0], cluster.brokers[2]
        with client_of(here) as http, client_of(cluster.brokers[1]) as other:

            def overview(is_so: Callable[[Any], bool], what: str) -> Any:
                def look() -> Any:
                    found = http.get("/cluster/overview").raise_for_status().json()
                    return found if is_so(found) else None

                return eventually(look, what)

            shown = overview(lambda each: each["status"] == "ok", "all is well")
            assert [each["leaders"] for each in shown["brokers"]] == [2, 2, 2]
            assert [each["missing"] for each in shown["brokers"]] == [None] * 3
            assert {each["lag"] for each in shown["quorum"]["voters"]} <= {0, 1, 2}
            assert lag_over_leaders(cluster, http, other) == 12
            shown = overview(lambda each: each["status"] == "ok", "the offsets topic is replicated")
            led, replicas = shown["brokers"][2]["leaders"], shown["brokers"][2]["replicas"]
            assert replicas == shown["partitions"]["total"] == 12
            with stream(http, kind="broker_fenced,leaders_changed") as events:
                assert next(events) == ("", None)
                dying.kill()
                fenced, moved = next(events)[1], next(events)[1]
            assert (fenced["kind"], fenced["broker"]) == ("broker_fenced", DYING)
            assert (moved["count"], set(moved["topics"])) == (led, {"orders", "__consumer_offsets"})
            assert moved["text"].endswith(f"changed leader: broker {DYING} was fenced")
            shown = overview(
                lambda each: each["partitions"]["under_replicated"] == 12, "replicas are missing"
            )
            assert shown["status"] == "degraded"
            assert {each["code"] for each in shown["problems"]} == {
                "brokers_fenced",
                "partitions_under_replicated",
            }
            down = shown["brokers"][2]
            assert (down["state"], down["version"], down["leaders"]) == ("fenced", None, 0)
            assert "fenced" in down["missing"]
            history = http.get("/cluster/history?series=cpu").json()
            assert [each["broker"] for each in history["missing"]] == [DYING]
            assert set(history["series"][0]["brokers"]) == {"1", "2"}
            for client in (http, other):
                assert has_event(client, Kind.ISR_SHRUNK, broker=DYING)["count"] == 12

            dying.start()
            overview(lambda each: each["status"] == "ok", "all is well again")
            has_event(http, Kind.BROKER_UNFENCED, broker=DYING)
            with client_of(dying) as back:  # what it has not seen itself it has from the others
                has_event(back, Kind.BROKER_FENCED, broker=DYING)
                has_event(back, Kind.NODE_STARTED, broker=1)


def lag_over_leaders(cluster: Cluster, http: httpx.Client, other: httpx.Client) -> int:
    """The sampled lag of a group in a topic with two records in each of its six partitions: its coordinator asks the
    leaders, and every broker answers the same."""
    for number in range(6):
        for _ in range(2):
            record = {"topic": "orders", "partition": number, "value": "eA=="}
            http.post("/produce", json=record).raise_for_status()
    http.post("/groups/readers/offsets", json={"topic": "orders", "to": "earliest"}).raise_for_status()

    def sampled() -> Any:
        cluster.clock.advance(seconds=15)
        found = http.get("/groups/readers/lag/history").raise_for_status().json()
        return found if found["lag"] and found["lag"][-1] is not None else None

    history = eventually(sampled, "a sample of the group's lag")
    assert history["missing"] == []
    assert history["lag_seconds"][-1] >= 15
    there = other.get("/groups/readers/lag/history").raise_for_status().json()
    assert set(history["times"]) <= set(there["times"])
    lag: int = history["lag"][-1]
    return lag
