"""`penstock archive`: archives a topic to a Parquet table with a Spark stream.

The stream reads the topic with headers and writes to its own sink: tasks write files to staging, and when all are done
the driver moves them into the table (`archive_table`). It is exactly-once because file names contain the offsets of
their rows, so a batch that Spark replays adds nothing. The checkpoint only holds the position.

A directory belongs to one topic id: a topic that was deleted and created again has other records at the same offsets.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from penstock.base.ids import uuid_text
from penstock.spark.archiving.archive_table import (
    OURS,
    Archive,
    FileWriter,
    Staged,
    discard,
    files_of,
    install,
    read_archive,
    tidy,
    write_archive,
)
from penstock.spark.errors import ArchiveFault
from penstock.spark.options import connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

FORMAT: Final = "penstock-archive"

BATCH_RECORDS_MAX: Final = 5_000_000
"""Maximum records of a batch, and so of its files: a topic with years of records is archived in steps."""


# -- the sink ---------------------------------------------------------------------------------------------


class ArchiveSink(DataSource):
    """The data source `penstock-archive`, registered only in the session of `penstock archive`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def streamWriter(self, schema: StructType, overwrite: bool) -> "ArchiveWriter":  # noqa: N802
        return ArchiveWriter(self.options["path"])


@dataclass
class TaskFiles(WriterCommitMessage):
    staged: list[Staged]


class ArchiveWriter(DataSourceStreamArrowWriter):
    def __init__(self, directory: str) -> None:
        self._directory = directory

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskFiles:
        """Write a task's rows, which are in offset order within each partition."""
        staged: list[Staged] = []
        writer: FileWriter | None = None
        try:
            for batch in iterator:
                for partition, rows in _runs(batch):
                    if writer is not None and writer.partition != partition:
                        staged.append(writer.finish())
                        writer = None
                    writer = writer or FileWriter(self._directory, partition)
                    writer.write(rows)
            if writer is not None:
                staged.append(writer.finish())
        except BaseException:
            if writer is not None:
                writer.discard()
            for each in staged:
                discard(each.path)
            raise
        return TaskFiles(staged)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        install(
            self._directory,
            [each for message in messages if isinstance(message, TaskFiles) for each in message.staged],
        )

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        for message in messages:
            if isinstance(message, TaskFiles):
                for each in message.staged:
                    discard(each.path)


def _runs(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Split rows by partition."""
    if not batch.num_rows:
        return
    partitions = batch.column("partition").to_numpy(zero_copy_only=False)
    start = 0
    for end in [*(partitions[1:] != partitions[:-1]).nonzero()[0] + 1, len(partitions)]:
        yield int(partitions[start]), batch.slice(start, int(end) - start)
        start = int(end)


# -- the job ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ArchiveJob:
    topic: str
    directory: str
    """Absolute: executors write there too."""
    server: str
    isolation: str = "read_committed"
    fails_on_data_loss: bool = True
    client: Mapping[str, str] = field(default_factory=dict)
    """Options of the source about the security of its connections."""

    @property
    def group(self) -> str:
        """Consumer group that shows the lag of the archive."""
        return f"penstock-archive-{self.topic}"


def look(job: ArchiveJob) -> Archive:
    """The archive that the directory will be; raises ArchiveFault if it is something else. Writes nothing."""
    with connect(job.server, job.client) as cluster:
        info = cluster.topic(job.topic)
    topic_id = uuid_text(info.topic_id) if info.topic_id else ""
    wanted = Archive(job.topic, topic_id, len(info.partitions), job.isolation)
    _check(job.directory, wanted)
    return wanted


def _check(directory: str, wanted: Archive) -> None:
    found = read_archive(directory)
    if found is None:
        if os.path.isdir(directory) and any(name != OURS for name in os.listdir(directory)):
            raise ArchiveFault(f"{directory} has other files, expected an archive or an empty directory")
    elif found.topic != wanted.topic:
        raise ArchiveFault(f"{directory} is the archive of topic {found.topic}, not of {wanted.topic}")
    elif found.topic_id != wanted.topic_id:
        raise ArchiveFault(
            f"topic {wanted.topic} was deleted and created again since it was archived in {directory} (its id was "
            f"{found.topic_id}, now it is {wanted.topic_id}): use another directory"
        )
    elif found.isolation != wanted.isolation:
        raise ArchiveFault(
            f"{directory} was archived with {found.isolation} and cannot be continued with {wanted.isolation}"
        )


def claim(job: ArchiveJob, wanted: Archive) -> None:
    """Make the directory an archive, and remove leftovers of a crash. The caller holds its lock."""
    _check(job.directory, wanted)
    write_archive(job.directory, wanted)
    tidy(job.directory)


def start(
    spark: "SparkSession", job: ArchiveJob, *, every: str | None, records_max: int = BATCH_RECORDS_MAX
) -> "StreamingQuery":
    """Start the stream: with `every` None for the existing records, otherwise a batch in each interval."""
    spark.dataSource.register(ArchiveSink)
    rows = (
        spark.readStream.format("penstock")
        .option("kafka.bootstrap.servers", job.server)
        .option("subscribe", job.topic)
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .option("isolation.level", job.isolation)
        .option("failOnDataLoss", str(job.fails_on_data_loss).lower())
        .option("maxOffsetsPerTrigger", str(records_max))
        .option("group", job.group)
        .options(**job.client)
        .load()
    )
    writer = rows.writeStream.format(FORMAT).option(
        "checkpointLocation", f"{job.directory}/{OURS}/checkpoint"
    )
    writer = writer.trigger(availableNow=True) if every is None else writer.trigger(processingTime=every)
    return writer.start(job.directory)


def archived(directory: str) -> tuple[int, int]:
    """Number of files and bytes of a table."""
    files = [each for listed in files_of(directory).values() for each in listed]
    return len(files), sum(each.size_bytes for each in files)
