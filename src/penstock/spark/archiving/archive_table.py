"""The table of an archived topic: Parquet files named after the offsets that they cover.

    DIR/partition=0/00000000000000000000-00000000000000049999.parquet
    DIR/partition=0/00000000000000050000-00000000000000061234.parquet
    DIR/_penstock/archive.json       the topic, and its isolation level
    DIR/_penstock/positions.json     the end of each partition
    DIR/_penstock/checkpoint/        Spark's checkpoint
    DIR/_penstock/staging/           files being written

A file has every record of its partition from its first to its last offset, and no two files share an offset. Each
starts where the previous one ends, even if no record has that offset (transactions and compaction leave gaps): so a
lost file leaves a gap in the names.

The table is therefore exactly-once without a separate log: Spark, pandas, DuckDB and every other reader of a Parquet
directory see the same rows. A file is written to staging, synced, and then renamed into the table. When a
batch is replayed after a crash, offsets that are already in the table are recognised by the names and left out.

A stream writes a small file with each batch. The last files of a partition are therefore merged while they are small,
like binary counting: there are few of them, and each row is rewritten a few times at most. The merged file is in
place before the smaller ones are removed. In between, or after a crash until the next run, rows exist twice, and
`files_of` ignores files within the range of another.
"""

import fcntl
import json
import os
import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.arrow.schema import ARROW_TYPES
from penstock.base.ids import Offset
from penstock.spark.errors import ArchiveFault

COLUMNS: Final = ("offset", "timestamp", "timestampType", "key", "value", "headers")
"""Columns of a file; the partition is in its directory's name, the topic in archive.json."""

SCHEMA: Final = pa.schema([pa.field(name, ARROW_TYPES[name]) for name in COLUMNS])

VERSION: Final = 1
OURS: Final = "_penstock"
"""Readers of Parquet directories ignore names that start with an underscore."""

BATCH_ROWS: Final = 8192
"""Rows read at a time."""

ROW_GROUP_BYTES: Final = 32 << 20
MERGED_BYTES_MAX: Final = 128 << 20
"""Files of this size are not merged."""

_FILE: Final = re.compile(r"(\d{20})-(\d{20})\.parquet")
_PARTITION: Final = re.compile(r"partition=(\d{1,10})")


class ArchiveFile(NamedTuple):
    partition: int
    first: Offset
    """First offset covered; its first record may be later."""
    last: Offset
    """Offset of its last record."""
    path: str
    size_bytes: int


class Staged(NamedTuple):
    """A complete file that is not yet in the table."""

    partition: int
    first: Offset
    last: Offset
    rows: int
    path: str


def file_name(first: Offset, last: Offset) -> str:
    return f"{first:020d}-{last:020d}.parquet"


# -- archive metadata -------------------------------------------------------------------------------------


class Archive(NamedTuple):
    """archive.json."""

    topic: str
    topic_id: str
    """As Kafka prints it; empty if the cluster has no topic ids."""
    partitions: int
    """Number of partitions of the topic at the last run."""
    isolation: str
    version: int = VERSION


def read_archive(directory: str) -> Archive | None:
    """The archive in a directory; None if there is none."""
    parsed = _read_json(f"{directory}/{OURS}/archive.json")
    if parsed is None:
        return None
    if (
        not isinstance(parsed, dict)
        or parsed.get("version") != VERSION
        or set(parsed) != set(Archive._fields)
    ):
        raise ArchiveFault(f"{directory}/{OURS}/archive.json has a format that this version does not support")
    return Archive(**parsed)


def the_archive(directory: str) -> Archive:
    found = read_archive(directory)
    if found is None:
        raise ArchiveFault(f"{directory} is not an archive: it has no {OURS}/archive.json")
    return found


def write_archive(directory: str, archive: Archive) -> None:
    os.makedirs(f"{directory}/{OURS}/staging", exist_ok=True)
    _write_json(f"{directory}/{OURS}/archive.json", archive._asdict())


