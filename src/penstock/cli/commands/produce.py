"""`penstock produce`: sends records from lines, JSON lines or files, or generated ones, and reports the result."""

import os.path
import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import typer

from penstock.base.ids import TopicPartition
from penstock.cli.connecting import (
    ClientConfigFile,
    Compression,
    Server,
    Topic,
    connected,
    input_is_terminal,
    parse_codec,
)
from penstock.cli.output import Refused, print_json, progress
from penstock.cli.positions import parse_time
from penstock.cli.produce_input import (
    LineFormat,
    NewRecord,
    from_lines,
    from_whole_files,
    generated,
    parse_headers,
)
from penstock.client.errors import ClientError
from penstock.client.producer import UNKNOWN_TOPIC_WAIT_MS, Delivery, Producer, ProducerSettings
from penstock.client.sender import ACKS_ALL
from penstock.client.settings import Clock


class InputFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


SIZE_DEFAULT = 100
ANSWER_MS = 50
"""How long to wait for a broker's response before the input is read again."""


def produce(
    topic: Topic,
    inputs: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FILE]...", help="Files of lines; without a file, standard input."),
    ] = None,
    whole_files: Annotated[
        list[str] | None,
        typer.Option("--file", "-F", metavar="FILE", help="Send a whole file as one value; repeatable."),
    ] = None,
    input_format: Annotated[
        InputFormat | None,
        typer.Option("--format", help="A line is text, or a JSON object.  [json with --json, else text]"),
    ] = None,
    key: Annotated[str | None, typer.Option("--key", "-k", help="Key of every record.")] = None,
    key_separator: Annotated[
        str | None,
        typer.Option("--key-separator", "-K", help="Lines begin with the key, then this separator."),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME=VALUE", help="Header of every record; repeatable."),
    ] = None,
    header_separator: Annotated[
        str | None,
        typer.Option(
            "--header-separator",
            help="Lines begin with headers, NAME=VALUE,NAME=VALUE, then this separator.",
        ),
    ] = None,
    null_value: Annotated[
        str | None, typer.Option("--null-value", "-Z", help="Send this value as null, a tombstone.")
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="Partition.  [by key, or random]")
    ] = None,
    timestamp: Annotated[
        str | None,
        typer.Option("--timestamp", metavar="MS|TIME", help="Timestamp of every record.  [when it is sent]"),
    ] = None,
    count: Annotated[int | None, typer.Option("--count", "-n", min=1, help="Stop after N records.")] = None,
    size: Annotated[
        int | None, typer.Option("--size", min=1, help="Generate records with values of N bytes.")
    ] = None,
    rate: Annotated[float | None, typer.Option("--rate", min=0.001, help="Records per second.")] = None,
    acks: Annotated[
        str,
        typer.Option("--acks", metavar="0|1|all", help="Replicas that acknowledge."),
    ] = "all",
    compression: Compression = "none",
    idempotent: Annotated[
        bool | None,
        typer.Option(
            "--idempotent/--no-idempotent", help="Write no record twice; the default with --acks all."
        ),
    ] = None,
    server: Server = None,
    client_config: ClientConfigFile = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Read records as JSON, as `consume --json` prints them, and print the result as JSON.",
        ),
    ] = False,
) -> None:
    """Send records to a topic.

    Records are lines, JSON objects (one per line), whole files, or generated (--size). A line is
    [headers SEPARATOR][key SEPARATOR]value. A JSON line has key, value, headers, partition and timestamp, as
    `consume --json` prints them; keyBase64 and valueBase64 hold bytes that are no text, and a value that is an
    object or a number is sent as JSON. At the end, prints the number of records, the rate, and the offsets.

    With --json both the lines and this result are JSON. With a separator or --format text as well, lines are text, and
    the result is JSON.

    \b
    penstock produce orders < orders.txt
    echo 'customer-7:paid' | penstock produce orders --key-separator : --header source=shop
    penstock produce images --file logo.png --key logo
    penstock produce load --count 100000 --size 512 --rate 5000 --compression lz4
    penstock consume orders --json | penstock produce copy --json
    """
    inputs, whole_files = inputs or [], whole_files or []
    has_separator = key_separator is not None or header_separator is not None
    if input_format is None:
        input_format = InputFormat.JSON if as_json and not has_separator else InputFormat.TEXT
    settings = _settings(acks, compression, idempotent)
    if size is not None and (inputs or whole_files):
        raise Refused("--size generates records, and cannot be used with files")
    if whole_files and inputs:
        raise Refused("expected either files of lines or --file for whole files, not both")
    if input_format is InputFormat.JSON and has_separator:
        raise Refused(
            "--format json cannot be used with separators: a JSON line has fields for key and headers"
        )
    form = LineFormat(
        _separator(key_separator, "--key-separator"),
        _separator(header_separator, "--header-separator"),
        None if null_value is None else _bytes(null_value),
        None if key is None else _bytes(key),
        tuple(each for text in header or () for each in parse_headers(_bytes(text), "--header")),
    )
    is_generated = size is not None or (count is not None and not inputs and input_is_terminal())
    tally = Tally()
    with connected(server, client_config) as cluster:
        started_ms = cluster.clock.now_ms()
        timestamp_ms = None if timestamp is None else _timestamp(timestamp, cluster.clock.wall_ms())
        bytes_each = size or SIZE_DEFAULT

        def total_bytes() -> int:
            """The number of bytes to send; 0 if it is not known."""
            paths = [*whole_files, *(each for each in inputs if each != "-")]
            if paths:
                return sum(os.path.getsize(each) for each in paths)
            return (count or 0) * bytes_each if is_generated else 0

        with progress("producing", total_bytes) as advance:

            def delivered(delivery: Delivery) -> None:
                tally.add(delivery)
                advance(delivery.record_bytes)

            producer = Producer(cluster, settings, delivered)
            records: Iterator[NewRecord | None]
            if whole_files:
                records = from_whole_files(whole_files, form)
            elif is_generated:
                records = generated(bytes_each, form, random.Random())
            else:
                is_json = input_format is InputFormat.JSON
                records = from_lines(inputs, form, as_json=is_json, idle_ms=lambda: producer.due_ms)
            try:
                # An error is reported before the first line is typed.
                cluster.topic(topic, create=True, wait_ms=UNKNOWN_TOPIC_WAIT_MS)
                for record in _paced(producer, cluster.clock, records, rate, count):
                    producer.send(
                        topic,
                        record.key,
                        record.value,
                        partition=partition if record.partition is None else record.partition,
                        timestamp=timestamp_ms if record.timestamp is None else record.timestamp,
                        headers=record.headers,
                    )
                producer.flush()
            except (KeyboardInterrupt, ClientError, Refused, OSError):
                with suppress(ClientError):
                    producer.flush()  # records already read are sent; a second Ctrl-C ends that too
                if tally.records:
                    _report(topic, tally, cluster.clock.now_ms() - started_ms, as_json)
                raise
        _report(topic, tally, cluster.clock.now_ms() - started_ms, as_json)


