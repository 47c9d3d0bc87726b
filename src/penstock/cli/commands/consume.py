"""`penstock consume`: prints records of a topic from one position to another, or without end."""

import sys
from collections.abc import Iterator
from typing import Annotated, NamedTuple

import typer

from penstock.base.ids import Offset, TopicPartition
from penstock.cli.connecting import ClientConfigFile, Isolation, Server, Topic, connected
from penstock.cli.formats import RecordFormat, writer_of
from penstock.cli.output import Refused, complain
from penstock.cli.positions import LogPosition, parse_position
from penstock.client.cluster import Cluster
from penstock.client.consumer import Consumer, ConsumerSettings, Reset
from penstock.client.errors import no_partition
from penstock.client.offsets import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED, list_offsets
from penstock.records import Record

POLL_MS = 60_000
"""How long one poll waits for records."""


def consume(
    topic: Topic,
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", min=0, help="Only this partition; repeatable."),
    ] = None,
    start: Annotated[
        str, typer.Option("--from", "-o", metavar="POSITION", help="Where to start.")
    ] = "earliest",
    until: Annotated[
        str | None, typer.Option("--until", metavar="POSITION", help="Where to stop; exclusive.")
    ] = None,
    count: Annotated[int | None, typer.Option("--count", "-n", min=1, help="Stop after N records.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Continue with new records.")] = False,
    form: Annotated[
        str, typer.Option("--format", metavar="NAME|TEMPLATE", help="How a record is printed.")
    ] = "text",
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-K", help="Print the key too, then this separator.")
    ] = None,
    header_separator: Annotated[
        str | None, typer.Option("--header-separator", help="Print the headers first, then this separator.")
    ] = None,
    null_value: Annotated[
        str | None, typer.Option("--null-value", "-Z", help="Text printed for a null value.")
    ] = None,
    base64: Annotated[
        bool, typer.Option("--base64", help="In JSON: keys and values in base64, even if they are text.")
    ] = False,
    isolation: Annotated[
        Isolation,
        typer.Option("--isolation", help="With committed, skip records of open and aborted transactions."),
    ] = Isolation.UNCOMMITTED,
    server: Server = None,
    client_config: ClientConfigFile = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print records as JSON, as --format json does.")
    ] = False,
) -> None:
    """Read records of a topic.

    Prints a line for each record. Without --follow, stops at the log end of each partition as of the start. A POSITION
    is earliest, latest, an offset (-5: five before the end), a time (2026-01-01T10:00:00Z, @1767225600000) or a time
    ago (-1h).

    Formats: text (the value, and with separators also key and headers), value, raw (values with nothing in
    between), full, json, hex, or a template: %t topic, %p partition, %o offset, %T time in ms, %k key, %v value,
    %h headers, %K and %V lengths, %% itself, and \\n, \\t, \\x41.

    \b
    penstock consume orders
    penstock consume orders --from latest --follow --format full
    penstock consume orders --from -1h --until -30m --format json
    penstock consume orders -p 0 -o 100 -n 10 --format '%o %k=%v'
    """
    name = "json" if as_json else form
    is_terminal = sys.stdout.isatty()
    write = writer_of(
        RecordFormat(name, key_separator, header_separator, null_value, base64, is_terminal=is_terminal)
    )
    level = READ_COMMITTED if isolation is Isolation.COMMITTED else READ_UNCOMMITTED
    out = sys.stdout.buffer
    with connected(server, client_config) as cluster:
        now_ms = cluster.clock.wall_ms()
        first = parse_position(start, now_ms)
        last = None if until is None else parse_position(until, now_ms)
        partitions = _partitions(cluster, topic, partition or [])
        bounds = _bounds(cluster, level, partitions, first, last, follow=follow)
        for (_, number), records in _read(cluster, level, bounds, count):
            for record in records:
                out.write(write(topic, number, record))
            out.flush()


class Bounds(NamedTuple):
    starts: dict[TopicPartition, Offset]
    ends: dict[TopicPartition, Offset]
    """Exclusive; a partition without an entry has no end."""
    until_ms: int | None
    """A record with this timestamp or a later one ends its partition too."""


