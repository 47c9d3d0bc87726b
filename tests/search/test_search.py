"""The search against a naive filter over the same records: codecs, transactions, compaction, times, partitions."""

from datetime import UTC, datetime
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.search.logs import ORDERS, SMALL, T, as_json, naive, opened, run_search, span_of
from tests.storage.housekeeping import compact

from penstock.base.ids import TopicPartition
from penstock.base.settings import LogSettings
from penstock.records import Codec, Record, build_batch, end_txn_marker, iter_batches
from penstock.search import gram_index, scanning
from penstock.search.query import BadQuery, SearchQuery
from penstock.storage.log import Log
from penstock.storage.rules import Origin
from penstock.vfs import RealDisk

WORDS = st.sampled_from(
    [b"alpha", b"beta", b"alphabeta", b"gamma", b"ab", b"\xff\xfe", b"\xc3\xa9t\xc3\xa9", b""]
)
FIELD = st.none() | st.lists(WORDS, max_size=4).map(b" ".join)
HEADERS = st.lists(st.tuples(st.sampled_from(["trace", "beta", "x"]), FIELD), max_size=2).map(tuple)
NEW_RECORDS = st.tuples(FIELD, FIELD, st.integers(0, 50).map(lambda each: T + each), HEADERS)
BATCHES = st.lists(
    st.tuples(st.lists(NEW_RECORDS, min_size=1, max_size=6), st.sampled_from(list(Codec))),
    min_size=1,
    max_size=12,
)
QUERIES = st.builds(
    SearchQuery,
    contains=st.none() | st.sampled_from([b"alpha", b"beta", b"b", b"a g", b"\xff", b"tr", b"nowhere"]),
    regex=st.none()
    | st.sampled_from(["a.*b", "^beta$", "[g-t]{4}", "(?i)BETA", "\u00e9t\u00e9", "^$", "x|y"]),
    field=st.sampled_from(["any", "key", "value", "headers"]),
    since_ms=st.none() | st.integers(T, T + 50),
    before_ms=st.none() | st.integers(T, T + 50),
).filter(lambda query: query.contains is not None or query.regex is not None)


def records_of(log: Log, stop: int | None = None) -> list[Record]:
    """Every record of the log by the record-by-record decoder, aborted ones included, markers left out."""
    found: list[Record] = []
    at = log.log_start
    end = log.log_end if stop is None else stop
    while at < end:
        data = log.read(at, 1 << 20, visible=log.log_end)
        for batch in iter_batches(data):
            if not batch.is_control:
                found += [each for each in batch.records() if log.log_start <= each.offset < end]
            at = batch.next_offset
    return found


@settings(max_examples=25, deadline=None)
@given(batches=BATCHES, query=QUERIES, is_indexed=st.booleans(), data=st.data())
def test_a_search_finds_what_a_naive_filter_finds(
    batches: list[tuple[list[tuple], Codec]], query: SearchQuery, is_indexed: bool, data: st.DataObject
) -> None:
    with TemporaryDirectory() as path, opened(Path(path), LogSettings(segment_bytes=300)) as directory:
        log = directory.create(ORDERS, now_ms=T)
        for records, codec in batches:
            log.append(build_batch(records, codec=codec), leader_epoch=0, now_ms=T)
        start = data.draw(st.integers(0, log.log_end))
        stop = data.draw(st.integers(start, log.log_end))
        if is_indexed:
            for segment in log.segments[:-1]:
                assert gram_index.build(RealDisk(), log.directory, segment.base_offset)
        found, run = run_search(query, [span_of(log, start=start, stop=stop)])
        records = [each for each in records_of(log) if start <= each.offset < stop]
        expected = naive(query, records)
        assert [each.offset for each in found] == sorted(expected, reverse=True)
        by_offset = {each.offset: each for each in records}
        for match in found:
            record = by_offset[match.offset]
            assert (match.key, match.value, match.timestamp) == (record.key, record.value, record.timestamp)
            assert match.headers == record.headers
        assert run.searched_bytes == run.total_bytes
        assert not run.unsearched


