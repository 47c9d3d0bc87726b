"""`penstock archive`: a topic kept as a Parquet table by a Spark stream.

The stream reads the topic with its headers and writes it through a sink of its own: tasks write files to staging, and
when all are done the driver puts them in their places (`archive_table`). What makes this exactly-once is that rows
have offsets and files say which they have, so a batch that Spark replays adds nothing; the checkpoint only says where
to go on.

A directory belongs to one topic, by its id: one that was deleted and made anew has other records at the same offsets.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from penstock.base.ids import uuid_text
from penstock.client.cluster import Cluster
from penstock.client.settings import parse_servers
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

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

FORMAT: Final = "penstock-archive"

BATCH_RECORDS_MAX: Final = 5_000_000
"""Of one batch, and so of its files: a topic that has years of records is archived in steps."""


# -- the sink ---------------------------------------------------------------------------------------------


class ArchiveSink(DataSource):
    """What `writeStream.format("penstock-archive")` is, in the session of `penstock archive` alone."""

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
        """A task's rows: those of a partition come in the order of offsets, as the source reads them."""
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
    """Rows of one partition each."""
    if not batch.num_rows:
        return
    partitions = batch.column("partition").to_numpy(zero_copy_only=False)
    start = 0
    for end in [*(partitions[1:] != partitions[:-1]).nonzero()[0] + 1, len(partitions)]:
        yield int(partitions[start]), batch.slice(start, int(end) - start)
        start = int(end)


# -- running it -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ArchiveJob:
    topic: str
    directory: str
    """Absolute: executors write there too."""
    server: str
    isolation: str = "read_committed"
    fails_on_data_loss: bool = True

    @property
    def group(self) -> str:
        """Whose lag says how far behind the archive is."""
        return f"penstock-archive-{self.topic}"


def look(job: ArchiveJob) -> Archive:
    """What the directory is to be the archive of; refused where it is something else. Nothing is written."""
    with Cluster(parse_servers(job.server)) as cluster:
        info = cluster.topic(job.topic)
    topic_id = uuid_text(info.topic_id) if info.topic_id else ""
    wanted = Archive(job.topic, topic_id, len(info.partitions), job.isolation)
    _check(job.directory, wanted)
    return wanted


def _check(directory: str, wanted: Archive) -> None:
    found = read_archive(directory)
    if found is None:
        if os.path.isdir(directory) and any(name != OURS for name in os.listdir(directory)):
            raise ArchiveFault(f"{directory} has other files in it, expected an archive, or nothing")
    elif found.topic != wanted.topic:
        raise ArchiveFault(f"{directory} is the archive of topic {found.topic}, not of {wanted.topic}")
    elif found.topic_id != wanted.topic_id:
        raise ArchiveFault(
            f"topic {wanted.topic} was deleted and made anew since it was archived in {directory} (its id was "
            f"{found.topic_id}, now it is {wanted.topic_id}): give another directory"
        )
    elif found.isolation != wanted.isolation:
        raise ArchiveFault(
            f"{directory} was archived with {found.isolation}, it cannot go on with {wanted.isolation}"
        )


def claim(job: ArchiveJob, wanted: Archive) -> None:
    """Make the directory an archive, and remove what a crash has left there. The caller holds its lock."""
    _check(job.directory, wanted)
    write_archive(job.directory, wanted)
    tidy(job.directory)


def start(
    spark: "SparkSession", job: ArchiveJob, *, every: str | None, records_max: int = BATCH_RECORDS_MAX
) -> "StreamingQuery":
    """Start the stream: what is there now with `every` None, else a batch each so often until it is stopped."""
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
        .load()
    )
    writer = rows.writeStream.format(FORMAT).option(
        "checkpointLocation", f"{job.directory}/{OURS}/checkpoint"
    )
    writer = writer.trigger(availableNow=True) if every is None else writer.trigger(processingTime=every)
    return writer.start(job.directory)


def archived(directory: str) -> tuple[int, int]:
    """How many files a table has, and how many bytes."""
    files = [each for listed in files_of(directory).values() for each in listed]
    return len(files), sum(each.size_bytes for each in files)
