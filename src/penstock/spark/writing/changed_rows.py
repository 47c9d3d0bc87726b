"""Rows that change, written to a topic: each micro-batch once, in output mode update.

Spark does not let a Python sink be written to in mode update, though for a topic it is the plainest of all: a changed
row is one more record. So these batches go through a function (foreachBatch) that writes each as a job of its own.
The jobs run inside the streaming query and carry its id and the batch's number, as the tasks of a streaming sink do:
the same steps make each batch appear once (`micro_batch`).

    counts.writeStream.outputMode("update").foreachBatch(changed_rows(spark, options))
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceWriter, WriterCommitMessage

from penstock.spark.writing.sink import JobLikeStreamWriter, StreamMessage, StreamWriter, stream_writer
from penstock.spark.writing.sink_options import read_sink_options

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


class ChangedRows(DataSource):
    """The streaming sink, for a batch that a streaming query hands to a function."""

    @classmethod
    def name(cls) -> str:
        return "penstock_changed_rows"

    def writer(self, schema: "StructType", overwrite: bool) -> DataSourceWriter:
        return BatchWriter(stream_writer(schema, self.options, overwrite))


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, inner: StreamWriter | JobLikeStreamWriter) -> None:
        self._inner = inner

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        return self._inner.write(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        batch = _batch(messages)
        if batch is not None:
            self._inner.commit(list(messages), batch)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        batch = _batch(messages)
        if batch is not None:
            self._inner.abort(list(messages), batch)


def _batch(messages: Sequence[WriterCommitMessage | None]) -> int | None:
    """The batch id that the tasks were given; None if no task wrote in a transaction."""
    return next((each.result.task_id.batch for each in messages if isinstance(each, StreamMessage)), None)


def changed_rows(spark: "SparkSession", options: Mapping[str, str]) -> "Callable[[DataFrame, int], None]":
    """A function for foreachBatch that writes each batch to a topic. Its options are those of the sink."""
    read_sink_options(options)
    spark.dataSource.register(ChangedRows)

    def write(batch: "DataFrame", batch_id: int) -> None:  # noqa: ARG001  # the tasks know it
        batch.write.format(ChangedRows.name()).options(**options).mode("append").save()

    return write