def test_a_match_across_two_records_or_in_a_batch_header_is_no_match(tmp_path: Path) -> None:
    """The bytes lie side by side in the file, but no record has them."""
    with opened(tmp_path) as directory:
        log = directory.create(ORDERS, now_ms=T)
        log.append(build_batch([(b"k", b"left", T), (b"k", b"right", T)]), leader_epoch=7, now_ms=T)
        raw = Path(log.directory, "00000000000000000000.log").read_bytes()
        at = raw.index(b"left")
        across = raw[at + 2 : raw.index(b"right") + 2]
        for needle in (across, raw[12:17], raw[:16]):
            found, run = run_search(SearchQuery(contains=needle), [span_of(log)])
            assert not found
            assert run.searched_bytes == run.total_bytes


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_records_of_aborted_and_open_transactions_are_found_only_uncommitted(
    tmp_path: Path, codec: Codec
) -> None:
    with opened(tmp_path) as directory:
        log = directory.create(ORDERS, now_ms=T)
        rng, number, sequences = Random(3), 0, {1: 0, 2: 0}
        committed: list[int] = []
        held: dict[int, list[int]] = {1: [], 2: []}
        for _ in range(60):
            producer = rng.choice((1, 2))
            records = [(None, b"needle %d" % each, T) for each in range(number, number + 3)]
            batch = build_batch(
                records, producer_id=producer, producer_epoch=0, base_sequence=sequences[producer],
                transactional=True, codec=codec,
            )  # fmt: skip
            log.append(batch, leader_epoch=0, now_ms=T)
            sequences[producer] += 3
            held[producer] += range(number, number + 3)
            number += 3
            if rng.random() < 0.3:
                commits = rng.random() < 0.5
                log.append(
                    end_txn_marker(producer, 0, commits, 0, T),
                    leader_epoch=0,
                    now_ms=T,
                    origin=Origin.COORDINATOR,
                )
                committed += held[producer] if commits else []
                held[producer] = []
        undecided = min(each for every in held.values() for each in every)
        query = SearchQuery(contains=b"needle")
        found, _ = run_search(query, [span_of(log)])
        numbers = sorted(int(str(each.value, "ascii").split()[1]) for each in found)
        assert numbers == sorted(each for each in committed if each < undecided)
        everything, _ = run_search(query, [span_of(log, committed=False)])
        assert len(everything) == number


def test_a_compacted_log_has_only_what_is_left(tmp_path: Path) -> None:
    """The indexes were made before the compaction: those of replaced segments are not trusted."""
    with opened(
        tmp_path, LogSettings(segment_bytes=2_000, cleanup_policy=frozenset({"compact"}))
    ) as directory:
        log = directory.create(ORDERS, now_ms=T)
        for each in range(300):
            log.append(
                build_batch([(b"k%d" % (each % 20), b"value-%03d" % each, T)]), leader_epoch=0, now_ms=T
            )
        for segment in log.segments[:-1]:
            gram_index.build(RealDisk(), log.directory, segment.base_offset)
        done = compact(log, T, log.log_end)
        assert done is not None
        query = SearchQuery(contains=b"value-0", field="value")
        found, run = run_search(query, [span_of(log)])
        assert [each.offset for each in found] == sorted(naive(query, records_of(log)), reverse=True)
        assert not run.unsearched
        last, _ = run_search(SearchQuery(contains=b"value-299"), [span_of(log)])
        assert [each.offset for each in last] == [299]


def test_partitions_take_turns_and_each_comes_newest_first(tmp_path: Path) -> None:
    with opened(tmp_path) as directory:
        spans = []
        for number in range(3):
            log = directory.create(TopicPartition("orders", number), now_ms=T)
            for each in range(100):
                log.append(build_batch([(None, b"needle %d" % each, T)]), leader_epoch=0, now_ms=T)
            spans.append(span_of(log))
        found, _ = run_search(SearchQuery(contains=b"needle"), spans)
        assert len(found) == 300
        for number in range(3):
            assert [each.offset for each in found if each.partition == number] == list(range(99, -1, -1))


