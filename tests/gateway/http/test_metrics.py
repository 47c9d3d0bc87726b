"""GET /metrics: numbers that move by exactly what clients did."""

import re
import time
from collections.abc import Iterator
from contextlib import closing
from http.client import BadStatusLine
from itertools import pairwise
from socket import create_connection
from threading import Event, Thread
from typing import Any
from uuid import uuid4

import httpx
import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.gateway.scrapes import Scrape, check, get, scrape

from penstock.client.line import LineClient
from penstock.storage.reader import LogReader
from penstock.testing import Broker

OPEN_METRICS = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(http=True, line=True) as running:
        yield running


@pytest.fixture
def topic(broker: Broker) -> str:
    name = f"orders-{uuid4().hex[:8]}"
    broker.create_topic(name, partitions=3)
    return name


def produce(broker: Broker, topic: str, count: int, **settings: Any) -> list[Any]:
    """Write records, spread over partitions; the errors there were."""
    errors: list[Any] = []
    client = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 2, "log_level": 0, **settings})
    for number in range(count):
        client.produce(
            topic,
            b"value",
            partition=number % 3,
            on_delivery=lambda error, _: errors.append(error) if error is not None else None,
        )
    assert client.flush(30) == 0
    return errors


def consume(client: Consumer, count: int) -> None:
    got = 0
    while got < count:
        message = client.poll(10)
        assert message is not None
        assert message.error() is None
        got += 1


def consumer(broker: Broker, group: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )


def test_messages_in_and_out_are_counted_exactly(broker: Broker, topic: str) -> None:
    before = scrape(broker)
    assert produce(broker, topic, 300) == []
    written = scrape(broker)
    assert written("penstock_topic_messages_in_total", topic=topic) == 300
    assert written("penstock_messages_in_total") - before("penstock_messages_in_total") == 300
    size = written("penstock_topic_log_bytes", topic=topic)
    assert written("penstock_topic_bytes_in_total", topic=topic) == size > 300 * 5
    assert written("penstock_topic_messages_out_total", topic=topic) == 0
    with closing(consumer(broker, uuid4().hex)) as client:
        client.assign([TopicPartition(topic, number, 0) for number in range(3)])
        consume(client, 300)
    read = scrape(broker)
    assert read("penstock_topic_messages_out_total", topic=topic) == 300
    assert read("penstock_topic_bytes_out_total", topic=topic) == size
    assert read("penstock_topic_messages_in_total", topic=topic) == 300
    assert read("penstock_topic_log_end_offsets", topic=topic) == 300
    assert read("penstock_topic_partitions", topic=topic) == 3


def test_a_page_keeps_the_rules_of_its_format(broker: Broker, topic: str) -> None:
    produce(broker, topic, 10)
    check(scrape(broker))
    check(scrape(broker, "?partitions=true"))


def test_open_metrics_is_for_who_asks_for_it(broker: Broker, topic: str) -> None:
    """Prometheus asks for OpenMetrics first, and takes the older format too."""
    produce(broker, topic, 10)
    status, content_type, body = get(broker, "/metrics", OPEN_METRICS)
    assert (status, content_type) == (200, "application/openmetrics-text; version=1.0.0; charset=utf-8")
    page = Scrape(body, is_open=True)
    assert page("penstock_topic_messages_in_total", topic=topic) == 10
    _, content_type, _ = get(broker, "/metrics", "text/plain")
    assert content_type.startswith("text/plain")


def test_requests_are_counted_with_their_time(broker: Broker, topic: str) -> None:
    before = scrape(broker)
    produce(broker, topic, 1)
    after = scrape(broker)
    assert (
        after("penstock_requests_total", api="Produce") - before("penstock_requests_total", api="Produce")
        == 1
    )
    assert after("penstock_request_seconds_count", api="Produce") == after(
        "penstock_requests_total", api="Produce"
    )
    took = after("penstock_request_seconds_sum", api="Produce") - before(
        "penstock_request_seconds_sum", api="Produce"
    )
    synced = after("penstock_fsync_seconds_sum") - before("penstock_fsync_seconds_sum")
    assert took >= synced > 0, "who waits for a sync waits at least as long as the sync takes"
    assert after("penstock_requests_total", api="Metadata") > before(
        "penstock_requests_total", api="Metadata"
    )