def read_positions(directory: str) -> dict[int, Offset]:
    """The first offset not yet archived, by partition."""
    parsed = _read_json(f"{directory}/{OURS}/positions.json") or {}
    return {int(partition): int(offset) for partition, offset in parsed.items()}


def _read_json(path: str) -> Any:
    try:
        return json.loads(Path(path).read_text())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise ArchiveFault(f"{path} is not valid: {error}") from error


def _write_json(path: str, value: Mapping[str, Any]) -> None:
    draft = f"{path}.tmp"
    with open(draft, "w") as file:
        file.write(json.dumps(value, indent=1) + "\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, path)
    _sync_directory(os.path.dirname(path))


def _sync_directory(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def locked(directory: str, name: str, *, wait: bool = False) -> Iterator[None]:
    """Keep other processes of this machine out; raise at once if one holds the lock, unless `wait` is set."""
    path = f"{directory}/{OURS}/{name}"
    os.makedirs(os.path.dirname(path), exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise ArchiveFault(f"{directory} is in use: another process holds {path}") from None
        yield
    finally:
        os.close(descriptor)


# -- files ------------------------------------------------------------------------------------------------


def files_of(directory: str) -> dict[int, list[ArchiveFile]]:
    """The table's files by partition in offset order, without files within the range of another."""
    found: dict[int, list[ArchiveFile]] = {}
    for each in _all_files(directory):
        kept = found.setdefault(each.partition, [])
        if kept and each.last <= kept[-1].last:
            continue
        if kept and each.first <= kept[-1].last:
            raise ArchiveFault(
                f"{kept[-1].path} and {each.path} overlap: one of them is not from this archive"
            )
        kept.append(each)
    return found


def _all_files(directory: str) -> list[ArchiveFile]:
    """All files, by partition and first offset, the longer before the shorter."""
    found = []
    for folder in os.scandir(directory):
        parsed = _PARTITION.fullmatch(folder.name)
        if parsed is None or not folder.is_dir():
            continue
        for entry in os.scandir(folder.path):
            named = _FILE.fullmatch(entry.name)
            if named is not None:
                found.append(
                    ArchiveFile(
                        int(parsed[1]), int(named[1]), int(named[2]), entry.path, entry.stat().st_size
                    )
                )
    return sorted(found, key=lambda each: (each.partition, each.first, -each.last))


def tidy(directory: str) -> None:
    """Remove leftovers of a crash: staged files, and small files that were merged into a larger one."""
    for entry in os.scandir(f"{directory}/{OURS}/staging"):
        os.unlink(entry.path)
    kept = {each.path for files in files_of(directory).values() for each in files}
    for each in _all_files(directory):
        if each.path not in kept:
            os.unlink(each.path)


class FileWriter:
    """Writes rows of one partition, in offset order, to a file in staging."""

    def __init__(self, directory: str, partition: int) -> None:
        self.partition = partition
        self.path = f"{directory}/{OURS}/staging/{partition}-{uuid.uuid4().hex}.tmp"
        self._writer = pq.ParquetWriter(self.path, SCHEMA, compression="zstd")
        self._rows: list[pa.RecordBatch] = []
        self._rows_bytes = 0
        self._first: Offset | None = None
        self.last: Offset = -1
        self._count = 0

    def write(self, rows: pa.RecordBatch) -> None:
        offsets = rows.column("offset")
        first, last = offsets[0].as_py(), offsets[-1].as_py()
        if first <= self.last:
            raise ArchiveFault(f"partition {self.partition}: offset {first} came after {self.last}")
        self._first = first if self._first is None else self._first
        self.last = last
        self._count += rows.num_rows
        self._rows.append(rows.select(COLUMNS).cast(SCHEMA))
        self._rows_bytes += rows.nbytes
        if self._rows_bytes >= ROW_GROUP_BYTES:
            self._write_group()

    def _write_group(self) -> None:
        if self._rows:
            self._writer.write_table(pa.Table.from_batches(self._rows), row_group_size=1 << 30)
        self._rows, self._rows_bytes = [], 0

    def finish(self) -> Staged:
        self._write_group()
        self._writer.close()
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        assert self._first is not None, "a file has at least one row"
        return Staged(self.partition, self._first, self.last, self._count, self.path)

    def discard(self) -> None:
        self._writer.close()
        discard(self.path)


def discard(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)


def rows_of(path: str, start: Offset = 0) -> Iterator[pa.RecordBatch]:
    """The rows of a file from an offset on, some thousands at a time."""
    with pq.ParquetFile(path) as file:
        groups = [
            index
            for index in range(file.num_row_groups)
            if file.metadata.row_group(index).column(0).statistics.max >= start
        ]
        for rows in file.iter_batches(batch_size=BATCH_ROWS, row_groups=groups):
            kept = rows.filter(pc.greater_equal(rows.column("offset"), start))
            if kept.num_rows:
                yield kept


# -- commit and merge -------------------------------------------------------------------------------------


def install(directory: str, staged: list[Staged]) -> None:
    """Move staged files into the table, without offsets that it already has; then write the positions."""
    with locked(directory, "install.lock", wait=True):
        there = files_of(directory)
        positions = read_positions(directory)
        for each in sorted(staged):
            files = there.get(each.partition, [])
            position = max([positions.get(each.partition, 0), *(file.last + 1 for file in files)])
            _take(directory, each, files, position)
            positions[each.partition] = max(position, each.last + 1)
        for partition in {each.partition for each in staged}:
            _merge(directory, files_of(directory).get(partition, []))
        _write_json(
            f"{directory}/{OURS}/positions.json", {str(key): positions[key] for key in sorted(positions)}
        )


def _take(directory: str, staged: Staged, there: list[ArchiveFile], position: Offset) -> None:
    if staged.first >= position:
        # Batches are consecutive: there is no record between the last one and this one.
        _place(directory, staged._replace(first=position if there else staged.first))
        return
    # A replayed batch, or a lost checkpoint: only new offsets are added.
    start = staged.first
    for each in there:
        _place_part(directory, staged, start, each.first - 1)
        start = max(start, each.last + 1)
    _place_part(directory, staged, start, staged.last)
    discard(staged.path)


def _place_part(directory: str, staged: Staged, start: Offset, last: Offset) -> None:
    """Write the rows between two offsets to a new staged file."""
    if start > last:
        return
    writer: FileWriter | None = None
    for rows in rows_of(staged.path, start):
        kept = rows.filter(pc.less_equal(rows.column("offset"), last))
        if kept.num_rows:
            writer = writer or FileWriter(directory, staged.partition)
            writer.write(kept)
        if kept.num_rows < rows.num_rows:
            break
    if writer is not None:
        _place(directory, writer.finish()._replace(first=start))


def _place(directory: str, staged: Staged) -> None:
    folder = f"{directory}/partition={staged.partition}"
    if not os.path.isdir(folder):
        os.makedirs(folder, exist_ok=True)
        _sync_directory(directory)
    os.replace(staged.path, f"{folder}/{file_name(staged.first, staged.last)}")
    _sync_directory(folder)


def _merge(directory: str, files: list[ArchiveFile]) -> None:
    """Merge the last files while each is about as small as all after it together."""
    old: list[ArchiveFile] = []
    total = 0
    for each in reversed(files):
        is_next = not old or (each.last + 1 == old[0].first and each.size_bytes <= 2 * total)
        if not is_next or total + each.size_bytes > MERGED_BYTES_MAX:
            break
        old.insert(0, each)
        total += each.size_bytes
    if len(old) < 2:
        return
    writer = FileWriter(directory, old[0].partition)
    for each in old:
        for rows in rows_of(each.path):
            writer.write(rows)
    _place(directory, writer.finish()._replace(first=old[0].first))
    for each in old:
        os.unlink(each.path)
