"""Searches over HTTP: results, progress, errors before the stream, cancelling, processes that die, other brokers."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from tests.gateway.http.rest import client_of, error_of, producer, write
from tests.worlds import StillWorld

from penstock.base.ids import TopicPartition
from penstock.client.cluster import Cluster as KafkaCluster
from penstock.client.coordinators import ask_leader
from penstock.client.settings import parse_servers
from penstock.gateway.http.protocol.messages import HttpError
from penstock.gateway.search import searches, stream
from penstock.records import Codec, build_batch
from penstock.testing import Broker, Cluster
from penstock.wire import Api, ProducePartition, ProduceRequest, ProduceTopic
from penstock.wire.produce_client import produce_body, read_produce_response
from penstock.wire.request import Request

pytestmark = pytest.mark.xdist_group("http-search")
"""One broker serves them all."""

START_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(http=True) as started:
        started.create_topic("orders", 2, segment_bytes=16_384)
        for number in range(2):
            write(
                started,
                "orders",
                [b'{"n": %d, "p": %d, "user": "u%d"}' % (each, number, each % 10) for each in range(500)],
                partition=number,
                key=b"key-%d" % number,
                headers=[("trace", b"t-%d" % number)],
                timestamps=[START_MS + each * 1000 for each in range(500)],
                **{"compression.type": "zstd" if number else "none", "batch.size": 2000},
            )
        yield started


@pytest.fixture(scope="module")
def http(broker: Broker) -> Iterator[httpx.Client]:
    with client_of(broker) as client:
        yield client


def search(
    http: httpx.Client, topic: str = "orders", **query: Any
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The results and the end of a search. Progress never goes back, and never exceeds the total."""
    query = {
        ("in" if name == "in_" else "from" if name == "from_" else name): value
        for name, value in query.items()
    }
    response = http.get(f"/topics/{topic}/search", params=query)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/x-ndjson"
    lines = [json.loads(line) for line in response.text.splitlines()]
    *others, end = lines
    assert end["type"] == "end"
    searched = [each["bytes"]["searched"] for each in lines if each["type"] != "result"]
    assert searched == sorted(searched)
    assert searched[-1] <= end["bytes"]["total"]
    results = [each for each in others if each["type"] == "result"]
    assert len(results) == end["results"]
    return results, end


def offsets(results: list[dict[str, Any]]) -> set[tuple[int, int]]:
    return {(each["record"]["partition"], each["record"]["offset"]) for each in results}


def test_a_search_finds_records_of_all_partitions_and_says_that_it_is_complete(http: httpx.Client) -> None:
    results, end = search(http, contains='"u7"', limit=1000)
    assert offsets(results) == {(number, each) for number in range(2) for each in range(7, 500, 10)}
    assert end["reason"] == "complete"
    assert end["bytes"]["searched"] == end["bytes"]["total"] > 10_000
    assert "not_searched" not in end
    assert results[0]["record"]["value"] == '{"n": 497, "p": 0, "user": "u7"}'
    assert results[0]["record"]["headers"] == [{"key": "trace", "value": "t-0"}]
    own = [each["record"]["offset"] for each in results if each["record"]["partition"] == 1]
    assert own == sorted(own, reverse=True)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (
            {"regex": '"n": 4[0-9]{2}\\b', "in_": "value", "partition": 1},
            {(1, each) for each in range(400, 500)},
        ),
        ({"where": "value.n == 42"}, {(0, 42), (1, 42)}),
        ({"where": "value.n < 5 && key == 'key-1'"}, {(1, each) for each in range(5)}),
        ({"contains": "t-1", "in_": "headers", "offset": 490}, {(1, each) for each in range(490, 500)}),
        ({"contains": "t-1", "in_": "value"}, set()),
        ({"contains": "key-0", "in_": "key", "offset": 3, "until": 6}, {(0, 3), (0, 4), (0, 5)}),
        ({"contains_hex": b"t-0".hex(), "until": 2}, {(0, 0), (0, 1)}),
        (
            {
                "contains": "user",
                "partition": 0,
                "from_": "2023-11-14T22:13:30Z",
                "to": str(START_MS + 12_000),
            },
            {(0, 10), (0, 11)},
        ),
        ({"contains": "user", "offset": 1_000_000}, set()),
        ({"contains": "nowhere in here"}, set()),
    ],
)
def test_each_condition_and_range(
    http: httpx.Client, query: dict[str, Any], expected: set[tuple[int, int]]
) -> None:
    results, end = search(http, limit=1000, **query)
    assert offsets(results) == expected
    assert end["reason"] == "complete"


