"""Records over HTTP, written by Kafka clients in every way that they can."""

import base64
import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import httpx
import pytest
from tests.gateway.http.rest import client_of, error_of, producer, write

from penstock.gateway.http.record_queries import PAGE_RECORDS_MAX
from penstock.gateway.shared.reading import Walk
from penstock.testing import Broker

pytestmark = pytest.mark.xdist_group("http-records")
"""One broker serves them all."""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(http=True) as started:
        yield started


@pytest.fixture(scope="module")
def http(broker: Broker) -> Iterator[httpx.Client]:
    with client_of(broker) as client:
        yield client


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def values(response: httpx.Response) -> list[bytes | None]:
    assert response.status_code == 200, response.text
    return [
        None if each["value"] is None else base64.b64decode(each["value"])
        for each in response.json()["records"]
    ]


def lines(response: httpx.Response) -> list[Any]:
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in response.text.splitlines()]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_record_is_shown_as_it_was_written_whatever_the_codec(
    broker: Broker, http: httpx.Client, codec: str
) -> None:
    topic = f"codec-{codec}"
    broker.create_topic(topic)
    written = [b"value %d" % number * 20 for number in range(50)]
    write(
        broker,
        topic,
        written,
        key=b"\xffkey",
        headers=[("who", b"\x00"), ("none", None)],
        timestamps=[1_000 + number for number in range(50)],
        **{"compression.type": codec},
    )
    page = http.get(f"/topics/{topic}/partitions/0/records").json()
    assert (page["topic"], page["partition"], page["next_offset"], page["end_offset"]) == (topic, 0, 50, 50)
    assert page["records"][7] == {
        "partition": 0,
        "offset": 7,
        "timestamp": 1_007,
        "key": b64(b"\xffkey"),
        "value": b64(written[7]),
        "headers": [{"key": "who", "value": b64(b"\x00")}, {"key": "none", "value": None}],
    }
    assert values(http.get(f"/topics/{topic}/records")) == written


def test_tombstones_and_empty_values_are_distinguished(broker: Broker, http: httpx.Client) -> None:
    broker.create_topic("tombs")
    write(broker, "tombs", [None, b""], key=b"k")
    records = http.get("/topics/tombs/partitions/0/records").json()["records"]
    assert [(each["key"], each["value"]) for each in records] == [(b64(b"k"), None), (b64(b"k"), "")]
    assert "headers" not in records[0]


def test_aborted_and_undecided_records_are_not_shown(broker: Broker, http: httpx.Client) -> None:
    broker.create_topic("txn")
    client = producer(broker, **{"transactional.id": "t"})
    client.init_transactions(10)
    for value, end in ((b"kept", client.commit_transaction), (b"dropped", client.abort_transaction)):
        client.begin_transaction()
        client.produce("txn", value, partition=0)
        client.flush(10)
        end(10)
    client.begin_transaction()
    client.produce("txn", b"open", partition=0)
    client.flush(10)
    url = "/topics/txn/partitions/0/records"
    page = http.get(url)
    assert values(page) == [b"kept"]
    assert page.json()["next_offset"] == page.json()["end_offset"] == 4
    assert [each["value"] for each in lines(http.get(f"{url}.ndjson?decode=text"))] == ["kept"]
    client.commit_transaction(10)
    assert values(http.get(url, params={"offset": 4})) == [b"open"]


# -- ranges ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hundred(broker: Broker) -> str:
    """Partition 0 has a hundred records, one a second; partition 1 has ten, partition 2 none."""
    broker.create_topic("hundred", 3)
    for partition, count in ((0, 100), (1, 10)):
        write(
            broker,
            "hundred",
            [b"%d-%d" % (partition, number) for number in range(count)],
            partition=partition,
            timestamps=[1_700_000_000_000 + number * 1000 for number in range(count)],
            **{"batch.num.messages": 7},
        )
    return "/topics/hundred/partitions/0/records"


@pytest.mark.parametrize(
    ("query", "first", "count"),
    [
        ("", 0, 100),
        ("offset=95", 95, 5),
        ("offset=100", 100, 0),
        ("offset=10&until=13", 10, 3),
        ("offset=10&until=5", 10, 0),
        ("until=5", 0, 5),
        ("until=1000", 0, 100),
        ("from_end=4", 96, 4),
        ("from_end=0", 100, 0),
        ("from_end=1000", 0, 100),
        ("from_end=2&until=10", 8, 2),
        ("from=1700000010000", 10, 90),
        ("from=1700000009001&to=1700000012000", 10, 2),
        ("from=2023-11-14T22:13:30Z&to=2023-11-14T22:13:33%2B00:00", 10, 3),
        ("from=2023-11-14T23:13:30+01:00&limit=1", 10, 1),
        ("from=2023-11-14 22:13:30&limit=1", 10, 1),
        ("from=2100-01-01", 100, 0),
        # What is said twice is all meant.
        ("offset=5&from=1700000010000", 10, 90),
        ("offset=15&from=1700000010000", 15, 85),
        ("offset=1&from_end=5", 95, 5),
        ("offset=98&from_end=5", 98, 2),
        ("from=1700000010000&from_end=50&until=40&to=1700000012000", 10, 2),
        ("until=11&to=1700000012000&offset=10", 10, 1),
        ("to=1999-01-01", 0, 0),
        ("offset=3&limit=2", 3, 2),
    ],
)
def test_range_by_offset_by_time_and_from_the_end(
    http: httpx.Client, hundred: str, query: str, first: int, count: int
) -> None:
    page = http.get(f"{hundred}?{query}").json()
    assert [each["offset"] for each in page["records"]] == list(range(first, first + count))
    assert page["next_offset"] == first + count
    found = lines(http.get(f"{hundred}.ndjson?{query}"))
    assert [each["offset"] for each in found] == list(range(first, first + count))