def test_a_fetch_that_waits_is_seen_waiting_and_its_time_has_the_wait_in_it(
    broker: Broker, topic: str
) -> None:
    with closing(consumer(broker, uuid4().hex)) as client:
        client.assign([TopicPartition(topic, 0, 0)])
        while scrape(broker)("penstock_waiting", what="fetches") == 0:
            assert client.poll(0.01) is None
        assert scrape(broker)("penstock_waiting", what="requests") >= 1
        before = scrape(broker)
        while (now := scrape(broker))("penstock_requests_total", api="Fetch") == before(
            "penstock_requests_total", api="Fetch"
        ):
            assert client.poll(0.05) is None
        # librdkafka's fetch.wait.max.ms is 500.
        slow = now("penstock_request_seconds_bucket", api="Fetch", le="+Inf") - now(
            "penstock_request_seconds_bucket", api="Fetch", le="0.25"
        )
        was = before("penstock_request_seconds_bucket", api="Fetch", le="+Inf") - before(
            "penstock_request_seconds_bucket", api="Fetch", le="0.25"
        )
        assert slow > was


def test_each_sync_that_a_producer_waits_for_is_in_the_histogram(broker: Broker, topic: str) -> None:
    before = scrape(broker)("penstock_fsync_seconds_count")
    for _ in range(3):
        assert produce(broker, topic, 1, acks="all") == []
    synced = scrape(broker)("penstock_fsync_seconds_count")
    assert synced == before + 3
    assert produce(broker, topic, 3, acks="1") == []
    assert scrape(broker)("penstock_fsync_seconds_count") == synced


def test_an_error_is_counted_under_its_api_and_name(broker: Broker) -> None:
    name = f"small-{uuid4().hex[:8]}"
    broker.create_topic(name, partitions=3, max_message_bytes=100)
    labels = {"api": "Produce", "error": "MESSAGE_TOO_LARGE"}
    before = scrape(broker)("penstock_request_errors_total", **labels)
    client = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    client.produce(name, b"x" * 500, partition=0)
    assert client.flush(30) == 0
    assert scrape(broker)("penstock_request_errors_total", **labels) == before + 1


def test_an_error_of_a_fetch_is_counted(broker: Broker, topic: str) -> None:
    labels = {"api": "Fetch", "error": "OFFSET_OUT_OF_RANGE"}
    before = scrape(broker)("penstock_request_errors_total", **labels)
    client = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "any",
            "auto.offset.reset": "error",
            "log_level": 0,
        }
    )
    with closing(client):
        client.assign([TopicPartition(topic, 0, 12345)])
        message = client.poll(20)
        assert message is not None
        with pytest.raises(KafkaException):
            raise KafkaException(message.error())
    assert scrape(broker)("penstock_request_errors_total", **labels) == before + 1


def test_the_lag_of_a_group_is_what_it_has_not_committed(broker: Broker, topic: str) -> None:
    group = f'odd "group" {uuid4().hex[:8]}'
    produce(broker, topic, 90)
    with closing(consumer(broker, group)) as client:
        at = {0: 30, 1: 10, 2: 0}
        client.commit(
            offsets=[TopicPartition(topic, number, offset) for number, offset in at.items()],
            asynchronous=False,
        )
    assert scrape(broker)("penstock_group_lag", group=group, topic=topic) == 90 - 40
    produce(broker, topic, 6)
    assert scrape(broker)("penstock_group_lag", group=group, topic=topic) == 96 - 40