def test_the_limit_ends_a_search(http: httpx.Client) -> None:
    results, end = search(http, contains="user", partition=0, limit=3)
    assert [each["record"]["offset"] for each in results] == [499, 498, 497]
    assert end["reason"] == "limit"


def test_values_are_shown_as_decode_says_and_cut_where_they_are_long(
    broker: Broker, http: httpx.Client
) -> None:
    broker.create_topic("long")
    write(broker, "long", [b'{"a": [1]}', b"\xff needle", b"x" * 500_000 + b"needle"])
    results, _ = search(http, "long", contains="a", decode="json", in_="value")
    assert results[-1]["record"]["value"] == {"a": [1]}
    results, _ = search(http, "long", contains="needle")
    assert results[0]["cut"] == {"value": 500_006}
    assert len(results[0]["record"]["value"]) == 64 << 10
    assert results[1]["record"]["value"] == {"base64": "/yBuZWVkbGU="}
    results, _ = search(http, "long", contains="needle", max_field_bytes=5, decode="base64")
    assert results[0]["record"]["value"] == "eHh4eHg="


def test_server_sent_events_for_browsers(http: httpx.Client) -> None:
    response = http.get(
        "/topics/orders/search", params={"contains": '"n": 123,'}, headers={"Accept": "text/event-stream"}
    )
    assert response.headers["content-type"] == "text/event-stream"
    events = [
        dict(line.split(": ", 1) for line in each.splitlines())
        for each in response.text.strip().split("\n\n")
    ]
    assert [each["event"] for each in events if each["event"] != "progress"] == ["result", "result", "end"]
    assert json.loads(events[-1]["data"])["reason"] == "complete"


def test_aborted_and_open_transactions_are_found_only_on_request(broker: Broker, http: httpx.Client) -> None:
    broker.create_topic("paid")
    write(broker, "paid", [b"needle plain"])
    client = producer(broker, **{"transactional.id": "search"})
    client.init_transactions()
    for value, ends in ((b"needle aborted", "abort"), (b"needle committed", "commit"), (b"needle open", "")):
        client.begin_transaction()
        client.produce("paid", value, partition=0)
        client.flush()
        if ends == "abort":
            client.abort_transaction()
        elif ends:
            client.commit_transaction()
    found, _ = search(http, "paid", contains="needle")
    assert [each["record"]["value"] for each in found] == ["needle committed", "needle plain"]
    found, _ = search(http, "paid", contains="needle", isolation="read_uncommitted")
    assert len(found) == 4
    client.abort_transaction()


@pytest.mark.parametrize(
    ("query", "status", "words"),
    [
        ({}, 400, "nothing to search for"),
        ({"regex": "("}, 400, "missing )"),
        ({"where": "value.n >"}, 400, "Syntax error"),
        ({"where": "'x'"}, 400, "expected true or false"),
        ({"contains": "x", "contains_hex": "00"}, 400, "expected one of them"),
        ({"contains_hex": "0"}, 400, "contains_hex"),
        ({"contains": ""}, 400, "at least 1 character"),
        ({"contains": "x", "in": "nowhere"}, 400, "any, key, value, headers"),
        ({"contains": "x", "partition": 9}, 404, "partition"),
        ({"contains": "x", "limit": 100_000}, 400, "limit"),
    ],
)
def test_errors_come_before_the_stream(
    http: httpx.Client, query: dict[str, Any], status: int, words: str
) -> None:
    error = error_of(http.get("/topics/orders/search", params=query), status)
    assert words in error["message"]
    assert "\n" not in error["message"]


def test_an_unknown_topic_is_404(http: httpx.Client) -> None:
    error_of(http.get("/topics/none/search", params={"contains": "x"}), 404)


def test_records_for_which_an_expression_fails_are_counted(http: httpx.Client) -> None:
    results, end = search(http, where="value.missing == 1", partition=0)
    assert not results
    assert end["failed_records"]["count"] == 500
    assert "missing" in end["failed_records"]["example"]


def test_searches_beyond_the_bound_are_refused(http: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searches, "SEARCHES_MAX", 0)
    assert (
        error_of(http.get("/topics/orders/search", params={"contains": "x"}), 429)["code"]
        == "too_many_searches"
    )


def test_one_user_leaves_searches_to_others() -> None:
    made = searches.Searches(cast(Any, SimpleNamespace(world=StillWorld())))
    held = [made.permit("User:alice") for _ in range(searches.SEARCHES_OF_USER_MAX)]
    with pytest.raises(HttpError, match="searches of User:alice are running"):
        made.permit("User:alice")
    made.permit("User:bob").release()
    held[0].release()
    held[0] = made.permit("User:alice")
    for each in held:
        each.release()
    without_login = [made.permit("User:ANONYMOUS") for _ in range(searches.SEARCHES_MAX)]
    with pytest.raises(HttpError, match="running on this node"):
        made.permit("User:bob")
    for each in without_login:
        each.release()
    assert made.running_count == 0