def test_the_newest_results_are_kept_when_there_are_more_than_the_limit(tmp_path: Path) -> None:
    with opened(tmp_path) as directory:
        log = directory.create(ORDERS, now_ms=T)
        for first in range(0, 500, 50):
            records = [(None, b"needle %d" % each, T) for each in range(first, first + 50)]
            log.append(build_batch(records), leader_epoch=0, now_ms=T)
        found, run = run_search(SearchQuery(contains=b"needle"), [span_of(log)], limit=7)
        assert [each.offset for each in found] == list(range(499, 492, -1))
        assert run.is_limited


def test_results_that_exceed_a_portion_come_in_several(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scanning, "RESULT_BYTES_MAX", 1000)
    with opened(tmp_path) as directory:
        log = directory.create(ORDERS, now_ms=T)
        for first in range(0, 200, 20):
            records = [(None, b"needle %d" % each, T) for each in range(first, first + 20)]
            log.append(build_batch(records), leader_epoch=0, now_ms=T)
        found, run = run_search(SearchQuery(contains=b"needle"), [span_of(log)])
        assert [each.offset for each in found] == list(range(199, -1, -1))
        assert run.searched_bytes == run.total_bytes


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_a_call_that_takes_too_long_returns_and_goes_on_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: Codec
) -> None:
    monkeypatch.setattr(scanning, "CHUNK_NS", 0)
    monkeypatch.setattr(scanning, "COMPRESSED_BYTES", 100)
    with opened(tmp_path) as directory:
        log = directory.create(ORDERS, now_ms=T)
        for each in range(200):
            log.append(build_batch([(b"k", b"needle %d" % each, T)], codec=codec), leader_epoch=0, now_ms=T)
        found, run = run_search(SearchQuery(contains=b"needle"), [span_of(log)])
        assert sorted(each.offset for each in found) == list(range(200))
        assert run.searched_bytes == run.total_bytes


def test_long_fields_are_cut_and_their_lengths_are_reported(tmp_path: Path) -> None:
    with opened(tmp_path, LogSettings()) as directory:
        log = directory.create(ORDERS, now_ms=T)
        log.append(
            build_batch([(b"k" * 300, b"x" * 5000 + b"needle", T, [("h", b"y" * 500)])]),
            leader_epoch=0,
            now_ms=T,
        )
        [match], _ = run_search(SearchQuery(contains=b"needle", field_bytes=100), [span_of(log)])
        assert (len(match.key or b""), len(match.value or b""), match.headers) == (100, 100, ())
        assert dict(match.cut) == {"key": 300, "value": 5006, "headers": 501}


def test_a_damaged_batch_is_named_and_the_rest_is_searched(tmp_path: Path) -> None:
    with opened(tmp_path) as directory:
        log = directory.create(ORDERS, now_ms=T)
        for each in range(200):
            log.append(build_batch([(b"k", b"needle %d" % each, T)]), leader_epoch=0, now_ms=T)
        assert len(log.segments) > 3
        path = Path(log.directory, "00000000000000000000.log")
        raw = bytearray(path.read_bytes())
        raw[raw.index(b"needle 3")] = ord("N")
        path.write_bytes(raw)
        found, run = run_search(SearchQuery(contains=b"eedle"), [span_of(log)])
        assert [(each.start, each.stop) for each in run.unsearched] == [(3, 4)]
        assert "CRC" in run.unsearched[0].why
        assert [each.offset for each in found] == [each for each in range(199, -1, -1) if each != 3]


# -- expressions ----------------------------------------------------------------------------------------


def test_an_expression_sees_decoded_json_key_headers_and_time(tmp_path: Path) -> None:
    with opened(tmp_path) as directory:
        log = directory.create(ORDERS, now_ms=T)
        for each in range(100):
            value = b'{"n": %d, "user": "u%d", "tags": ["a", "t%d"]}' % (each, each % 5, each % 3)
            record = (b"k%d" % each, value, T + each * 1000, [("trace", b"%d" % (each % 2))])
            log.append(build_batch([record]), leader_epoch=0, now_ms=T)
        records = records_of(log)
        for where, expected in (
            ("value.n > 90", lambda each: as_json(each.value)["n"] > 90),
            (
                "value.user == 'u3' && 't1' in value.tags",
                lambda each: each.offset % 5 == 3 and each.offset % 3 == 1,
            ),
            ("headers.trace == '1' && offset < 10", lambda each: each.offset % 2 and each.offset < 10),
            ("key.endsWith('7')", lambda each: each.offset % 10 == 7),
            (
                f"timestamp >= timestamp('{datetime.fromtimestamp(T / 1000 + 50, UTC).isoformat()}')",
                lambda each: each.offset >= 50,
            ),
            ("partition == 0 && has(value.nothing)", lambda _: False),
        ):
            found, run = run_search(SearchQuery(where=where), [span_of(log)])
            assert sorted(each.offset for each in found) == [
                each.offset for each in records if expected(each)
            ], where
            assert not run.failed_count


