"""What a page of messages needs of the API: records newest first, one record, its bytes, copies, CSV."""

import base64
import csv
import io
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from tests.gateway.http.rest import client_of, error_of, producer, write

from penstock.gateway.shared import single_record
from penstock.gateway.shared.fair_queue import FairQueue
from penstock.gateway.shared.reading import RECORDS_A_SLICE
from penstock.testing import Broker, Cluster

pytestmark = pytest.mark.xdist_group("http-messages")

START = 1_700_000_000_000


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


def pages(http: httpx.Client, topic: str, **query: Any) -> list[tuple[int, int]]:
    """Partition and offset of all records, page after page."""
    found: list[tuple[int, int]] = []
    start = None
    for _ in range(1000):
        asked = query if start is None else {**query, "start": start}
        page = http.get(f"/topics/{topic}/records", params=asked)
        assert page.status_code == 200, page.text
        found += [(each["partition"], each["offset"]) for each in page.json()["records"]]
        start = page.json()["next"]
        if start is None:
            return found
    raise AssertionError("the pages do not end")


@pytest.fixture(scope="module")
def spread(broker: Broker) -> str:
    """Three partitions: one with a record a second, one with two a second, one without any."""
    broker.create_topic("spread", 3)
    for partition, step_ms, count in ((0, 1000, 20), (1, 500, 40)):
        write(
            broker,
            "spread",
            [b"%d-%d" % (partition, number) for number in range(count)],
            partition=partition,
            timestamps=[START + number * step_ms for number in range(count)],
            **{"batch.num.messages": 3},
        )
    return "spread"


def in_order(newest_first: bool) -> list[tuple[int, int]]:
    rows = [(START + n * 1000, 0, n) for n in range(20)] + [(START + n * 500, 1, n) for n in range(40)]
    sign = -1 if newest_first else 1
    return [row[1:] for row in sorted(rows, key=lambda row: (sign * row[0], row[1], sign * row[2]))]


@pytest.mark.parametrize("limit", [1, 7, 1000])
@pytest.mark.parametrize("order", ["newest", "oldest"])
def test_partitions_are_merged_by_time_and_paged_both_ways(
    http: httpx.Client, spread: str, order: str, limit: int
) -> None:
    assert pages(http, spread, order=order, limit=limit) == in_order(order == "newest")


def test_order_keeps_to_the_range_that_is_asked_for(http: httpx.Client, spread: str) -> None:
    assert pages(http, spread, order="newest", partitions="1", until=5) == [(1, n) for n in (4, 3, 2, 1, 0)]
    assert pages(http, spread, order="oldest", **{"from": START + 18_500}) == [
        (1, 37),
        (0, 19),
        (1, 38),
        (1, 39),
    ]
    assert pages(http, spread, order="newest", offset=38) == [(1, 39), (1, 38)]
    assert pages(http, spread, order="newest", ranges="0:3-5,1:0-1") == [(0, 4), (0, 3), (1, 0)]
    assert pages(http, spread, ranges="1:39-99,0:19-20") == [(0, 19), (1, 39)]
    assert pages(http, spread, order="newest", partitions="2") == []


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ({"order": "sideways"}, 400),
        ({"order": "newest", "format": "ndjson"}, 400),
        ({"order": "newest", "start": "0:x"}, 400),
        ({"partitions": "3"}, 404),
        ({"partitions": "0", "ranges": "0:1-2"}, 400),
        ({"ranges": "0:1-2,0:4-5"}, 400),
        ({"ranges": "0:1"}, 400),
        ({"max_field_bytes": "0"}, 400),
        ({"max_field_bytes": "9", "format": "parquet"}, 400),
    ],
)
def test_bad_order_is_refused(http: httpx.Client, spread: str, query: dict[str, str], status: int) -> None:
    error_of(http.get(f"/topics/{spread}/records", params=query), status)


