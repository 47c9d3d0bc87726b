"""Logs to search, and the search as a naive filter over decoded records."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import re2

from penstock.base.ids import TopicPartition
from penstock.base.settings import LogSettings
from penstock.records import Record
from penstock.search.matching import Matcher
from penstock.search.planning import plan
from penstock.search.progress import SearchRun
from penstock.search.query import Match, SearchQuery, SearchSpan
from penstock.search.scanning import search
from penstock.storage.directory import LogDirectory, open_directory
from penstock.storage.log import Log
from penstock.vfs import RealDisk

T = 1_794_000_000_000
ORDERS = TopicPartition("orders", 0)
SMALL = LogSettings(segment_bytes=4_000, index_interval_bytes=500)


@contextmanager
def opened(path: Path, settings: LogSettings = SMALL) -> Iterator[LogDirectory]:
    directory = open_directory(RealDisk(), str(path), now_ms=T, rng=Random(1), settings_of=lambda _: settings)
    try:
        yield directory
    finally:
        directory.abandon()


def span_of(
    log: Log, *, committed: bool = True, start: int | None = None, stop: int | None = None
) -> SearchSpan:
    """The range of a log, as a node gives it to its helper."""
    first = log.log_start if start is None else max(start, log.log_start)
    end = log.last_stable if committed else log.log_end
    last = end if stop is None else min(stop, end)
    aborted = log.aborted(first, last) if committed and first < last else []
    return SearchSpan(
        log.partition.topic,
        log.partition.partition,
        log.directory,
        log.log_start,
        first,
        max(first, last),
        tuple((each.producer_id, each.first_offset, each.last_offset) for each in aborted),
        tuple((each.offset, each.position) for each in log.segments.active.index.sampled(100)),
    )


def run_search(
    query: SearchQuery, spans: Sequence[SearchSpan], limit: int = 10_000
) -> tuple[list[Match], SearchRun]:
    """Search to the end, as the gateway does, in this process."""
    run = SearchRun(limit)
    vfs = RealDisk()
    by_number = {each.partition: each for each in spans}
    Matcher(query)
    for each in spans:
        run.add(plan(vfs, query, each))
    found: list[Match] = []
    while (work := run.take()) is not None:
        parts = [(by_number[each.partition], each) for each in work.chunks]
        run.returned(work, search(vfs, query, parts, work.limit))
        found += run.drain()
    assert run.is_over
    return found, run


def naive(query: SearchQuery, records: Sequence[Record]) -> list[int]:
    """The offsets of the records that match, by the definition of each condition."""
    return [each.offset for each in records if _matches(query, each)]


def _matches(query: SearchQuery, record: Record) -> bool:
    fields: list[bytes | None] = []
    if query.field in ("any", "key"):
        fields.append(record.key)
    if query.field in ("any", "value"):
        fields.append(record.value)
    if query.field in ("any", "headers"):
        for name, content in record.headers:
            fields += [name.encode(), content]
    texts = [each for each in fields if each is not None]
    if query.contains is not None and not any(query.contains in each for each in texts):
        return False
    if query.regex is not None and not any(re2.search(query.regex, each) for each in texts):
        return False
    if query.since_ms is not None and record.timestamp < query.since_ms:
        return False
    return query.before_ms is None or record.timestamp < query.before_ms


def as_json(value: bytes | None) -> Any:
    return None if value is None else msgspec.json.decode(value)
