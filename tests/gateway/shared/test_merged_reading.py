"""Records of several partitions in the order of their timestamps, on logs with transactions and compaction."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.storage.test_compaction import NOW, open_table, run, transaction

from penstock.base.promise import Promise
from penstock.base.steps import RunningSteps, Steps
from penstock.client.decoding import decode
from penstock.gateway.shared import merged_reading
from penstock.gateway.shared.merged_reading import MergedPage, ReadLimits, read_merged
from penstock.gateway.shared.ranges import OffsetRange
from penstock.records import Record, build_batch
from penstock.storage import Log
from penstock.vfs import MemoryDisk
from penstock.wire import AbortedTransaction


class OpenQueue:
    """A fair queue without others in it."""

    def next(self) -> Promise[None]:
        promise: Promise[None] = Promise()
        promise.resolve(None)
        return promise


class Half:
    """A partition that this broker leads."""

    def __init__(self, number: int, log: Log) -> None:
        self.number = number
        self.log = log
        self.name = f"t-{number}"
        self.here: Any = SimpleNamespace(
            name=self.name, is_leader=True, last_stable=log.last_stable, log=log, bytes_out=0, messages_out=0
        )

    def offset_back(self, stop: int, size_bytes: int) -> Steps[int]:
        return self.log.reader.offset_back(stop, size_bytes)
        yield

    def span(self, start: int | None = None, stop: int | None = None) -> Any:
        first, visible = self.log.log_start, self.log.last_stable
        return OffsetRange(
            self,  # type: ignore[arg-type]  # as much of a partition as is used here
            first if start is None else max(start, first),
            visible if stop is None else min(stop, visible),
        )

    def committed(self) -> list[Record]:
        """All that a consumer reads, without what is tested here."""
        log = self.log
        aborted = [AbortedTransaction(e.producer_id, e.first_offset) for e in log.aborted(0, log.last_stable)]
        data = b"".join(bytes(each.view) for each in log.batches() if each.last_offset < log.last_stable)
        return decode(data, log.log_start, aborted).records


def page_of(
    halves: Sequence[Half], left: Mapping[int, int] | None, limits: ReadLimits, *, newest_first: bool
) -> MergedPage:
    if left is None:
        spans = [each.span() for each in halves]
    elif newest_first:
        spans = [each.span(None, left[each.number]) for each in halves if each.number in left]
    else:
        spans = [each.span(left[each.number]) for each in halves if each.number in left]
    done: list[MergedPage] = []

    def fail(error: Exception) -> None:
        raise error

    steps = read_merged(None, OpenQueue(), spans, limits, newest_first=newest_first)  # type: ignore[arg-type]
    RunningSteps(steps, done.append, fail)
    [page] = done
    return page


def all_pages(
    halves: Sequence[Half], sizes: Sequence[int], *, newest_first: bool, bytes_max: int = 1 << 20
) -> list[tuple[int, Record]]:
    found: list[tuple[int, Record]] = []
    left: Mapping[int, int] | None = None
    for turn in range(10_000):
        page = page_of(
            halves, left, ReadLimits(sizes[turn % len(sizes)], bytes_max, 100), newest_first=newest_first
        )
        assert len(page.records) <= sizes[turn % len(sizes)]
        found += [(number, each.record) for number, each in page.records]
        left = page.next
        if left is None:
            return found
    raise AssertionError("the pages do not end")


def expected(halves: Sequence[Half], *, newest_first: bool) -> list[tuple[int, Record]]:
    """A merge of whole lists: the next record of the partition that has the newest, or oldest."""
    lists = {each.number: each.committed() for each in halves}
    found = []
    while any(lists.values()):
        heads = {number: rows[-1 if newest_first else 0] for number, rows in lists.items() if rows}
        sign = -1 if newest_first else 1
        number = min(heads, key=lambda each: (sign * heads[each].timestamp, each))
        found.append((number, lists[number].pop(-1 if newest_first else 0)))
    return found


TIMES = st.integers(0, 12)
BATCH = st.tuples(st.just("batch"), st.lists(st.tuples(st.integers(0, 5), TIMES), min_size=1, max_size=6))
TRANSACTION = st.tuples(
    st.sampled_from(["commit", "abort"]),
    st.lists(st.tuples(st.integers(0, 5), TIMES), min_size=1, max_size=3),
)
OTHER = st.tuples(st.sampled_from(["roll", "compact"]), st.just([]))
HISTORY = st.lists(st.one_of(BATCH, TRANSACTION, OTHER), max_size=14)


@contextmanager
def halves_of(histories: Sequence[Sequence[tuple[str, Any]]]) -> Iterator[list[Half]]:
    halves = []
    for number, history in enumerate(histories):
        _, log = open_table(MemoryDisk(), segment_bytes=1000, index_interval_bytes=120)
        for turn, (what, rows) in enumerate(history):
            _play(log, turn, what, rows)
        halves.append(Half(number, log))
    yield halves


def _play(log: Log, turn: int, what: str, rows: Sequence[tuple[int, int]]) -> None:
    made = [(b"k%d" % key, b"%d-%d" % (turn, key) * 5, NOW + time) for key, time in rows]
    if what == "batch":
        log.append(build_batch(made), leader_epoch=0, now_ms=NOW)
    elif what in ("commit", "abort"):
        transaction(log, turn + 1, 0, *(row[:2] for row in made), commit=what == "commit")
    else:
        log.roll(NOW)
        if what == "compact":
            run(log)


@given(st.lists(HISTORY, min_size=1, max_size=3), st.lists(st.integers(1, 7), min_size=1, max_size=3))
@settings(max_examples=60)
def test_pages_of_any_size_are_the_whole_topic_in_order(
    histories: Sequence[Sequence[tuple[str, Any]]], sizes: Sequence[int]
) -> None:
    with halves_of(histories) as halves:
        for newest_first in (True, False):
            found = all_pages(halves, sizes, newest_first=newest_first)
            assert found == expected(halves, newest_first=newest_first)


@given(st.lists(HISTORY, min_size=1, max_size=2))
@settings(max_examples=30)
def test_pages_that_may_read_next_to_nothing_make_their_way(
    histories: Sequence[Sequence[tuple[str, Any]]],
) -> None:
    """Of each page little is read, and less is sent; each still comes nearer to the end."""
    with (
        halves_of(histories) as halves,
        patch.object(merged_reading, "SCANNED_BYTES_MAX", 0),
        patch.object(merged_reading, "BUFFERED_BYTES", 1),
        patch.object(merged_reading, "STEP_BYTES_MIN", 1),
    ):
        for newest_first in (True, False):
            found = all_pages(halves, [3], newest_first=newest_first, bytes_max=1)
            assert found == expected(halves, newest_first=newest_first)


@pytest.mark.parametrize("newest_first", [True, False])
def test_page_stays_the_same_while_records_are_written(newest_first: bool) -> None:
    with halves_of([[("batch", [(key, time) for key in range(5)]) for time in range(4)]] * 2) as halves:
        before = page_of(halves, None, ReadLimits(7, 1 << 20, 100), newest_first=newest_first)
        following = page_of(halves, before.next, ReadLimits(7, 1 << 20, 100), newest_first=newest_first)
        for half in halves:
            half.log.append(build_batch([(b"new", b"new", NOW + 99)]), leader_epoch=0, now_ms=NOW)
            half.here.last_stable = half.log.last_stable
        assert page_of(
            halves, before.next, ReadLimits(7, 1 << 20, 100), newest_first=newest_first
        ).records == (following.records)


def test_newest_record_before_a_long_gap_is_found_in_one_page() -> None:
    """Fifty thousand offsets of one key, compacted to the last: the record before them is a step or two away."""
    _, log = open_table(MemoryDisk(), segment_bytes=1 << 20)
    log.append(build_batch([(b"old", b"old", NOW)]), leader_epoch=0, now_ms=NOW)
    for _ in range(10):
        rows = [(b"same", b"", NOW)] * 5_000
        log.append(build_batch(rows), leader_epoch=0, now_ms=NOW)
    log.roll(NOW)
    run(log)
    page = page_of([Half(0, log)], None, ReadLimits(10, 1 << 20, 100), newest_first=True)
    assert [each.record.key for _, each in page.records] == [b"same", b"old"]
    assert page.next is None


def test_long_fields_are_cut_and_their_lengths_told() -> None:
    _, log = open_table(MemoryDisk(), max_message_bytes=10**6)
    long = "é".encode() * 1000
    log.append(build_batch([(b"k" * 300, long, NOW)]), leader_epoch=0, now_ms=NOW)
    [(_, (record, cut))] = page_of(
        [Half(0, log)], None, ReadLimits(10, 1 << 20, 101), newest_first=True
    ).records
    assert (record.key, cut) == (b"k" * 101, {"key": 300, "value": 2000})
    assert record.value == "é".encode() * 50