def test_newest_records_behind_markers_and_aborted_ones_are_found(broker: Broker, http: httpx.Client) -> None:
    broker.create_topic("behind", 1)
    write(broker, "behind", [b"kept"])
    client = producer(broker, **{"transactional.id": "behind"})
    client.init_transactions(10)
    for _ in range(30):
        client.begin_transaction()
        client.produce("behind", b"dropped", partition=0)
        client.flush(10)
        client.abort_transaction(10)
    page = http.get("/topics/behind/records", params={"order": "newest", "decode": "text", "limit": 5}).json()
    assert [each["value"] for each in page["records"]] == ["kept"]
    assert page["next"] is None


def test_long_values_are_cut_in_lists_and_whole_when_asked_for(broker: Broker, http: httpx.Client) -> None:
    broker.create_topic("long", 1)
    value = bytes(range(256)) * 1000
    write(broker, "long", [value], key=b"k" * 100)
    [record] = http.get("/topics/long/records", params={"order": "newest", "max_field_bytes": 50}).json()[
        "records"
    ]
    assert record["cut"] == {"key": 100, "value": len(value)}
    assert record["value"] == b64(value[:50])
    assert "cut" not in http.get("/topics/long/records").json()["records"][0]
    raw = http.get("/topics/long/partitions/0/records/0/value")
    assert raw.content == value
    assert raw.headers["content-type"] == "application/octet-stream"
    assert raw.headers["content-disposition"] == 'attachment; filename="long-0-0.value"'
    assert raw.headers["x-content-type-options"] == "nosniff"
    assert http.get("/topics/long/partitions/0/records/0/key").content == b"k" * 100


def test_one_record_tells_what_its_batch_does(broker: Broker, http: httpx.Client) -> None:
    broker.create_topic("one", 1)
    write(
        broker,
        "one",
        [b"a" * 100, b"b" * 100],
        key=b"\xff",
        headers=[("h", None), ("g", b"\xfe")],
        timestamps=[START, START + 1],
        **{"compression.type": "gzip", "enable.idempotence": True},
    )
    record = http.get("/topics/one/partitions/0/records/1").json()
    batch = record.pop("batch")
    assert record == {
        "topic": "one",
        "partition": 0,
        "offset": 1,
        "timestamp": START + 1,
        "timestamp_type": "CreateTime",
        "key": b64(b"\xff"),
        "value": b64(b"b" * 100),
        "headers": [{"key": "h", "value": None}, {"key": "g", "value": b64(b"\xfe")}],
        "cut": {},
        "sizes": {"key": 1, "value": 100, "headers": 3},
    }
    assert (batch["compression"], batch["is_transactional"]) == ("gzip", False)
    assert batch["producer_id"] >= 0
    assert batch["base_offset"] + (batch["sequence"] - 0) == 1


def test_offsets_without_a_record_say_why(broker: Broker, http: httpx.Client) -> None:
    broker.create_topic("why", 1)
    client = producer(broker, **{"transactional.id": "why"})
    client.init_transactions(10)
    client.begin_transaction()
    client.produce("why", b"dropped", partition=0)
    client.flush(10)
    client.abort_transaction(10)
    write(broker, "why", [b"kept", None])
    for offset, word in ((0, "aborted"), (1, "marker"), (9, "not written")):
        error = error_of(http.get(f"/topics/why/partitions/0/records/{offset}"), 404)
        assert error["code"] == "no_such_record"
        assert word in error["message"]
    http.delete("/topics/why/partitions/0/records", params={"before": 2}).raise_for_status()
    assert "deleted" in error_of(http.get("/topics/why/partitions/0/records/0"), 404)["message"]
    assert error_of(http.get("/topics/why/partitions/0/records/3/value"), 404)["code"] == "no_value"
    assert error_of(http.get("/topics/why/partitions/0/records/2/key"), 404)["code"] == "no_key"
    error_of(http.get("/topics/why/partitions/0/records/x"), 400)
    error_of(http.get("/topics/why/partitions/5/records/0"), 404)


# -- CSV --------------------------------------------------------------------------------------------------