def test_records_for_which_an_expression_fails_do_not_match_and_are_counted(tmp_path: Path) -> None:
    with opened(tmp_path) as directory:
        log = directory.create(ORDERS, now_ms=T)
        values = [b'{"n": 1}', b"not json", None, b"\xff", b"[1]", b'{"n": "text"}', b'{"n": 99999999999999999999}',
                  b"[" * 5000 + b"]" * 5000, b'{"m": 2}']  # fmt: skip
        for value in values:
            log.append(build_batch([(b"k", value, T)]), leader_epoch=0, now_ms=T)
        found, run = run_search(SearchQuery(where="value.n == 1"), [span_of(log)])
        assert [each.offset for each in found] == [0]
        assert run.failed_count >= 5
        assert run.failed_why
        assert "\n" not in run.failed_why


def test_conditions_are_combined(tmp_path: Path) -> None:
    with opened(tmp_path) as directory:
        log = directory.create(ORDERS, now_ms=T)
        for each in range(50):
            log.append(
                build_batch([(None, b'{"n": %d, "w": "x%dy"}' % (each, each % 4), T)]),
                leader_epoch=0,
                now_ms=T,
            )
        query = SearchQuery(contains=b"x3", regex="x[0-9]y", where="value.n > 40")
        found, _ = run_search(query, [span_of(log)])
        assert [each.offset for each in found] == [47, 43]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        (SearchQuery(), "nothing to search for"),
        (SearchQuery(contains=b""), "contains is empty"),
        (SearchQuery(contains=b"x" * 5000), "expected at most 4096"),
        (SearchQuery(regex="("), "missing )"),
        (SearchQuery(regex="(a{1000}){1000}"), "RE2"),
        (SearchQuery(regex="x" * 2000), "expected 1 to 1000"),
        (SearchQuery(where="value.n >"), "Syntax error"),
        (SearchQuery(where="nope == 1"), "undeclared reference to 'nope'"),
        (SearchQuery(where="'text'"), "expected true or false"),
        (SearchQuery(where="(" * 2000 + "true" + ")" * 2000), "recursion"),
        (SearchQuery(where="true && \x00"), "where is not"),
        (SearchQuery(contains=b"x", field="nowhere"), "expected one of any, key, value, headers"),
    ],
)
def test_a_bad_query_is_refused_in_one_sentence(query: SearchQuery, words: str) -> None:
    with pytest.raises(BadQuery) as error:
        run_search(query, [])
    assert words in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "where",
    [
        "[1,2,3,4,5,6,7,8,9,10].all(a, [1,2,3,4,5,6,7,8,9,10].all(b, [1,2,3,4,5,6,7,8,9,10].all(c, "
        "[1,2,3,4,5,6,7,8,9,10].all(d, [1,2,3,4,5,6,7,8,9,10].all(e, a + b + c + d + e > 0)))))",
        "['" + "a" * 50 + "']" + ".map(x, x + x)" * 18 + "[0].size() > 3",
    ],
)
def test_a_hostile_expression_costs_bounded_time(tmp_path: Path, where: str) -> None:
    with opened(tmp_path, SMALL) as directory:
        log = directory.create(ORDERS, now_ms=T)
        log.append(build_batch([(b"k", b"{}", T)]), leader_epoch=0, now_ms=T)
        try:
            _, run = run_search(SearchQuery(where=where), [span_of(log)])
            assert run.searched_bytes == run.total_bytes
        except BadQuery as error:
            assert "recursion" in str(error)  # noqa: PT017
