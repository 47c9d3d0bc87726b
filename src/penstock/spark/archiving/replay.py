"""`penstock replay`: writes an archived topic back to a topic, in order.

Records are written to the partition with the same number, with their keys, values, headers and timestamps, in
transactions of some megabytes. Each transaction also commits its position in the archive to a consumer group. Records
and position are committed atomically, so an interrupted replay continues exactly after its last transaction. All
runs have the same transactional id, so a new run fences the previous one.

This needs no Spark: the files are in order, and one process can saturate a network.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import pyarrow as pa

from penstock.base.errors import ErrorCode
from penstock.base.ids import Offset, TopicPartition
from penstock.client.admin import (
    NewTopic,
    Resource,
    ResourceType,
    create_topics,
    describe_configs,
    describe_topics,
)
from penstock.client.cluster import Cluster
from penstock.client.group_offsets import Committed, commit_offsets, fetch_offsets
from penstock.client.identity import init_transactions
from penstock.client.offsets import LATEST, list_offsets
from penstock.client.settings import parse_servers
from penstock.client.transactional import (
    OpenTransaction,
    commit_in_transaction,
    end_transactions,
    uses_epoch_bumps,
)
from penstock.records import Codec
from penstock.spark.archiving.archive_table import Archive, ArchiveFile, files_of, rows_of, the_archive
from penstock.spark.errors import ArchiveFault
from penstock.spark.options import connect
from penstock.spark.writing.column_producer import ColumnProducer
from penstock.spark.writing.sink_options import SinkOptions

CHUNK_BYTES: Final = 16 << 20
"""Size of a transaction: large relative to its overhead, small relative to its timeout."""

TRANSACTION_TIMEOUT_MS: Final = 60_000

_STAMPS: Final = "message.timestamp.type"
_RETENTION: Final = "retention.ms"


@dataclass(frozen=True)
class ReplayJob:
    directory: str
    topic: str
    server: str
    codec: Codec = Codec.ZSTD
    client: Mapping[str, str] = field(default_factory=dict)
    """Options about the security of connections, as the sink has them."""

    @property
    def group(self) -> str:
        """Consumer group of the position; also the transactional id."""
        return f"penstock-replay-{self.topic}"


class Replayed(NamedTuple):
    records: int
    bytes: int
    skipped: int
    """Partitions that were complete before."""
    is_resumed: bool
    warning: str = ""


def replay(job: ReplayJob, on_progress: Callable[[int], None] = lambda _: None) -> Replayed:
    """Replay all records that are not in the topic yet."""
    archive = the_archive(job.directory)
    files = files_of(job.directory)
    with connect(job.server, job.client) as cluster:
        warning = _prepare_topic(cluster, job, archive, files)
        bumps = uses_epoch_bumps(cluster)
        # From here on an earlier run that may still be active is fenced.
        init_transactions(cluster, job.group, TRANSACTION_TIMEOUT_MS)
        positions, is_resumed = _positions(cluster, job, archive, files)
        records = size = skipped = 0
        for partition, listed in sorted(files.items()):
            target = TopicPartition(job.topic, partition)
            start = positions[target]
            if start > listed[-1].last:
                skipped += 1
                continue
            for chunk in _chunks(listed, start):
                size += _send(cluster, job, target, chunk, _mark(archive), epoch_bumps=bumps)
                records += sum(each.num_rows for each in chunk)
                on_progress(records)
    return Replayed(records, size, skipped, is_resumed, warning)


def _mark(archive: Archive) -> str:
    """Metadata of the committed position, which identifies the archive."""
    return f"{archive.topic} {archive.topic_id}"


# -- before the first record ------------------------------------------------------------------------------


def _prepare_topic(
    cluster: Cluster, job: ReplayJob, archive: Archive, files: dict[int, list[ArchiveFile]]
) -> str:
    """Create the topic, or check that the archive fits into it; return a warning for the user."""
    needed = max([archive.partitions, *(each + 1 for each in files)])
    [info] = describe_topics(cluster, [job.topic])
    if info.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        # Records keep their timestamps: with the usual retention old ones would be deleted at once.
        [outcome] = create_topics(cluster, [NewTopic(job.topic, needed, configs={_RETENTION: "-1"})])
        if outcome.error is not None and outcome.error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            raise outcome.error
        return ""
    if len(info.partitions) < needed:
        raise ArchiveFault(
            f"topic {job.topic} has {len(info.partitions)} partitions, expected at least {needed}, as many as "
            f"were archived in {job.directory}"
        )
    described = describe_configs(cluster, Resource(ResourceType.TOPIC, job.topic), [_STAMPS, _RETENTION])
    configs = {each.name: each.value for each in described}
    if configs.get(_STAMPS) == "LogAppendTime":
        raise ArchiveFault(
            f"topic {job.topic} has {_STAMPS}=LogAppendTime, expected CreateTime, which keeps the records' timestamps"
        )
    return _retention_warning(job, configs.get(_RETENTION), files)


def _retention_warning(job: ReplayJob, retention_ms: str | None, files: dict[int, list[ArchiveFile]]) -> str:
    if retention_ms is None or int(retention_ms) < 0:
        return ""
    firsts = [next(rows_of(listed[0].path)).column("timestamp")[0] for listed in files.values() if listed]
    oldest = min((each.cast(pa.int64()).as_py() // 1000 for each in firsts if each.is_valid), default=None)
    if oldest is None or oldest >= time.time() * 1000 - int(retention_ms):
        return ""
    return f"topic {job.topic} has {_RETENTION}={retention_ms}: older records will be deleted again"


def _positions(
    cluster: Cluster, job: ReplayJob, archive: Archive, files: dict[int, list[ArchiveFile]]
) -> tuple[dict[TopicPartition, Offset], bool]:
    """The position of each partition; committed before the first record, so that the next run recognises it."""
    wanted = {TopicPartition(job.topic, each): listed[0].first for each, listed in files.items()}
    noted = {each: at for each, at in fetch_offsets(cluster, job.group).items() if each.topic == job.topic}
    for each, at in noted.items():
        _check_mark(job, archive, each, at)
    fresh = {each: first for each, first in wanted.items() if each not in noted}
    ends = list_offsets(cluster, dict.fromkeys(fresh, LATEST)) if fresh else {}
    for each, found in ends.items():
        if found.offset > 0:
            raise ArchiveFault(
                f"topic {job.topic} has records in partition {each.partition} that no replay wrote, "
                "expected an empty or missing topic"
            )
    if fresh:
        commit_offsets(cluster, job.group, fresh)
    return {each: at.offset for each, at in noted.items()} | fresh, bool(noted)


def _check_mark(job: ReplayJob, archive: Archive, partition: TopicPartition, at: Committed) -> None:
    if at.metadata and at.metadata != _mark(archive):
        raise ArchiveFault(
            f"partition {partition} was replayed from the archive of another topic, {at.metadata.split()[0]}, "
            f"not from {job.directory}"
        )


# -- records ----------------------------------------------------------------------------------------------


def _chunks(files: list[ArchiveFile], start: Offset) -> Iterator[list[pa.RecordBatch]]:
    """The rows of a partition from an offset on, some megabytes at a time."""
    chunk: list[pa.RecordBatch] = []
    size = 0
    for each in files:
        if each.last < start:
            continue
        for rows in rows_of(each.path, start):
            chunk.append(rows)
            size += rows.nbytes
            if size >= CHUNK_BYTES:
                yield chunk
                chunk, size = [], 0
    if chunk:
        yield chunk


def _send(
    cluster: Cluster,
    job: ReplayJob,
    target: TopicPartition,
    chunk: list[pa.RecordBatch],
    mark: str,
    *,
    epoch_bumps: bool,
) -> int:
    """Write rows and the position after them in one transaction."""
    identity = init_transactions(cluster, job.group, TRANSACTION_TIMEOUT_MS)
    transaction = OpenTransaction(job.group, identity.producer_id, identity.epoch)
    options = SinkOptions(tuple(parse_servers(job.server)), codec=job.codec)
    producer = ColumnProducer(cluster, options, identity, transaction, epoch_bumps=epoch_bumps)
    for rows in chunk:
        producer.add(target, rows)
    producer.flush()
    after = chunk[-1].column("offset")[-1].as_py() + 1
    commit_in_transaction(
        cluster, transaction, job.group, {target: after}, metadata=mark, epoch_bumps=epoch_bumps
    )
    gone = end_transactions(cluster, [transaction], commit=True, epoch_bumps=epoch_bumps)
    if gone:
        raise ArchiveFault(
            f"another replay into topic {job.topic} has started, or this one took longer than "
            f"{TRANSACTION_TIMEOUT_MS // 1000} s for {CHUNK_BYTES >> 20} MB: nothing is lost, run it again"
        )
    return producer.bytes