def test_csv_has_what_was_written(broker: Broker, http: httpx.Client) -> None:
    broker.create_topic("sheet", 1)
    values = [b'say "hi", twice\r\nplease', "é\u202e".encode(), b"", None, b"\xff\x00", b"=1+1"]
    write(broker, "sheet", values, headers=[("h", b"1")], timestamps=[START] * len(values))
    response = http.get("/topics/sheet/records.csv", params={"decode": "text"})
    assert response.headers["content-type"].startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(response.content.decode(), newline="")))
    assert [row["value"] for row in rows] == [
        'say "hi", twice\r\nplease',
        "é\u202e",
        "",
        "",
        json.dumps({"base64": b64(b"\xff\x00")}, separators=(",", ":")),
        "=1+1",
    ]
    assert rows[0]["offset"] == "0"
    assert json.loads(rows[0]["headers"]) == [{"key": "h", "value": "1"}]
    lines = response.content.split(b"\r\n")
    assert b'2,1700000000000,,"",' in lines[4]
    assert b'3,1700000000000,,,"' in lines[5], "a tombstone is told apart from an empty value"
    asked = {"format": "csv", "columns": "offset,value", "ranges": "0:5-6"}
    assert http.get("/topics/sheet/records", params=asked).content == (
        b'offset,value\r\n5,"%s"\r\n' % b64(b"=1+1").encode()
    )


# -- writing ----------------------------------------------------------------------------------------------


def test_timestamp_of_a_new_record_is_the_producers(broker: Broker, http: httpx.Client) -> None:
    broker.create_topic("timed", 1)
    far = 10**15 - 1
    one = {"topic": "timed", "value": None, "timestamp": START}
    assert http.post("/produce", json=one).json()["offset"] == 0
    rows = http.post(
        "/produce", json=[one, {**one, "timestamp": far}, {**one, "timestamp": START + 5}]
    ).json()
    assert [row.get("error", {}).get("code") for row in rows] == [None, "invalid_timestamp", None]
    assert error_of(http.post("/produce", json={**one, "timestamp": far}), 409)["code"] == "invalid_timestamp"
    error_of(http.post("/produce", json={**one, "timestamp": -1}), 400)
    times = [each["timestamp"] for each in http.get("/topics/timed/records").json()["records"]]
    assert times == [START, START, START + 5]


def test_copies_have_the_same_bytes(broker: Broker, http: httpx.Client) -> None:
    broker.create_topic("source", 2)
    broker.create_topic("target", 3)
    write(broker, "source", [b"\xff\x00", None], key=b"\xfe", headers=[("h", b"\xfd"), ("h", None)])
    write(broker, "source", [b"x" * 900_000], partition=1, timestamps=[START])
    records = [{"partition": 1, "offset": 0}, {"partition": 0, "offset": 1}, {"partition": 0, "offset": 0}]
    body = {"to": "target", "records": records, "partition": 2, "keep_timestamps": True}
    answer = http.post("/topics/source/records/copy", json=body).json()
    assert (answer["topic"], answer["copied"]) == ("target", 3)
    assert [(row["partition"], row["offset"]) for row in answer["results"]] == [(2, 0), (2, 1), (2, 2)]
    copies = http.get("/topics/target/partitions/2/records").json()["records"]
    originals = [
        http.get(f"/topics/source/partitions/{each['partition']}/records/{each['offset']}").json()
        for each in records
    ]
    for copy, original in zip(copies, originals, strict=True):
        for name in ("key", "value", "timestamp"):
            assert copy[name] == original[name]
        assert copy.get("headers", []) == original["headers"]