class Range:
    """Offsets of the delivered records of a partition, as far as the broker reports them."""

    def __init__(self) -> None:
        self.records = 0
        self.first: int | None = None
        self.last: int | None = None

    def add(self, delivery: Delivery) -> None:
        self.records += delivery.records
        if delivery.base_offset >= 0:
            last = delivery.base_offset + delivery.records - 1
            self.first = delivery.base_offset if self.first is None else min(self.first, delivery.base_offset)
            self.last = last if self.last is None else max(self.last, last)


@dataclass
class Tally:
    records: int = 0
    record_bytes: int = 0

    def __post_init__(self) -> None:
        self.partitions: dict[TopicPartition, Range] = {}

    def add(self, delivery: Delivery) -> None:
        self.records += delivery.records
        self.record_bytes += delivery.record_bytes
        self.partitions.setdefault(delivery.partition, Range()).add(delivery)


def _paced(
    producer: Producer,
    clock: Clock,
    records: Iterator[NewRecord | None],
    rate: float | None,
    count: int | None,
) -> Iterator[NewRecord]:
    """At most `count` records, `rate` of them in a second. The producer works while the input has none."""
    started_ms, sent = clock.now_ms(), 0
    for record in records:
        if record is None:
            producer.poll(ANSWER_MS)
            continue
        if rate is not None:
            producer.work(started_ms + sent * 1000 / rate - clock.now_ms())
        yield record
        sent += 1
        if sent == count:
            break


def _settings(acks: str, compression: str, idempotent: bool | None) -> ProducerSettings:
    replicas = {"all": ACKS_ALL, "-1": ACKS_ALL, "0": 0, "1": 1}.get(acks)
    if replicas is None:
        raise Refused(f"--acks is {acks!r}, expected 0, 1 or all")
    codec = parse_codec(compression)
    is_idempotent = replicas == ACKS_ALL if idempotent is None else idempotent
    if is_idempotent and replicas != ACKS_ALL:
        raise Refused(f"--idempotent needs --acks all, and --acks is {acks}")
    return ProducerSettings(acks=replicas, is_idempotent=is_idempotent, codec=codec)


def _separator(text: str | None, option: str) -> bytes | None:
    if text is None:
        return None
    separator = _bytes(text.replace("\\t", "\t"))
    if not separator:
        raise Refused(f"{option} is empty, expected at least one character")
    return separator


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _timestamp(text: str, now_ms: int) -> int:
    time_ms = int(text) if text.isascii() and text.isdigit() else parse_time(text, now_ms)
    if time_ms is None or time_ms >= 2**63:
        raise Refused(f"--timestamp is {text!r}, expected milliseconds since 1970 or 2026-01-01T10:00:00Z")
    return time_ms


def _report(topic: str, tally: Tally, elapsed_ms: float, as_json: bool) -> None:
    seconds = max(elapsed_ms, 0.001) / 1000
    partitions = sorted(tally.partitions.items())
    if as_json:
        rows = [
            {
                "partition": where.partition,
                "records": each.records,
                "firstOffset": each.first,
                "lastOffset": each.last,
            }
            for where, each in partitions
        ]
        print_json(
            {
                "topic": topic,
                "records": tally.records,
                "bytes": tally.record_bytes,
                "seconds": round(seconds, 3),
                "recordsPerSecond": round(tally.records / seconds, 1),
                "bytesPerSecond": round(tally.record_bytes / seconds, 1),
                "partitions": rows,
            }
        )
        return
    records = "1 record" if tally.records == 1 else f"{tally.records:,} records"
    print(
        f"produced {records}, {tally.record_bytes:,} bytes, to {topic} in {seconds:.2f} s: "
        f"{tally.records / seconds:,.0f} records/s, {tally.record_bytes / seconds / 1e6:,.2f} MB/s"
    )
    for where, each in partitions:
        if each.first is not None:
            print(f"{where}: offsets {each.first} to {each.last}")