def test_the_lag_in_seconds_is_the_age_of_the_oldest_record_that_is_not_consumed(
    broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = f"late-{uuid4().hex[:8]}"
    hour_ago_ms = int(time.time() * 1000) - 3_600_000
    client = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(2):
        for minutes in range(10):
            client.produce(topic, b"x", partition=number, timestamp=hour_ago_ms + minutes * 60_000)
    assert client.flush(20) == 0
    lookups = []
    plain = LogReader.record_time
    monkeypatch.setattr(LogReader, "record_time", lambda *args: lookups.append(args[1]) or plain(*args))
    with closing(consumer(broker, group)) as reader:
        reader.commit(offsets=[TopicPartition(topic, 0, 4), TopicPartition(topic, 1, 9)], asynchronous=False)
        age = scrape(broker)("penstock_group_lag_seconds", group=group, topic=topic)
        assert 3_600 - 4 * 60 <= age < 3_600 - 4 * 60 + 100
        scrape(broker)
        assert lookups == [4, 9]  # each is read from the log once
        reader.commit(
            offsets=[TopicPartition(topic, 0, 10), TopicPartition(topic, 1, 10)], asynchronous=False
        )
    assert scrape(broker)("penstock_group_lag_seconds", group=group, topic=topic) == 0


def test_partitions_are_shown_one_by_one_only_on_demand(broker: Broker, topic: str) -> None:
    produce(broker, topic, 9)
    labels = {"topic": topic, "partition": "1"}
    assert not scrape(broker).has("penstock_partition_log_end_offset", **labels)
    page = scrape(broker, "?partitions=true")
    assert page("penstock_partition_log_end_offset", **labels) == 3
    assert page("penstock_partition_messages_in_total", **labels) == 3
    assert page("penstock_partition_high_watermark", **labels) == 3


def test_connections_are_counted_by_door(broker: Broker) -> None:
    before = scrape(broker)
    with LineClient("127.0.0.1", broker.line_port) as client:
        client.produce("line-topic", b"x")
        now = scrape(broker)
        assert now("penstock_connections", door="line") - before("penstock_connections", door="line") == 1
    assert now("penstock_connections_accepted_total", door="http") > 0
    assert now("penstock_connections", door="http") >= 1


def test_a_connection_that_is_one_too_many_is_counted_as_refused() -> None:
    with Broker(http=True, settings={"max.connections.per.ip": 2}) as small:
        address = "127.0.0.1", small.port
        with create_connection(address), create_connection(address), create_connection(address) as third:
            assert third.recv(1) == b""
        page = scrape_patiently(small)
        assert page("penstock_connections_refused_total", door="kafka") == 1
        assert page("penstock_connections_accepted_total", door="kafka") == 2
        assert page("penstock_connections", door="kafka") == 0


def scrape_patiently(broker: Broker) -> Scrape:
    """Until the broker has seen that the connections before are gone, this one is too many as well."""
    for _ in range(1000):
        try:
            page = scrape(broker)
        except (ConnectionError, BadStatusLine):
            continue
        if page("penstock_connections", door="kafka") == 0:
            return page
    raise AssertionError("connections that were closed are still there")


def test_http_and_line_requests_are_counted_by_route_and_command(broker: Broker, topic: str) -> None:
    before = scrape(broker)
    get(broker, "/health/live")
    get(broker, "/nothing/here")
    get(broker, "/nothing/there")
    with LineClient("127.0.0.1", broker.line_port) as client:
        for _ in range(5):
            client.produce(topic, b"x")
    after = scrape(broker)

    def more(name: str, **labels: str) -> float:
        return after(name, **labels) - before(name, **labels)

    live = {"method": "GET", "route": "/health/live", "status": "200"}
    assert more("penstock_http_requests_total", **live) == 1
    assert more("penstock_http_request_seconds_count", method="GET", route="/health/live") == 1
    # What nobody declared is counted together, or a client could fill the page.
    assert more("penstock_http_requests_total", method="-", route="-", status="404") == 2
    assert "/nothing" not in after.text
    assert more("penstock_line_commands_total", command="TOPIC") == 5
    assert more("penstock_line_command_seconds_count", command="TOPIC") == 5


def test_a_route_has_one_histogram_whatever_it_answered(broker: Broker, topic: str) -> None:
    """20 lines for each status of each route would be most of the page."""
    route = {"method": "GET", "route": "/topics/{topic}"}
    before = scrape(broker)
    for name in (topic, topic, "nothing-here"):
        get(broker, f"/topics/{name}")
    after = scrape(broker)
    counts = "penstock_http_request_seconds_count"
    assert after(counts, **route) - before(counts, **route) == 3
    for status, count in (("200", 2), ("404", 1)):
        labels = {**route, "status": status}
        total = "penstock_http_requests_total"
        assert after(total, **labels) - before(total, **labels) == count
    assert not re.search(r"http_request_seconds.*status=", after.text)
    check(after)


def test_what_the_other_doors_read_and_write_counts_as_well(broker: Broker, topic: str) -> None:
    with LineClient("127.0.0.1", broker.line_port) as client:
        for _ in range(4):
            client.produce(topic, b"x", key=b"k")
        page = scrape(broker)
        assert page("penstock_topic_messages_in_total", topic=topic) == 4
        with client.consume(topic, uuid4().hex) as messages:
            for _, message in zip(range(4), messages, strict=False):
                message.ack()
    assert scrape(broker)("penstock_topic_messages_out_total", topic=topic) == 4
    for path in ("records", "records.ndjson", "tail?from=beginning&max_events=4"):
        before = scrape(broker)
        httpx.get(f"{broker.http_url}/topics/{topic}/{path}").raise_for_status()
        after = scrape(broker)
        for name, more in (("messages", 4), ("bytes", 200)):
            series = f"penstock_topic_{name}_out_total"
            assert after(series, topic=topic) >= before(series, topic=topic) + more, path


def test_a_malformed_request_is_counted(broker: Broker) -> None:
    before = scrape(broker)("penstock_requests_unanswerable_total")
    with create_connection(("127.0.0.1", broker.port)) as client:
        client.sendall(b"\x00\x00\x00\x0a" + b"\x7f" * 10)
        assert client.recv(100) == b""
    assert scrape(broker)("penstock_requests_unanswerable_total") == before + 1


def test_the_node_and_its_process_are_described(broker: Broker) -> None:
    page = scrape(broker)
    [(_, labels)] = [key for key in page.series if key[0] == "penstock_build_info"]
    assert dict(labels).keys() == {"version", "python", "cluster", "node"}
    assert page("process_resident_memory_bytes") > 10_000_000
    assert page("process_cpu_seconds_total") > 0
    assert 5 < page("process_open_fds") < page("process_max_fds")
    assert page("process_start_time_seconds") > 1_700_000_000
    assert 0 < page("penstock_disk_usable_bytes") <= page("penstock_disk_bytes")


def test_totals_do_not_shrink_when_a_topic_is_deleted(broker: Broker, topic: str) -> None:
    produce(broker, topic, 30)
    before = scrape(broker)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    [deleted] = admin.delete_topics([topic]).values()
    deleted.result(30)
    after = scrape(broker)
    assert not after.has("penstock_topic_messages_in_total", topic=topic)
    for name in ("penstock_messages_in_total", "penstock_bytes_in_total"):
        assert after(name) == before(name)


def test_scrapes_while_producers_write_see_numbers_that_only_grow(broker: Broker, topic: str) -> None:
    is_over = Event()
    pages: list[Scrape] = []

    def look() -> None:
        while not is_over.is_set():
            pages.append(scrape(broker, "?partitions=true"))

    looker = Thread(target=look)
    looker.start()
    try:
        for _ in range(10):
            assert produce(broker, topic, 200) == []
    finally:
        is_over.set()
        looker.join()
    assert len(pages) > 2
    for page in pages:
        check(page)
    for earlier, later in pairwise(pages):
        for (name, labels), value in earlier.series.items():
            if name.endswith(("_total", "_count", "_bucket", "_sum")):
                assert later.series[name, labels] >= value, name
    assert scrape(broker)("penstock_topic_messages_in_total", topic=topic) == 2000
