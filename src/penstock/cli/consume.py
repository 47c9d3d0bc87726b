"""`penstock consume`: records from a place in the log to another, or on and on."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from penstock.base.ids import Offset, TopicPartition
from penstock.cli.formats import Form, writer_of
from penstock.cli.moments import Place, parse_place
from penstock.cli.output import Refused, complain
from penstock.cli.wire import connected
from penstock.client.cluster import Cluster
from penstock.client.consumer import Consumer, ConsumerSettings, Reset
from penstock.client.errors import no_partition
from penstock.client.offsets import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED, list_offsets
from penstock.records import Record

POLL_MS = 60_000
"""A fetch returns when there is something; this is only how often a quiet topic is looked at again here."""


@dataclass(frozen=True)
class Wanted:
    topic: str
    partitions: list[int]
    start: str
    until: str | None
    count: int | None
    follow: bool
    committed: bool


class Bounds(NamedTuple):
    starts: dict[TopicPartition, Offset]
    ends: dict[TopicPartition, Offset]
    """Exclusive; a partition that is not here goes on for ever."""
    until_ms: int | None
    """Records from this time on end a partition too, where `until` was a time that no record had yet."""


def run(server: str, wanted: Wanted, form: Form) -> int:
    form = form._replace(is_terminal=sys.stdout.isatty())
    write = writer_of(form)
    out = sys.stdout.buffer
    with connected(server) as cluster:
        bounds = _bounds(cluster, wanted)
        for partition, records in _read(cluster, wanted, bounds):
            for record in records:
                out.write(write(partition.topic, partition.partition, record))
            out.flush()
    return 0


def _read(cluster: Cluster, wanted: Wanted, bounds: Bounds) -> Iterator[tuple[TopicPartition, list[Record]]]:
    left = wanted.count if wanted.count is not None else float("inf")
    open_ = {
        partition: start
        for partition, start in bounds.starts.items()
        if start < bounds.ends.get(partition, start + 1)
    }
    settings = ConsumerSettings(isolation_level=_isolation(wanted), reset=Reset.EARLIEST)
    consumer = Consumer(cluster, open_, settings, _tell_reset)
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


def _tell_reset(partition: TopicPartition, gone: Offset, offset: Offset) -> None:
    complain(f"offset {gone} of {partition} is gone, going on at {offset}")


def _isolation(wanted: Wanted) -> int:
    return READ_COMMITTED if wanted.committed else READ_UNCOMMITTED


def _bounds(cluster: Cluster, wanted: Wanted) -> Bounds:
    now_ms = cluster.clock.wall_ms()
    start = parse_place(wanted.start, now_ms)
    until = None if wanted.until is None else parse_place(wanted.until, now_ms)
    partitions = _partitions(cluster, wanted)
    firsts = _offsets(cluster, wanted, partitions, EARLIEST)
    lasts = _offsets(cluster, wanted, partitions, LATEST)
    starts = _resolve(cluster, wanted, start, firsts, lasts)
    for partition, offset in starts.items():
        if offset < firsts[partition]:
            complain(f"{partition} begins at {firsts[partition]}, not at {offset}")
            starts[partition] = firsts[partition]
        elif offset > lasts[partition]:
            raise Refused(f"{partition} ends at {lasts[partition]}, before offset {offset}")
    if until is None:
        return Bounds(starts, {} if wanted.follow else lasts, None)
    ends = _resolve(cluster, wanted, until, firsts, lasts)
    if not wanted.follow:
        return Bounds(starts, {each: min(end, lasts[each]) for each, end in ends.items()}, None)
    if until.time_ms is not None:
        ends = {each: end for each, end in ends.items() if end < lasts[each]}
    return Bounds(starts, ends, until.time_ms)


def _partitions(cluster: Cluster, wanted: Wanted) -> list[TopicPartition]:
    topic = cluster.topic(wanted.topic)
    for index in wanted.partitions:
        if index not in topic.partitions:
            raise no_partition(wanted.topic, index, len(topic.partitions))
    chosen = sorted(set(wanted.partitions)) or list(topic.partitions)
    return [TopicPartition(wanted.topic, index) for index in chosen]


def _offsets(
    cluster: Cluster, wanted: Wanted, partitions: list[TopicPartition], time: int
) -> dict[TopicPartition, Offset]:
    found = list_offsets(cluster, dict.fromkeys(partitions, time), isolation_level=_isolation(wanted))
    return {partition: found[partition].offset for partition in partitions}


def _resolve(
    cluster: Cluster,
    wanted: Wanted,
    place: Place,
    firsts: dict[TopicPartition, Offset],
    lasts: dict[TopicPartition, Offset],
) -> dict[TopicPartition, Offset]:
    """The offset that a place has in each partition; the end, for a time that no record has reached."""
    if place.edge is not None:
        return dict(firsts if place.edge == "earliest" else lasts)
    if place.time_ms is not None:
        found = _offsets(cluster, wanted, list(firsts), place.time_ms)
        return {partition: lasts[partition] if each < 0 else each for partition, each in found.items()}
    offset = place.offset
    assert offset is not None  # one of the three is set
    if offset < 0:
        return {partition: max(firsts[partition], last + offset) for partition, last in lasts.items()}
    return dict.fromkeys(firsts, offset)