@pytest.mark.parametrize(
    "query",
    [
        "offset=-1",
        "offset=x",
        "from=soon",
        "from=99999999999999999999",
        "to=1969-12-31",
        "limit=0",
        "max_bytes=0",
        "decode=latin1",
        "format=xlsx",
        "columns=offset,colour",
        "columns=offset,offset",
        "columns=",
        "from=2023-02-29",
        "from=2023-11-14T24:00",
        "start=0:1",
    ],
)
def test_bad_range_is_refused(http: httpx.Client, hundred: str, query: str) -> None:
    error_of(http.get(f"{hundred}?{query}"), 400)


def test_offset_that_is_not_there_is_a_conflict(http: httpx.Client, hundred: str) -> None:
    assert error_of(http.get(f"{hundred}?offset=101"), 409)["code"] == "offset_out_of_range"


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/topics/none/records", 404),
        ("/topics/none/partitions/0/records", 404),
        ("/topics/hundred/partitions/3/records", 404),
        ("/topics/hundred/partitions/x/records", 400),
        ("/topics/hundred/partitions/-1/records", 400),
        ("/topics/hundred/partitions/99999999999/records", 400),
        ("/topics/hundred/records?start=0", 400),
        ("/topics/hundred/records?start=a:b", 400),
        ("/topics/hundred/records?start=0:1,1:1", 400),
    ],
)
def test_place_that_is_not_there_is_refused(http: httpx.Client, hundred: str, path: str, status: int) -> None:
    error_of(http.get(path), status)


@pytest.mark.parametrize("limit", [1, 7, 50, 1000])
def test_pages_of_a_topic_make_up_the_whole(http: httpx.Client, hundred: str, limit: int) -> None:
    found: list[tuple[int, int]] = []
    start: str | None = "0:0"
    while start is not None:
        page = http.get("/topics/hundred/records", params={"limit": limit, "start": start}).json()
        assert len(page["records"]) <= limit
        found += [(each["partition"], each["offset"]) for each in page["records"]]
        start = page["next"]
    assert found == [(0, number) for number in range(100)] + [(1, number) for number in range(10)]


def test_time_applies_to_every_partition(http: httpx.Client, hundred: str) -> None:
    page = http.get("/topics/hundred/records?from=1700000008000&to=1700000010000").json()
    assert [(each["partition"], each["offset"]) for each in page["records"]] == [
        (0, 8),
        (0, 9),
        (1, 8),
        (1, 9),
    ]
    assert page["next"] is None


def test_page_ends_where_its_bytes_do_but_has_a_record(broker: Broker, http: httpx.Client) -> None:
    broker.create_topic("large")
    write(broker, "large", [b"x" * 10_000] * 5)
    url = "/topics/large/partitions/0/records"
    assert len(values(http.get(url, params={"max_bytes": 25_000}))) == 2
    first = http.get(url, params={"max_bytes": 1}).json()
    assert (len(first["records"]), first["next_offset"]) == (1, 1)


@pytest.fixture(scope="module")
def long(broker: Broker) -> str:
    """More than sockets and buffers hold, so that the reader decides how fast it goes."""
    broker.create_topic("long")
    write(broker, "long", [b"%06d" % number + b"x" * 1000 for number in range(12_000)])
    return "/topics/long/records.ndjson"


def test_lines_of_a_long_range_come_in_order_and_whole(http: httpx.Client, long: str) -> None:
    with http.stream("GET", long) as response:
        numbers = [json.loads(line)["offset"] for line in response.iter_lines()]
    assert numbers == list(range(12_000))


def test_client_that_leaves_in_the_middle_affects_no_other(http: httpx.Client, long: str) -> None:
    with http.stream("GET", long) as response:
        next(response.iter_lines())
    assert http.get(long, params={"limit": 1}).status_code == 200


# -- forms ----------------------------------------------------------------------------------------------


