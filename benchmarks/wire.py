"""The codecs written by hand, beside kio's: `python -m benchmarks.wire`.

The least of many short runs, since a busy machine only ever adds. The first row, a call of an empty
function with a slice of a view, is the yardstick: read the others as multiples of it.
"""

import struct
import timeit
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from rich.console import Console
from rich.table import Table

from penstock.wire import (
    KAFKA_RANGES,
    Api,
    FetchResult,
    ProducePrefix,
    api_versions_reply,
    cut_frames,
    fetch_reply,
    parse_fetch,
    parse_header,
    parse_produce,
    produce_reply_one,
    read_request,
    request_frame,
    request_module,
    write_request,
    write_response,
)
from penstock.wire.messages import response_module

RECORDS = b"r" * 120
TOPIC_ID = bytes(range(16))


def least_us(work: Callable[[], object], loops: int = 2000, repeats: int = 60) -> float:
    return min(timeit.repeat(work, number=loops, repeat=repeats)) / loops * 1e6


def produce_body(partitions: int) -> bytes:
    one = struct.pack(">iB", 0, len(RECORDS) + 1) + RECORDS + b"\0"
    return (
        b"\0"
        + struct.pack(">hi", -1, 30_000)
        + b"\2\x0bbench-test"
        + bytes([partitions + 1])
        + one * partitions
        + b"\0\0"
    )


def fetch_body(partitions: int) -> bytes:
    one = struct.pack(">iiqiqi", 0, 3, 1000, -1, -1, 1 << 20) + b"\0"
    head = struct.pack(">iiibii", 500, 1, 1 << 20, 1, 5, 6)
    return head + b"\2" + TOPIC_ID + bytes([partitions + 1]) + one * partitions + b"\0\1\1\0"


def metadata_reply() -> Any:
    module = response_module(Api.METADATA, 12)
    return module.MetadataResponse(
        throttle_time=timedelta(0),
        brokers=(module.MetadataResponseBroker(node_id=1, host="localhost", port=9092, rack=None),),
        cluster_id="cluster",
        controller_id=1,
        topics=(),
    )


def rows() -> list[tuple[str, float]]:
    produce_frame = memoryview(request_frame(Api.PRODUCE, 10, 7, "rdkafka", produce_body(1)))
    produce = produce_frame[4:]
    many = memoryview(produce_body(50))
    at = parse_header(produce).body_at
    prefix = ProducePrefix()
    prefix.learn(produce, parse_header(produce), parse_produce(produce, at, 10))
    fetch, fetch_many = memoryview(fetch_body(1)), memoryview(fetch_body(50))
    megabyte = bytes(1 << 20)
    reply = [(TOPIC_ID, [FetchResult(0, 0, 10, 10, 0, megabyte)])]
    reply_many = [(TOPIC_ID, [FetchResult(0, 0, 10, 10, 0, megabyte)] * 50)]
    metadata = memoryview(
        write_request(
            Api.METADATA,
            12,
            request_module(Api.METADATA, 12).MetadataRequest(
                topics=None, include_topic_authorized_operations=False
            ),
        )
    )
    answered = metadata_reply()
    length = len(produce_frame)

    def nothing() -> None:
        produce_frame[4:]

    produce_1, produce_50 = (
        least_us(lambda: parse_produce(produce, at, 10)),
        least_us(lambda: parse_produce(many, 0, 10), 200),
    )
    fetch_1, fetch_50 = (
        least_us(lambda: parse_fetch(fetch, 0, 16)),
        least_us(lambda: parse_fetch(fetch_many, 0, 16), 200),
    )
    reply_1, reply_50 = (
        least_us(lambda: fetch_reply(16, 7, reply)),
        least_us(lambda: fetch_reply(16, 7, reply_many), 200),
    )
    return [
        ("a call and a slice", least_us(nothing)),
        ("one frame cut", least_us(lambda: cut_frames(produce_frame, 0, length, 1 << 20))),
        ("request header", least_us(lambda: parse_header(produce))),
        ("Produce 10 read, one partition", produce_1),
        ("  each further", (produce_50 - produce_1) / 49),
        ("Produce 10 read again, header included", least_us(lambda: prefix.match(produce))),
        ("Produce 10 answered", least_us(lambda: produce_reply_one(10, 7, "bench-test", 0, 123, 0))),
        ("Fetch 16 read, one partition", fetch_1),
        ("  each further", (fetch_50 - fetch_1) / 49),
        ("Fetch 16 answered, one partition", reply_1),
        ("  each further", (reply_50 - reply_1) / 49),
        ("ApiVersions 4 answered", least_us(lambda: api_versions_reply(KAFKA_RANGES, {}, {}, 4), 200)),
        ("Metadata 12 read through kio", least_us(lambda: read_request(Api.METADATA, 12, metadata))),
        ("Metadata 12 answered through kio", least_us(lambda: write_response(Api.METADATA, 12, answered))),
        ("Fetch 16 read through kio", least_us(lambda: read_request(Api.FETCH, 16, fetch))),
    ]


def main() -> None:
    table = Table("work", "us", title="wire")
    table.columns[1].justify = "right"
    for work, cost_us in rows():
        table.add_row(work, f"{cost_us:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