def test_what_cannot_be_copied_has_an_error_and_the_rest_is_copied(
    broker: Broker, http: httpx.Client
) -> None:
    broker.create_topic("some", 1)
    broker.create_topic("keyed", 1, **{"cleanup.policy": "compact"})
    write(broker, "some", [b"without"])
    write(broker, "some", [b"with"], key=b"k")
    http.post(
        "/produce", json={"topic": "some", "key": b64(b"i"), "value": None, "idempotency_key": "once"}
    ).raise_for_status()
    records = [{"partition": 0, "offset": each} for each in (0, 1, 2, 7)]
    answer = http.post("/topics/some/records/copy", json={"to": "keyed", "records": records}).json()
    assert answer["copied"] == 2
    codes = [row.get("error", {}).get("code") for row in answer["results"]]
    assert codes == ["invalid_record", None, None, "offset_out_of_range"]
    assert [each.get("headers") for each in http.get("/topics/keyed/records").json()["records"]] == [
        None,
        None,
    ]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"to": "target", "records": []}, 400),
        ({"to": "no such topic!", "records": [{"partition": 0, "offset": 0}]}, 400),
        ({"to": "target", "records": [{"partition": 0, "offset": -1}]}, 400),
        ({"to": "target", "records": [{"partition": 0, "offset": 0}] * 1001}, 400),
        ({"records": [{"partition": 0, "offset": 0}]}, 400),
    ],
)
def test_bad_copy_is_refused(http: httpx.Client, spread: str, body: Any, status: int) -> None:
    error_of(http.post(f"/topics/{spread}/records/copy", json=body), status)


# -- a cluster --------------------------------------------------------------------------------------------


def test_any_node_of_a_cluster_shows_all_partitions() -> None:
    with Cluster(3, http=True) as cluster:
        cluster.create_topic("orders", 3)
        first = cluster.brokers[0]
        for partition in range(3):
            write(
                first,
                "orders",
                [b"%d" % number for number in range(10)],
                partition=partition,
                timestamps=[START + number * 3 + partition for number in range(10)],
            )
        merged = [(number % 3, number // 3) for number in range(29, -1, -1)]
        for broker in cluster.brokers:
            with client_of(broker) as http:
                assert pages(http, "orders", order="newest", limit=7) == merged
                assert pages(http, "orders", order="oldest", limit=7) == merged[::-1]
                for partition in range(3):
                    url = f"/topics/orders/partitions/{partition}/records/4"
                    assert http.get(url, params={"decode": "text"}).json()["value"] == "4"
                    assert http.get(f"{url}/value").content == b"4"
                    error_of(http.get(f"/topics/orders/partitions/{partition}/records/99"), 404)
        with client_of(first) as http:
            records = [{"partition": each, "offset": 0} for each in range(3)]
            body = {"to": "orders", "records": records, "partition": 1, "keep_timestamps": True}
            assert http.post("/topics/orders/records/copy", json=body).json()["copied"] == 3
            times = [
                each["timestamp"]
                for each in http.get("/topics/orders/partitions/1/records?offset=10").json()["records"]
            ]
            assert times == [START, START + 1, START + 2]


def test_a_large_batch_is_decoded_in_slices_and_once_for_all_its_records(
    broker: Broker, http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decoding a batch of 300,000 records takes a second, in which nobody else would be served."""
    broker.create_topic("packed", 1)
    broker.create_topic("unpacked", 1)
    count = 3000
    write(broker, "packed", [b"%d" % number for number in range(count)], **{"linger.ms": 2000})
    batch = http.get("/topics/packed/partitions/0/records/0").json()["batch"]
    assert batch["records"] == count
    read, slices = [], []
    decode, wait = single_record.shown_batches, FairQueue.next
    monkeypatch.setattr(single_record, "shown_batches", lambda *given: (read.append(1), decode(*given))[1])
    monkeypatch.setattr(FairQueue, "next", lambda queue: (slices.append(1), wait(queue))[1])
    last = http.get(f"/topics/packed/partitions/0/records/{count - 1}?decode=text").json()
    assert last["value"] == str(count - 1)
    assert len(slices) >= count // RECORDS_A_SLICE - 1
    read.clear()
    offsets = [count - 1, *range(0, count, 30), 7]
    body = {"to": "unpacked", "records": [{"partition": 0, "offset": each} for each in offsets]}
    assert http.post("/topics/packed/records/copy", json=body).json()["copied"] == len(offsets)
    assert len(read) == 1
    copies = http.get("/topics/unpacked/partitions/0/records?decode=text").json()["records"]
    assert [each["value"] for each in copies] == [str(each) for each in offsets]