def test_values_are_shown_as_text_or_json_on_request(broker: Broker, http: httpx.Client) -> None:
    broker.create_topic("shown")
    documents = [b'{"a": [1, 2.5, "\xc3\xa4"],\n "b": null}', b"plain", b"\xff\xfe", None, b"7", b'{"a":']
    write(broker, "shown", documents, key=b"k\xc3\xa4", headers=[("h", b"text")])
    url = "/topics/shown/partitions/0/records"
    as_json = http.get(url, params={"decode": "json"}).json()["records"]
    assert [each["value"] for each in as_json] == [
        {"a": [1, 2.5, "ä"], "b": None},
        {"text": "plain"},
        {"base64": b64(b"\xff\xfe")},
        None,
        7,
        {"text": '{"a":'},
    ]
    assert as_json[0]["key"] == "kä"
    assert as_json[0]["headers"] == [{"key": "h", "value": "text"}]
    as_text = http.get(url, params={"decode": "text"}).json()["records"]
    assert [each["value"] for each in as_text] == [
        documents[0].decode(),  # type: ignore[union-attr]
        "plain",
        {"base64": b64(b"\xff\xfe")},
        None,
        "7",
        '{"a":',
    ]
    in_lines = lines(http.get(f"{url}.ndjson?decode=json"))
    assert [each["value"] for each in in_lines] == [each["value"] for each in as_json]


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("*/*", "application/json"),
        ("application/x-ndjson", "application/x-ndjson"),
        ("text/html, application/x-ndjson;q=0.5, */*;q=0.1", "application/x-ndjson"),
        ("application/json;q=0.1, application/x-ndjson;q=0.2", "application/x-ndjson"),
    ],
)
def test_accept_chooses_the_form(http: httpx.Client, hundred: str, accept: str, content_type: str) -> None:
    response = http.get(f"{hundred}?limit=1", headers={"Accept": accept})
    assert response.headers["content-type"] == content_type


def test_form_that_there_is_not_is_refused(http: httpx.Client, hundred: str) -> None:
    error_of(http.get(hundred, headers={"Accept": "text/yaml"}), 406)


# -- deleting -------------------------------------------------------------------------------------------


def test_records_before_an_offset_are_deleted(broker: Broker, http: httpx.Client) -> None:
    broker.create_topic("short")
    write(broker, "short", [b"0", b"1", b"2", b"3"])
    url = "/topics/short/partitions/0/records"
    assert http.delete(url, params={"before": 2}).json()["log_start"] == 2
    assert values(http.get(url)) == [b"2", b"3"]
    below = error_of(http.get(url, params={"offset": 1}), 409)
    assert below["code"] == "offset_out_of_range"
    error_of(http.get("/topics/short/records", params={"start": "0:1"}), 409)
    error_of(http.delete(url, params={"before": 5}), 409)
    error_of(http.delete(url), 400)
    assert http.delete(url, params={"before": -1}).json()["log_start"] == 4
    assert values(http.get(url)) == []


# -- many at once -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["records.ndjson", "tail?from=beginning"])
def test_clients_that_do_not_read_have_little_read_for_them(
    broker: Broker, http: httpx.Client, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    topic = f"unread-{path[:4]}"
    broker.create_topic(topic)
    write(broker, topic, [b"x" * 2_000] * 3_000)
    decoded = []
    some = Walk.some

    def counted(walk: Walk, *limit: int) -> Any:
        records = some(walk, *limit)
        decoded.append(len(records))
        return records

    monkeypatch.setattr(Walk, "some", counted)
    host, port = broker.http_url.removeprefix("http://").split(":")
    with ExitStack() as stack:
        for _ in range(10):
            client = stack.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect((host, int(port)))
            client.sendall(f"GET /topics/{topic}/{path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            assert client.recv(12) == b"HTTP/1.1 200"
        # Turns go round: each of them has had as many as this one, but for want of room.
        assert len(lines(http.get(f"/topics/{topic}/records.ndjson"))) == 3_000
    assert 3_000 < sum(decoded) < 3_000 + 10 * 600


# -- fields -----------------------------------------------------------------------------------------------


def test_records_have_the_columns_that_are_asked_for(broker: Broker, http: httpx.Client) -> None:
    broker.create_topic("fields")
    write(broker, "fields", [b"v", None], key=b"k", headers=[("h", b"1")])
    url = "/topics/fields/records"
    assert http.get(f"{url}?columns=key&decode=text").json()["records"] == [{"key": "k"}] * 2
    found = http.get("/topics/fields/partitions/0/records?columns=topic,offset,value&decode=text").json()
    assert found["records"] == [
        {"topic": "fields", "offset": 0, "value": "v"},
        {"topic": "fields", "offset": 1, "value": None},
    ]
    assert lines(http.get(f"{url}.ndjson?columns=headers&decode=text&limit=1")) == [
        {"headers": [{"key": "h", "value": "1"}]}
    ]
    error_of(http.get(f"{url}?columns=keys"), 400)


def test_page_is_never_longer_than_it_may_be_and_says_where_to_go_on(
    broker: Broker, http: httpx.Client
) -> None:
    broker.create_topic("pages-max")
    write(broker, "pages-max", [b""] * (PAGE_RECORDS_MAX + 2))
    page = http.get(f"/topics/pages-max/records?columns=offset&limit={PAGE_RECORDS_MAX + 1}").json()
    assert (len(page["records"]), page["next"]) == (PAGE_RECORDS_MAX, f"0:{PAGE_RECORDS_MAX}")
