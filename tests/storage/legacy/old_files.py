"""Files of the older systems, written field by field from their description and not by the code under test."""

import random
import struct
import zlib
from collections.abc import Iterable, Mapping

from penstock.base.ids import TopicPartition
from penstock.records import Record
from penstock.storage.directory import LogDirectory, open_directory
from penstock.storage.legacy.importer import ImportReport, import_directory
from penstock.storage.legacy.kafka_jr import IDEMPOTENCY_HEADER
from penstock.storage.legacy.layout import FORMATS
from penstock.storage.log import Log
from penstock.vfs import MemoryDisk, Vfs, parent

NOW_MS = 1_700_000_000_000

Files = Mapping[str, bytes]


def sized(value: bytes | None) -> bytes:
    return struct.pack(">i", -1) if value is None else struct.pack(">i", len(value)) + value


def minikafka_record(offset: int, timestamp: int, key: bytes | None, value: bytes | None) -> bytes:
    rest = struct.pack(">Iqq", zlib.crc32(value or b""), offset, timestamp) + sized(key) + sized(value)
    return struct.pack(">i", len(rest)) + rest


def kafka_jr_record(
    topic: str,
    partition: int,
    offset: int,
    timestamp: int,
    key: bytes | None,
    value: bytes | None,
    idempotency_key: bytes | None = None,
) -> bytes:
    rest = sized(topic.encode()) + struct.pack(">iqq", partition, offset, timestamp)
    rest += sized(key) + sized(value) + sized(idempotency_key)
    return struct.pack(">i", len(rest)) + rest


def encode(format_name: str, partition: TopicPartition, record: Record) -> bytes:
    offset, timestamp, key, value, headers, _ = record
    if format_name == "minikafka":
        return minikafka_record(offset, timestamp, key, value)
    return kafka_jr_record(*partition, offset, timestamp, key, value, dict(headers).get(IDEMPOTENCY_HEADER))


def path_in(format_name: str, partition: TopicPartition, base_offset: int = 0) -> str:
    """Where a segment lies in a source at `/old`."""
    root = "/old/logs" if format_name == "minikafka" else "/old"
    return f"{root}/{partition.topic}/{partition.partition}/{base_offset:020d}.log"


def put(vfs: Vfs, files: Files) -> None:
    for path, data in files.items():
        vfs.make_dirs(parent(path))
        file = vfs.open(path, write=True, create=True)
        file.pwrite([data], 0)
        file.close()


def put_records(vfs: Vfs, format_name: str, partition: TopicPartition, records: Iterable[Record]) -> bytes:
    """One segment with these records; returns its bytes."""
    data = b"".join(encode(format_name, partition, record) for record in records)
    put(vfs, {path_in(format_name, partition): data})
    return data


def opened(vfs: Vfs, path: str = "/data") -> LogDirectory:
    return open_directory(vfs, path, now_ms=NOW_MS, rng=random.Random(7))


def run_import(
    vfs: Vfs,
    format_name: str,
    *,
    source: str = "/old",
    data: str = "/data",
    skip_corrupt: bool = False,
    skip_existing: bool = False,
) -> ImportReport:
    """Import, and close the data directory cleanly."""
    directory = opened(vfs, data)
    try:
        return import_directory(
            source,
            FORMATS[format_name],
            directory,
            now_ms=NOW_MS,
            rng=random.Random(8),
            skip_corrupt=skip_corrupt,
            skip_existing=skip_existing,
        )
    finally:
        directory.close()


def records_of(log: Log) -> list[Record]:
    return [record for batch in log.batches() for record in batch.records()]


def contents(vfs: Vfs, path: str = "/data") -> dict[TopicPartition, list[Record]]:
    """All records of a data directory, read after a start of its own."""
    directory = opened(vfs, path)
    try:
        return {partition: records_of(log) for partition, log in sorted(directory.logs.items())}
    finally:
        directory.close()


def some_records(count: int, *, start: int = 0) -> list[Record]:
    return [
        Record(start + index, NOW_MS + index, b"key-%d" % index, b"value %d" % index * (index % 3 + 1))
        for index in range(count)
    ]


def new_disk() -> MemoryDisk:
    return MemoryDisk()