def _read(
    cluster: Cluster, level: int, bounds: Bounds, count: int | None
) -> Iterator[tuple[TopicPartition, list[Record]]]:
    left = count if count is not None else float("inf")
    open_ = {
        partition: start
        for partition, start in bounds.starts.items()
        if start < bounds.ends.get(partition, start + 1)
    }
    settings = ConsumerSettings(isolation_level=level, reset=Reset.EARLIEST)
    consumer = Consumer(cluster, open_, settings, _report_reset)
    while open_ and left > 0:
        for fetched in consumer.poll(POLL_MS):
            partition, records = fetched.partition, fetched.records
            end = bounds.ends.get(partition)
            is_over = end is not None and fetched.next_offset >= end
            if end is not None:
                records = [each for each in records if each.offset < end]
            if bounds.until_ms is not None:
                kept = [each for each in records if each.timestamp < bounds.until_ms]
                is_over = is_over or len(kept) < len(records)
                records = kept
            if is_over:
                consumer.drop(partition)
                open_.pop(partition, None)
            if left < len(records):
                records = records[: int(left)]
            left -= len(records)
            if records:
                yield partition, records


def _report_reset(partition: TopicPartition, gone: Offset, offset: Offset) -> None:
    complain(f"offset {gone} of {partition} no longer exists; continuing at {offset}")


def _bounds(
    cluster: Cluster,
    level: int,
    partitions: list[TopicPartition],
    start: LogPosition,
    until: LogPosition | None,
    *,
    follow: bool,
) -> Bounds:
    firsts = _offsets(cluster, level, partitions, EARLIEST)
    lasts = _offsets(cluster, level, partitions, LATEST)
    starts = _resolve(cluster, level, start, firsts, lasts)
    for partition, offset in starts.items():
        if offset < firsts[partition]:
            complain(f"{partition} has no offset {offset}; starting at its log start, {firsts[partition]}")
            starts[partition] = firsts[partition]
        elif offset > lasts[partition]:
            raise Refused(f"{partition} has no offset {offset}: its log end is {lasts[partition]}")
    if until is None:
        return Bounds(starts, {} if follow else lasts, None)
    ends = _resolve(cluster, level, until, firsts, lasts)
    if not follow:
        return Bounds(starts, {each: min(end, lasts[each]) for each, end in ends.items()}, None)
    if until.time_ms is not None:
        ends = {each: end for each, end in ends.items() if end < lasts[each]}
    return Bounds(starts, ends, until.time_ms)


def _partitions(cluster: Cluster, topic: str, chosen: list[int]) -> list[TopicPartition]:
    known = cluster.topic(topic).partitions
    for number in chosen:
        if number not in known:
            raise no_partition(topic, number, len(known))
    return [TopicPartition(topic, number) for number in sorted(set(chosen)) or list(known)]


def _offsets(
    cluster: Cluster, level: int, partitions: list[TopicPartition], time: int
) -> dict[TopicPartition, Offset]:
    found = list_offsets(cluster, dict.fromkeys(partitions, time), isolation_level=level)
    return {partition: found[partition].offset for partition in partitions}


def _resolve(
    cluster: Cluster,
    level: int,
    position: LogPosition,
    firsts: dict[TopicPartition, Offset],
    lasts: dict[TopicPartition, Offset],
) -> dict[TopicPartition, Offset]:
    """The offset of a position in each partition; the log end, for a time later than all records."""
    if position.edge is not None:
        return dict(firsts if position.edge == "earliest" else lasts)
    if position.time_ms is not None:
        found = _offsets(cluster, level, list(firsts), position.time_ms)
        return {partition: lasts[partition] if each < 0 else each for partition, each in found.items()}
    offset = position.offset
    assert offset is not None  # one of the three is set
    if offset < 0:
        return {partition: max(firsts[partition], last + offset) for partition, last in lasts.items()}
    return dict.fromkeys(firsts, offset)
