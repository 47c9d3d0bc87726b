"""`penstock produce`: records from wherever they are, sent, and what became of them."""

import os.path
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from penstock.base.ids import TopicPartition
from penstock.cli.moments import parse_time
from penstock.cli.output import Refused, complain, print_json, progress
from penstock.cli.produce_input import (
    LineForm,
    NewRecord,
    from_lines,
    from_whole_files,
    made_up,
    parse_headers,
)
from penstock.cli.wire import connected, input_is_terminal
from penstock.client.cluster import Cluster
from penstock.client.errors import ClientError
from penstock.client.produce_requests import ACKS_ALL
from penstock.client.producer import UNKNOWN_TOPIC_WAIT_MS, Delivery, Producer, ProducerSettings
from penstock.records import Codec

SIZE_DEFAULT = 100

ANSWER_MS = 50
"""While there is nothing to read: how long a broker's answer is waited for before the input is looked at again."""


@dataclass(frozen=True)
class Wanted:
    """The command line, as it was given."""

    topic: str
    inputs: list[str]
    whole_files: list[str]
    input_json: bool
    key: str | None
    key_separator: str | None
    headers: list[str]
    header_separator: str | None
    null_value: str | None
    partition: int | None
    timestamp: str | None
    count: int | None
    size: int | None
    rate: float | None
    acks: str
    compression: str
    idempotent: bool | None


class Range:
    """Offsets that a partition gave out, as far as the broker told them."""

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


def run(server: str, wanted: Wanted, *, as_json: bool) -> int:
    settings = _settings(wanted)
    form = _form(wanted)
    tally = Tally()
    with connected(server) as cluster:
        started_ms = cluster.clock.now_ms()
        timestamp = _timestamp(wanted, cluster.clock.wall_ms())
        with progress("producing", lambda: _total_bytes(wanted)) as advance:

            def delivered(delivery: Delivery) -> None:
                tally.add(delivery)
                advance(delivery.record_bytes)

            producer = Producer(cluster, settings, delivered)
            records = _source(wanted, form, lambda: producer.due_ms)
            if as_json and not wanted.input_json:
                records = _with_json_hint(records)
            try:
                _produce(cluster, producer, records, wanted, timestamp)
            except (KeyboardInterrupt, ClientError, Refused, OSError):
                with suppress(ClientError):
                    producer.flush()  # what was taken is not to be lost; a second Ctrl-C ends that too
                if tally.records:
                    _report(wanted.topic, tally, cluster.clock.now_ms() - started_ms, as_json)
                raise
        _report(wanted.topic, tally, cluster.clock.now_ms() - started_ms, as_json)
    return 0


def _produce(
    cluster: Cluster,
    producer: Producer,
    records: Iterator[NewRecord | None],
    wanted: Wanted,
    timestamp: int | None,
) -> None:
    clock = cluster.clock
    cluster.topic(
        wanted.topic, create=True, wait_ms=UNKNOWN_TOPIC_WAIT_MS
    )  # told now, not after the first line was typed
    started_ms = clock.now_ms()
    sent = 0
    for record in records:
        if record is None:
            producer.poll(ANSWER_MS)
            continue
        if wanted.rate is not None:
            producer.work(started_ms + sent * 1000 / wanted.rate - clock.now_ms())
        producer.send(
            wanted.topic,
            record.key,
            record.value,
            partition=wanted.partition if record.partition is None else record.partition,
            timestamp=timestamp if record.timestamp is None else record.timestamp,
            headers=record.headers,
        )
        sent += 1
        if sent == wanted.count:
            break
    producer.flush()


def _source(wanted: Wanted, form: LineForm, idle_ms: Callable[[], float]) -> Iterator[NewRecord | None]:
    if wanted.whole_files:
        return from_whole_files(wanted.whole_files, form)
    if _is_made_up(wanted):
        return made_up(wanted.size or SIZE_DEFAULT, form, random.Random())
    return from_lines(wanted.inputs, form, as_json=wanted.input_json, idle_ms=idle_ms)


def _with_json_hint(records: Iterator[NewRecord | None]) -> Iterator[NewRecord | None]:
    """Complain if the first line is a record from `consume --json`: --json does not parse the input."""
    first = next((each for each in records if each is not None), None)
    if first is None:
        return
    if first.value is not None and first.value.startswith(b'{"topic":') and b'"offset":' in first.value:
        complain(
            "the input looks like records in JSON, and is sent as text: to send the records, add --format json"
        )
    yield first
    yield from records


def _is_made_up(wanted: Wanted) -> bool:
    if wanted.size is not None:
        return True
    return wanted.count is not None and not wanted.inputs and input_is_terminal()


def _total_bytes(wanted: Wanted) -> int:
    """How much there is to send, where that is known before."""
    paths = [*wanted.whole_files, *(each for each in wanted.inputs if each != "-")]
    if paths:
        return sum(os.path.getsize(each) for each in paths)
    return (wanted.count or 0) * (wanted.size or SIZE_DEFAULT) if _is_made_up(wanted) else 0


def _settings(wanted: Wanted) -> ProducerSettings:
    acks = {"all": ACKS_ALL, "-1": ACKS_ALL, "0": 0, "1": 1}.get(wanted.acks)
    if acks is None:
        raise Refused(f"--acks is {wanted.acks!r}, expected 0, 1 or all")
    try:
        codec = Codec[wanted.compression.upper()]
    except KeyError:
        names = ", ".join(each.name.lower() for each in Codec)
        raise Refused(f"--compression is {wanted.compression!r}, expected one of {names}") from None
    is_idempotent = acks == ACKS_ALL if wanted.idempotent is None else wanted.idempotent
    if is_idempotent and acks != ACKS_ALL:
        raise Refused(f"--idempotent needs --acks all, {wanted.acks} was given")
    return ProducerSettings(acks=acks, is_idempotent=is_idempotent, codec=codec)


def _form(wanted: Wanted) -> LineForm:
    if wanted.size is not None and (wanted.inputs or wanted.whole_files):
        raise Refused("--size makes records up, but there are files to read")
    if wanted.whole_files and wanted.inputs:
        raise Refused("either files of lines or --file for whole files, not both")
    if wanted.input_json and (wanted.key_separator is not None or wanted.header_separator is not None):
        raise Refused("a JSON line has its key and headers in it, so there is nothing to separate")
    headers = [parse_headers(_bytes(each), "--header") for each in wanted.headers]
    return LineForm(
        _separator(wanted.key_separator, "--key-separator"),
        _separator(wanted.header_separator, "--header-separator"),
        None if wanted.null_value is None else _bytes(wanted.null_value),
        None if wanted.key is None else _bytes(wanted.key),
        tuple(each for some in headers for each in some),
    )


def _separator(text: str | None, option: str) -> bytes | None:
    if text is None:
        return None
    separator = _bytes(text.replace("\\t", "\t"))
    if not separator:
        raise Refused(f"{option} is empty")
    return separator


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _timestamp(wanted: Wanted, now_ms: int) -> int | None:
    if wanted.timestamp is None:
        return None
    text = wanted.timestamp
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
