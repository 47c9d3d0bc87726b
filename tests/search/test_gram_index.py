"""The index of a segment: never wrong, thrown away when it does not fit, removed with its segment."""

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.search.logs import ORDERS, T, opened, run_search, span_of

from penstock.base.settings import LogSettings
from penstock.records import Codec, build_batch
from penstock.search import gram_index
from penstock.search.query import SearchQuery
from penstock.storage import names
from penstock.storage.check import check_directory
from penstock.storage.log import Log
from penstock.storage.retention import delete_segments
from penstock.vfs import RealDisk

VFS = RealDisk()


def fill(log: Log, count: int = 100, codec: Codec = Codec.NONE) -> None:
    for each in range(count):
        records = [(b"key", b"word%04d " % each * 8, T)]
        log.append(build_batch(records, codec=codec), leader_epoch=0, now_ms=T)


def index_path(log: Log, base: int) -> Path:
    return Path(log.directory, names.segment_file(base, names.SEARCH_INDEX))


def build_all(log: Log) -> None:
    for segment in log.segments[:-1]:
        assert gram_index.build(VFS, log.directory, segment.base_offset)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.ZSTD])
def test_segments_that_cannot_match_are_not_read(tmp_path: Path, codec: Codec) -> None:
    with opened(tmp_path, LogSettings(segment_bytes=2_000)) as directory:
        log = directory.create(ORDERS, now_ms=T)
        fill(log, codec=codec)
        found, plain = run_search(SearchQuery(contains=b"word0003"), [span_of(log)])
        assert plain.skipped_bytes == 0
        build_all(log)
        again, indexed = run_search(SearchQuery(contains=b"word0003"), [span_of(log)])
        assert again == found
        assert [each.offset for each in again] == [3]
        assert indexed.skipped_bytes > plain.total_bytes / 2
        assert indexed.skipped_bytes + indexed.total_bytes == pytest.approx(
            plain.total_bytes, abs=len(log.segments)
        )
        nothing, nowhere = run_search(SearchQuery(contains=b"nowhere"), [span_of(log)])
        assert not nothing
        assert nowhere.total_bytes <= log.segments.active.size
        assert not nowhere.unsearched


@settings(max_examples=20, deadline=None)
@given(values=st.lists(st.binary(max_size=60), min_size=1, max_size=20), data=st.data())
def test_bytes_that_a_record_has_are_never_ruled_out(
    tmp_path_factory: pytest.TempPathFactory, values: list[bytes], data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("log")
    with opened(path, LogSettings(segment_bytes=200)) as directory:
        log = directory.create(ORDERS, now_ms=T)
        for value in values:
            log.append(
                build_batch([(None, value, T)], codec=data.draw(st.sampled_from(list(Codec)))),
                leader_epoch=0,
                now_ms=T,
            )
        build_all(log)
        number = data.draw(st.integers(0, len(values) - 1))
        value = values[number]
        start = data.draw(st.integers(0, len(value)))
        needle = value[start : data.draw(st.integers(start, len(value)))]
        if needle:
            found, _ = run_search(SearchQuery(contains=needle), [span_of(log)])
            assert number in {each.offset for each in found}


@pytest.mark.parametrize(
    "damage", ["torn", "a flipped bit", "another version", "empty", "of another segment", "stale"]
)
def test_an_index_that_is_not_right_is_not_used_and_is_made_again(tmp_path: Path, damage: str) -> None:
    with opened(tmp_path, LogSettings(segment_bytes=2_000)) as directory:
        log = directory.create(ORDERS, now_ms=T)
        fill(log)
        build_all(log)
        path = index_path(log, 0)
        raw = bytearray(path.read_bytes())
        if damage == "torn":
            raw = raw[:-10]
        elif damage == "a flipped bit":
            raw[len(raw) // 2] ^= 4
        elif damage == "another version":
            raw[5] += 1
        elif damage == "empty":
            raw = bytearray()
        elif damage == "of another segment":
            raw = bytearray(index_path(log, log.segments[1].base_offset).read_bytes())
        else:
            segment = Path(log.directory, names.segment_file(0, names.LOG))
            os.utime(segment, ns=(0, 1))
        path.write_bytes(raw)
        assert gram_index.may_contain(VFS, log.directory, 0, b"nowhere") is None
        found, _ = run_search(SearchQuery(contains=b"word0003"), [span_of(log)])
        assert [each.offset for each in found] == [3]
        assert gram_index.build(VFS, log.directory, 0)
        assert not gram_index.build(VFS, log.directory, 0)
        assert gram_index.may_contain(VFS, log.directory, 0, b"nowhere") == []


def test_a_damaged_segment_gets_no_index(tmp_path: Path) -> None:
    with opened(tmp_path, LogSettings(segment_bytes=2_000)) as directory:
        log = directory.create(ORDERS, now_ms=T)
        fill(log)
        path = Path(log.directory, names.segment_file(0, names.LOG))
        raw = bytearray(path.read_bytes())
        raw[200] ^= 1
        path.write_bytes(raw)
        assert not gram_index.build(VFS, log.directory, 0)
        assert not index_path(log, 0).exists()


def test_an_index_goes_with_its_segment_and_does_not_disturb_the_log(tmp_path: Path) -> None:
    settings = LogSettings(segment_bytes=2_000)
    with opened(tmp_path, settings) as directory:
        log = directory.create(ORDERS, now_ms=T)
        fill(log)
        build_all(log)
        first, second = log.segments[0], log.segments[1]
        directory.checkpoints.save_log_starts({ORDERS: second.base_offset})
        delete_segments(log, [first], T).run()
        assert not index_path(log, first.base_offset).exists()
        assert index_path(log, second.base_offset).exists()
        end = log.log_end
        path = log.directory
    with opened(tmp_path, settings) as directory:
        assert directory.logs[ORDERS].log_end == end
        assert index_path(directory.logs[ORDERS], second.base_offset).exists()
        gram_index.remove_orphans(VFS, path, frozenset({second.base_offset}))
        assert [each.name for each in Path(path).glob("*.searchindex")] == [
            index_path(log, second.base_offset).name
        ]
    findings = check_directory(VFS, f"{tmp_path}/logs", f"{tmp_path}/meta", deep=True)
    assert not [each for each in findings if each.severity == "error"]


def test_needles_shorter_than_a_gram_are_looked_for_everywhere(tmp_path: Path) -> None:
    with opened(tmp_path, LogSettings(segment_bytes=2_000)) as directory:
        log = directory.create(ORDERS, now_ms=T)
        fill(log)
        build_all(log)
        found, run = run_search(SearchQuery(contains=b"003"), [span_of(log)], limit=1000)
        assert {each.offset for each in found} == {3, *range(30, 40)}
        assert run.skipped_bytes == 0