def test_clients_that_leave_and_head_requests_do_not_use_up_the_bound(
    http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searches, "STARTED_MS_MAX", 1)
    for _ in range(2 * searches.SEARCHES_MAX):
        with http.stream("GET", "/topics/orders/search", params={"where": "value.n >= 0"}) as response:
            assert response.status_code == 200
        http.head("/topics/orders/search", params={"contains": "x"})
    results, _ = search(http, contains='"n": 77,')
    assert len(results) == 2


def helper_pids() -> list[int]:
    """Helper processes of the broker, which runs in this process."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                if parent == os.getpid() and b"penstock.server.helper" in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue  # it has ended
    return found


def test_a_search_process_that_is_killed_ends_the_search_with_a_sentence(
    broker: Broker, http: httpx.Client
) -> None:
    broker.create_topic("many")
    write(broker, "many", [b'{"n": %d}' % each for each in range(20_000)])
    with http.stream("GET", "/topics/many/search", params={"where": "value.n < 0"}) as response:
        lines = response.iter_lines()
        assert json.loads(next(lines))["type"] == "progress"
        pids = helper_pids()
        assert pids
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        end = json.loads(list(lines)[-1])
    assert end["reason"] == "failed"
    assert "the process that searched has ended" in end["error"]
    assert end["bytes"]["searched"] < end["bytes"]["total"]
    assert end["not_searched"]
    results, _ = search(http, "many", contains='"n": 19999')
    assert len(results) == 1


# -- a cluster --------------------------------------------------------------------------------------------


def test_partitions_that_other_brokers_lead_are_searched_and_missing_ones_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stream, "ATTEMPTS_MAX", 4)
    with Cluster(3, http=True) as cluster:
        cluster.create_topic("spread", 6, 1)
        first = cluster.nodes[1]
        for number in range(6):
            write(first, "spread", [b"needle %d" % each for each in range(20)], partition=number)
        with client_of(first) as http:
            results, end = search(http, "spread", contains="needle", limit=1000)
            assert offsets(results) == {(number, each) for number in range(6) for each in range(20)}
            assert end["reason"] == "complete"
            assert error_of(http.get("/topics/spread/search", params={"regex": "("}), 400)
            lost = {number for number in range(6) if cluster.leader_of("spread", number) is cluster.nodes[3]}
            assert lost
            cluster.nodes[3].kill()
            results, end = search(http, "spread", contains="needle", limit=1000)
            assert {each["partition"] for each in end["not_searched"]} == lost
            assert offsets(results) == {(each, n) for each in set(range(6)) - lost for n in range(20)}


# -- hostile input ----------------------------------------------------------------------------------------


def test_an_expression_that_takes_all_memory_ends_its_search_alone(
    broker: Broker, http: httpx.Client
) -> None:
    """Eighteen times twice as much as a value of 900 KB."""
    broker.create_topic("hostile")
    write(broker, "hostile", [b"x" * 900_000])
    where = "[value]" + ".map(x, x + x)" * 18 + "[0].contains('y')"
    results, end = search(http, "hostile", where=where)
    assert not results
    assert end["reason"] == "failed" or end["failed_records"]["count"] == 1
    results, _ = search(http, "hostile", contains="xxxx")
    assert len(results) == 1


def test_batches_that_decompress_to_very_much_are_searched_in_bounded_memory(
    broker: Broker, http: httpx.Client
) -> None:
    broker.create_topic("bombs")
    batch = build_batch([(None, b"x" * (20 << 20) + b"needle", START_MS)], codec=Codec.ZSTD)
    assert len(batch) < 100_000
    topics = [ProduceTopic("bombs", [ProducePartition(0, memoryview(batch))])]
    body = ProduceRequest(None, -1, 30_000, topics)
    request = Request(Api.PRODUCE, 9, 11, lambda version: produce_body(version, body), read_produce_response)
    with KafkaCluster(parse_servers(broker.bootstrap)) as cluster:
        for _ in range(3):
            ask_leader(cluster, TopicPartition("bombs", 0), request, lambda _: 0)
    results, end = search(http, "bombs", contains="needle", limit=10)
    assert len(results) == 3, end
    assert results[0]["cut"] == {"value": (20 << 20) + 6}
    assert end["reason"] == "complete"
    results, end = search(http, "bombs", regex="need.e$", limit=2)
    assert len(results) == 2
