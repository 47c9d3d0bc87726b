"""The files of an archive, without Spark: each row once, wherever a batch is cut off and however it is replayed."""

import os
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.spark.archiving import archive_table
from penstock.spark.archiving.archive_table import (
    SCHEMA,
    Archive,
    FileWriter,
    Staged,
    files_of,
    install,
    locked,
    read_archive,
    read_positions,
    rows_of,
    tidy,
    write_archive,
)
from penstock.spark.errors import ArchiveFault

ARCHIVE = Archive("orders", "id", 2, "read_committed")


@pytest.fixture
def table(tmp_path: Path) -> str:
    directory = str(tmp_path / "orders")
    write_archive(directory, ARCHIVE)
    return directory


def rows(offsets: Sequence[int]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [
            {
                "offset": offset,
                "timestamp": (1_794_000_000_000 + offset) * 1000,
                "timestampType": 0,
                "key": b"k%d" % offset if offset % 3 else None,
                "value": b"%d" % offset,
                "headers": [{"key": "n", "value": None}] if offset % 5 == 0 else None,
            }
            for offset in offsets
        ],
        schema=SCHEMA,
    )


def staged(directory: str, offsets: Sequence[int], partition: int = 0) -> Staged:
    writer = FileWriter(directory, partition)
    for start in range(0, len(offsets), 7):
        writer.write(rows(offsets[start : start + 7]))
    return writer.finish()


def offsets_of(directory: str, partition: int = 0) -> list[int]:
    """As any reader of Parquet sees them, in the order of names."""
    paths = sorted(Path(directory).glob(f"partition={partition}/*.parquet"))
    return [
        offset for path in paths for offset in pq.read_table(path, columns=["offset"])["offset"].to_pylist()
    ]


def test_a_batch_is_a_file_for_each_partition_named_by_its_offsets(table: str) -> None:
    install(table, [staged(table, range(10)), staged(table, [3, 5, 9], partition=1)])
    names = sorted(str(path.relative_to(table)) for path in Path(table).rglob("*.parquet"))
    assert names == [
        "partition=0/00000000000000000000-00000000000000000009.parquet",
        "partition=1/00000000000000000003-00000000000000000009.parquet",
    ]
    assert read_positions(table) == {0: 10, 1: 10}
    assert pa.Table.from_batches(rows_of(f"{table}/{names[0]}")).equals(
        pa.Table.from_batches([rows(range(10))])
    )
    assert [row for batch in rows_of(f"{table}/{names[0]}", 7) for row in batch["offset"].to_pylist()] == [
        7,
        8,
        9,
    ]
    assert os.listdir(f"{table}/_penstock/staging") == []
    assert read_archive(table) == ARCHIVE


def test_offsets_that_are_there_are_not_taken_again(table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replayed batch, or a lost checkpoint with batches that are cut differently; what is lost is taken again."""
    monkeypatch.setattr(archive_table, "MERGED_BYTES_MAX", 0)
    for start in (10, 20, 30):
        install(table, [staged(table, range(start, start + 10))])
    os.unlink(files_of(table)[0][1].path)
    for again in (range(10, 20), range(12, 15), range(5, 28), range(45), range(15, 50, 2)):
        install(table, [staged(table, again)])
    assert offsets_of(table) == [*range(45), 45, 47, 49]


def test_each_file_begins_where_the_one_before_it_ends(table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a file that is lost is known by the names, and never hidden by putting its neighbours together."""
    monkeypatch.setattr(archive_table, "MERGED_BYTES_MAX", 0)
    for offsets in (range(3, 10), [12, 14, 17], range(20, 30), range(30, 33)):
        install(table, [staged(table, offsets)])
    assert [(each.first, each.last) for each in files_of(table)[0]] == [(3, 9), (10, 17), (18, 29), (30, 32)]
    os.unlink(files_of(table)[0][1].path)
    monkeypatch.setattr(archive_table, "MERGED_BYTES_MAX", 1 << 20)
    install(table, [staged(table, range(40, 90))])
    assert [(each.first, each.last) for each in files_of(table)[0]] == [(3, 9), (18, 89)]


class Crash(BaseException):
    pass


@pytest.fixture
def crashing(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Have the process end before its nth change of the disk; the list says how many are left to it."""
    left = [10**9]

    def guarded(change):  # type: ignore[no-untyped-def]
        def step(*arguments: str) -> None:
            if left[0] == 0:
                raise Crash
            left[0] -= 1
            change(*arguments)

        return step

    monkeypatch.setattr(archive_table.os, "replace", guarded(os.replace))
    monkeypatch.setattr(archive_table.os, "unlink", guarded(os.unlink))
    return left


def test_wherever_a_batch_is_interrupted_its_replay_leaves_each_row_once(
    table: str, crashing: list[int]
) -> None:
    rng = Random(5)
    end, crashes = 0, 0
    for step in count():
        batch = range(end, end + rng.randrange(1, 30))
        end = batch.stop
        left = step % 5
        while True:
            crashing[0] = left
            try:
                install(table, [staged(table, batch)])
                break
            except Crash:
                crashes += 1
                left += 1
                crashing[0] = 10**9
                if rng.random() < 0.5:
                    tidy(table)
                assert [each.last for each in files_of(table).get(0, [])] == sorted(
                    each.last for each in files_of(table).get(0, [])
                )
        if step == 60:
            break
    crashing[0] = 10**9
    for path in Path(table).rglob("*.parquet"):
        first, last = map(int, path.stem.split("-"))
        found = pq.read_table(path, partitioning=None)["offset"].to_pylist()
        assert found == list(range(first, last + 1)), (
            "what is left over lies within another file, and says so"
        )
    tidy(table)
    assert crashes > 60
    assert offsets_of(table) == list(range(end))
    assert read_positions(table) == {0: end}


def test_small_files_are_put_together_and_rows_stay_as_they_are(table: str) -> None:
    for start in range(0, 400, 5):
        install(table, [staged(table, range(start, start + 5))])
    files = files_of(table)[0]
    assert len(files) <= 12
    assert offsets_of(table) == list(range(400))
    whole = pa.concat_tables([pa.Table.from_batches(rows_of(each.path)) for each in files])
    assert whole.equals(pa.Table.from_batches([rows(range(400))]))


def test_a_large_file_is_left_alone(table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    install(table, [staged(table, range(100))])
    monkeypatch.setattr(archive_table, "MERGED_BYTES_MAX", files_of(table)[0][0].size_bytes)
    for start in range(100, 200, 5):
        install(table, [staged(table, range(start, start + 5))])
    assert files_of(table)[0][0].last == 99
    assert offsets_of(table) == list(range(200))


def test_files_that_share_offsets_and_are_not_ours_are_refused(table: str) -> None:
    install(table, [staged(table, range(10))])
    os.rename(staged(table, range(5, 15)).path, f"{table}/partition=0/{archive_table.file_name(5, 14)}")
    with pytest.raises(ArchiveFault, match="overlap"):
        files_of(table)


def test_one_process_at_a_time_and_what_is_no_archive_is_reported(table: str, tmp_path: Path) -> None:
    with (
        locked(table, "archive.lock"),
        pytest.raises(ArchiveFault, match="is in use"),
        locked(table, "archive.lock"),
    ):
        pass
    assert read_archive(str(tmp_path)) is None
    with pytest.raises(ArchiveFault, match="is not an archive"):
        archive_table.the_archive(str(tmp_path))
    Path(table, "_penstock", "archive.json").write_text('{"version": 2}')
    with pytest.raises(ArchiveFault, match="has a format that this version does not support"):
        read_archive(table)
