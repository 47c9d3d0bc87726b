"""The hot path, row by row: a topic, a load, and what is made of the measurement.

Produce is sent with acks=1 unless the row is about syncing. A round of a Produce row has a topic of its own, which is
deleted after it: the next round's files then lie in the pages that this one gave back, and no figure has
the first touch of a page in it. Fetch rows read one topic again and again.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.broker.frames import (
    FETCH_ERROR_AT,
    KB,
    MB,
    batch_of,
    fetch_frame,
    one_record,
    produce_error_at,
    produce_frame,
    records_in,
)
from benchmarks.broker.load import Load, Measured
from benchmarks.broker.members import Joined

SEGMENT_BYTES = 64 * MB
TOPIC_CONFIGS = {"segment.bytes": str(SEGMENT_BYTES), "file.delete.delay.ms": "0"}
FETCHED_BATCH_BYTES, FETCHED_BATCHES = 128 * KB, 256
SYNC_SECONDS = 2.0


class Line(NamedTuple):
    """One figure of a row, as the table has it."""

    key: str
    work: str
    unit: str
    yardstick: str = "floor"
    more_is_better: bool = False


class Topic(NamedTuple):
    name: str
    id: bytes
    members: tuple[Joined, ...] = ()
    """Of the groups that read it, where the row is about groups."""


class Company(NamedTuple):
    """The groups that a row needs, all of the same size, on all partitions of its topic."""

    protocol: str
    groups: int
    members: int


class HotRow(NamedTuple):
    name: str
    lines: Sequence[Line]
    load: Callable[[Topic, float], Load]
    """The load for a topic, scaled."""
    figures: Callable[[Measured], Mapping[str, float]]
    partitions: int = 1
    fill: Callable[[Topic], Sequence[bytes]] | None = None
    """Requests that put records into the topic first; then it is used for all rounds."""
    kafka_configs: Mapping[str, str] = {}
    """What the peer needs to do the same work."""
    company: Company | None = None
    raw: Callable[[Path, float], float] | None = None
    """The yardstick, where it is not the floor."""


def hot_rows() -> list[HotRow]:
    return [
        _one_record("produce-8", "one-record Produce, 8 connections", 8, 1),
        _one_record("produce-64", "one-record Produce, 64 connections", 64, 1),
        _one_record("produce-pipelined", "one-record Produce, 16 connections x 8 in flight", 16, 8),
        _batches("produce-16k", "Produce of 16 KB batches", 16 * KB, 256 * MB, 4, 8),
        _batches("produce-128k", "Produce of 128 KB batches", 128 * KB, 512 * MB, 4, 4),
        _batches("produce-1m", "Produce of 1 MB batches", MB, 512 * MB, 4, 2),
        _big_fetch("fetch-1m", "Fetch of 1 MB responses"),
        *(_poll(f"poll-{count}", count, 0) for count in (1, 10, 100)),
        *(_poll(f"little-{count}", count, 1) for count in (1, 10, 100)),
        *(_synced(f"fsync-{count}", count) for count in (1, 8, 64)),
    ]


# -- Produce ------------------------------------------------------------------------------------------


def _one_record(name: str, work: str, connections: int, in_flight: int) -> HotRow:
    def load(topic: Topic, scale: float) -> Load:
        frame = produce_frame(topic.name, [0], one_record())
        return Load(
            rings=[[frame]],
            connections=connections,
            in_flight=in_flight,
            requests=int(40_000 * scale),
            requests_warm=int(4_000 * scale),
            error_at=produce_error_at(topic.name),
        )

    return HotRow(name, [Line(name, work, "us")], load, lambda measured: {name: us_each(measured)})


def _batches(name: str, work: str, batch_bytes: int, total: int, connections: int, in_flight: int) -> HotRow:
    def load(topic: Topic, scale: float) -> Load:
        frame = produce_frame(topic.name, [0], batch_of(batch_bytes))
        return Load(
            rings=[[frame]],
            connections=connections,
            in_flight=in_flight,
            requests=max(8, int(total * scale) // batch_bytes),
            requests_warm=max(4, int(total * scale) // batch_bytes // 10),
            error_at=produce_error_at(topic.name),
        )

    return HotRow(
        name,
        _volume_lines(name, work),
        load,
        lambda measured: _volume(name, measured, measured.request_bytes),
    )


def _synced(name: str, producers: int) -> HotRow:
    """Acknowledged when it is on the disk. Penstock syncs before it acknowledges acks=all, as it is the only replica;
    Kafka does where the topic says so."""

    def load(topic: Topic, scale: float) -> Load:
        return Load(
            rings=[[produce_frame(topic.name, [0], one_record(), acks=-1)]],
            connections=producers,
            in_flight=1,
            requests=10**9,
            requests_warm=producers * 2,
            error_at=produce_error_at(topic.name),
            seconds_max=SYNC_SECONDS * scale + 0.1,
        )

    line = Line(
        name,
        f"fsync before ack, {producers} producer{'s' * (producers > 1)}",
        "msg/s",
        yardstick="one fsync per message",
        more_is_better=True,
    )
    return HotRow(
        name,
        [line],
        load,
        lambda measured: {name: measured.requests / measured.seconds},
        kafka_configs={"flush.messages": "1"},
        raw=_raw_syncs,
    )


def _raw_syncs(directory: Path, scale: float) -> float:
    """Messages a second when each is written and synced before the next: no server, no group."""
    batch = one_record()
    path = directory / "raw-syncs"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        count = 0
        started = time.perf_counter()
        while time.perf_counter() - started < SYNC_SECONDS * scale + 0.1:
            os.write(descriptor, batch)
            os.fdatasync(descriptor)
            count += 1
        return count / (time.perf_counter() - started)
    finally:
        os.close(descriptor)
        path.unlink()


# -- Fetch --------------------------------------------------------------------------------------------


def _big_fetch(name: str, work: str) -> HotRow:
    batch = batch_of(FETCHED_BATCH_BYTES)
    step = MB // FETCHED_BATCH_BYTES

    def fill(topic: Topic) -> Sequence[bytes]:
        return [produce_frame(topic.name, [0], batch)] * FETCHED_BATCHES

    def load(topic: Topic, scale: float) -> Load:
        offsets = range(0, FETCHED_BATCHES * records_in(batch), step * records_in(batch))
        return Load(
            rings=[[fetch_frame(topic.id, [offset]) for offset in offsets]],
            connections=4,
            in_flight=1,
            requests=max(8, int(1000 * scale)),
            requests_warm=max(4, int(100 * scale)),
            error_at=FETCH_ERROR_AT,
            reply_bytes_min=MB,
        )

    return HotRow(
        name,
        _volume_lines(name, work),
        load,
        lambda measured: _volume(name, measured, measured.reply_bytes),
        fill=fill,
    )


def _poll(name: str, partitions: int, batches: int) -> HotRow:
    """A Fetch that asks for partitions at their end, or one batch before it, and does not wait."""
    batch = one_record()

    def fill(topic: Topic) -> Sequence[bytes]:
        return [produce_frame(topic.name, range(partitions), batch)]

    def load(topic: Topic, scale: float) -> Load:
        return Load(
            rings=[[fetch_frame(topic.id, [1 - batches] * partitions)]],
            connections=8,
            in_flight=1,
            requests=max(100, int(20_000 * scale / (1 + partitions / 10))),
            requests_warm=max(10, int(2_000 * scale / (1 + partitions / 10))),
            error_at=FETCH_ERROR_AT,
            reply_bytes_min=batches * partitions * len(batch),
        )

    what = "a record" if batches else "nothing"
    work = f"Fetch of {partitions} partition{'s' * (partitions > 1)} with {what} to give"
    return HotRow(
        name,
        [Line(name, work, "us")],
        load,
        lambda measured: {name: us_each(measured)},
        partitions=partitions,
        fill=fill,
    )


# -- figures ------------------------------------------------------------------------------------------


def us_each(measured: Measured) -> float:
    return measured.cpu_seconds / measured.requests * 1e6


def _volume_lines(name: str, work: str) -> list[Line]:
    return [Line(name, work, "s/GB"), Line(f"{name}-rate", f"{work}, rate", "MB/s", more_is_better=True)]


def _volume(name: str, measured: Measured, size: int) -> Mapping[str, float]:
    """CPU for 10^9 bytes of frames, and 10^6 bytes a second."""
    total = measured.requests * size
    return {name: measured.cpu_seconds / total * 1e9, f"{name}-rate": total / measured.seconds / 1e6}
