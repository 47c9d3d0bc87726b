"""The writers for `df.write` and `writeStream`.

Spark creates a writer on the driver, pickles it into the tasks of a job or of one micro-batch, and creates another to
commit. So state travels only in a task's message, and a writer holds no connection. A task reads its query, run, batch
and attempt from Spark's task context.

    sink_options  options of a writer, checked         rows          columns, and rows by topic
    write_task    rows to partitions                   sending       batches on their way
    job           a batch job: all or nothing          micro_batch   a stream's batch: once
    ledger        what a query has committed           transactions  opened by tasks, ended by the driver
"""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from penstock.client.cluster import Cluster
from penstock.spark.errors import BadOption
from penstock.spark.writing.job import JobTaskResult, abort_job, commit_job, write_job_rows
from penstock.spark.writing.micro_batch import TaskId, TaskResult, abort_batch, commit_batch, write_rows
from penstock.spark.writing.rows import check_columns
from penstock.spark.writing.sink_options import SinkOptions, read_sink_options

if TYPE_CHECKING:
    from penstock.spark.writing.typed_values import TypedValues

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
RUN_ID = "spark.jobGroup.id"
"""Local properties that Spark gives the tasks of a streaming query."""


def writer(schema: StructType, options: Mapping[str, str], overwrite: bool) -> "JobWriter":
    """For df.write. Reports mistakes in options or columns, and servers that do not answer, before anything runs."""
    if overwrite:
        raise BadOption(
            "mode overwrite is not for topics, expected mode append: records are added, never replaced"
        )
    read = _checked(schema, options)
    with Cluster(read.servers, read.client) as cluster:
        cluster.refresh([])
    return JobWriter(read, uuid.uuid4().hex, _typed(schema, read))


def stream_writer(
    schema: StructType,
    options: Mapping[str, str],
    overwrite: bool,  # noqa: ARG001  # output mode complete: each batch adds the whole result, as Spark's own sink does
) -> "StreamWriter | JobLikeStreamWriter":
    """For writeStream."""
    read = _checked(schema, options)
    typed = _typed(schema, read)
    return StreamWriter(read, typed) if read.is_transactional else JobLikeStreamWriter(read, typed)


def _checked(schema: StructType, options: Mapping[str, str]) -> SinkOptions:
    read = read_sink_options(options)
    if read.typed:
        from penstock.spark.writing.typed_values import as_bytes  # noqa: PLC0415  # imports encoders

        schema = as_bytes(schema, read)
    check_columns(schema, read.topic)
    return read


def _typed(schema: StructType, options: SinkOptions) -> "TypedValues | None":
    if not options.typed:
        return None
    from penstock.spark.writing.typed_values import register  # noqa: PLC0415

    return register(schema, options)


def _encoded(batches: Iterator[pa.RecordBatch], typed: "TypedValues | None") -> Iterator[pa.RecordBatch]:
    return batches if typed is None else typed.of(batches)


def _connect(options: SinkOptions) -> Cluster:
    """Each task and each commit begins here, at any time of a job or a query: brokers that are away just then are
    waited for, as long as `kafka.max.block.ms` says."""
    return Cluster(options.servers, options.client, retries_bootstrap=True)


@dataclass(frozen=True)
class JobMessage(WriterCommitMessage):
    result: JobTaskResult


@dataclass(frozen=True)
class StreamMessage(WriterCommitMessage):
    result: TaskResult


class JobWriter(DataSourceArrowWriter):
    def __init__(self, options: SinkOptions, job: str, typed: "TypedValues | None" = None) -> None:
        self._options = options
        self._job = job
        self._typed = typed

    def write(self, iterator: Iterator[pa.RecordBatch]) -> JobMessage:
        context = _context()
        # An attempt's number is unique in the application, also where a stage runs twice.
        task = f"{context.partitionId()}.{context.taskAttemptId()}"
        with _connect(self._options) as cluster:
            rows = _encoded(iterator, self._typed)
            return JobMessage(write_job_rows(cluster, self._options, self._job, task, rows))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        with _connect(self._options) as cluster:
            commit_job(cluster, self._options, self._job, _job_results(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        with _connect(self._options) as cluster:
            abort_job(cluster, self._options, self._job, _job_results(messages))


class StreamWriter(DataSourceStreamArrowWriter):
    """Exactly once: see `micro_batch`."""

    def __init__(self, options: SinkOptions, typed: "TypedValues | None" = None) -> None:
        self._options = options
        self._typed = typed

    def connect(self) -> Cluster:
        return _connect(self._options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StreamMessage:
        task_id = _place(_context())
        with self.connect() as cluster:
            rows = _encoded(iterator, self._typed)
            return StreamMessage(write_rows(cluster, self._options, task_id, rows))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        with self.connect() as cluster:
            commit_batch(cluster, self._options, _stream_results(messages), batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        with self.connect() as cluster:
            abort_batch(cluster, self._options, _stream_results(messages), batchId)


class JobLikeStreamWriter(DataSourceStreamArrowWriter):
    """At least once, for `transactional` = false: rows are visible as soon as they are written."""

    def __init__(self, options: SinkOptions, typed: "TypedValues | None" = None) -> None:
        self._options = options
        self._typed = typed

    def write(self, iterator: Iterator[pa.RecordBatch]) -> JobMessage:
        with _connect(self._options) as cluster:
            rows = _encoded(iterator, self._typed)
            return JobMessage(write_job_rows(cluster, self._options, "", "", rows))


def _job_results(messages: Sequence[WriterCommitMessage | None]) -> list[JobTaskResult]:
    return [each.result for each in messages if isinstance(each, JobMessage)]


def _stream_results(messages: Sequence[WriterCommitMessage | None]) -> list[TaskResult]:
    return [each.result for each in messages if isinstance(each, StreamMessage)]


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "rows are written by tasks"
    return context


def _place(context: TaskContext) -> TaskId:
    properties = {name: context.getLocalProperty(name) for name in (QUERY_ID, BATCH_ID, RUN_ID)}
    missing = [name for name, value in properties.items() if not value]
    if missing:
        raise BadOption(
            f"Spark did not tell the task its {missing[0]}, which the sink needs to write each batch once; "
            "option transactional=false does without"
        )
    return TaskId(
        query=str(properties[QUERY_ID]),
        run=str(properties[RUN_ID]),
        batch=int(str(properties[BATCH_ID])),
        task=context.partitionId(),
        attempt=context.attemptNumber(),
    )
