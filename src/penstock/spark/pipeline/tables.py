"""Sinks for Delta tables, without a jar, and for the console.

**Appends.** Executors write Parquet files into the table's directory, invisible until they are in its log. The
driver's commit adds all files of a micro-batch in one transaction of the table, which also records the flow and the
batch number (Delta's application transactions). A batch that is repeated, because the run died before Spark recorded
its end, is found in the log and skipped. Files of failed tasks stay invisible; `vacuum` removes them.

**Upserts.** The rows of a batch are collected on the driver and merged in one transaction, with the same record.
A batch must fit into the driver's memory, so limit it (`maxOffsetsPerTrigger`) if necessary.
"""

import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage

from .spec import DeltaSink

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable
    from deltalake.transaction import CommitProperties
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter
    from pyspark.sql.types import StructType

FILE_ROWS_MAX = 4_000_000
"""A larger task writes several files."""


class BadTable(Exception):
    """A table does not fit the rows of a flow."""


def appended(
    writer: "DataStreamWriter", spark: "SparkSession", sink: DeltaSink, flow_id: str
) -> "DataStreamWriter":
    """A query that appends its rows to a table, or in complete mode replaces the table."""
    spark.dataSource.register(DeltaTarget)
    return (
        writer.format(DeltaTarget.name())
        .option("path", sink.path)
        .option("flow_id", flow_id)
        .option("partition_by", json.dumps(sink.partition_by))
    )


class DeltaTarget(DataSource):
    @classmethod
    def name(cls) -> str:
        return "penstock_delta"

    def streamWriter(self, schema: "StructType", overwrite: bool) -> "DeltaWriter":  # noqa: N802  # Spark's name
        partition_by = tuple(json.loads(self.options["partition_by"]))
        return DeltaWriter(self.options["path"], self.options["flow_id"], partition_by, schema, overwrite)


TaskFile = tuple[str, int, dict[str, str | None], int]
"""A file of one task: path, bytes, partition values, rows."""


@dataclass
class DeltaTaskFiles(WriterCommitMessage):
    files: list[TaskFile]


def _files_of(messages: Sequence[WriterCommitMessage | None]) -> list[TaskFile]:
    return [file for message in messages if isinstance(message, DeltaTaskFiles) for file in message.files]


class DeltaWriter(DataSourceStreamArrowWriter):
    def __init__(
        self, path: str, flow_id: str, partition_by: tuple[str, ...], schema: "StructType", overwrite: bool
    ) -> None:
        self._path = path
        self._flow_id = flow_id
        self._partition_by = partition_by
        self._schema = schema
        self._overwrite = overwrite

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> DeltaTaskFiles:
        """On an executor: write Parquet files, one or more for each partition of the table."""
        schema = arrow_schema(self._schema)
        files = _Files(Path(self._path), self._partition_by, schema)
        try:
            for batch in iterator:
                files.add(fitted(batch, schema))
            return DeltaTaskFiles(files.end())
        except BaseException:
            files.abandon()
            raise

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """On the driver: make all files of a batch visible at once, unless they already are."""
        from deltalake.transaction import AddAction  # noqa: PLC0415

        schema = arrow_schema(self._schema)
        table = opened(self._path, schema, self._partition_by)
        files = _files_of(messages)
        if is_in(table, self._flow_id, batchId):
            self._forget(files)
            return
        if not files and not self._overwrite:
            return
        actions: list[AddAction] = [
            AddAction(
                path=path,
                size=size,
                partition_values=values,
                modification_time=int((Path(self._path) / path).stat().st_mtime * 1000),
                data_change=True,
                stats=json.dumps({"numRecords": rows}),
            )
            for path, size, values, rows in files
        ]
        table.create_write_transaction(
            list(actions),
            "overwrite" if self._overwrite else "append",
            schema,
            list(self._partition_by),
            commit_properties=noted(self._flow_id, batchId),
        )

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._forget(_files_of(messages))

    def _forget(self, files: list[TaskFile]) -> None:
        for path, *_ in files:
            (Path(self._path) / path).unlink(missing_ok=True)


class _Files:
    """The open files of one task."""

    def __init__(self, directory: Path, partition_by: tuple[str, ...], schema: "pa.Schema") -> None:
        import pyarrow as pa  # noqa: PLC0415

        self._directory = directory
        self._partition_by = partition_by
        self._inner = pa.schema([field for field in schema if field.name not in partition_by])
        self._open: dict[tuple[str | None, ...], tuple[str, Any, int]] = {}
        self._done: list[TaskFile] = []
        directory.mkdir(parents=True, exist_ok=True)

    def add(self, batch: "pa.RecordBatch") -> None:
        for values, rows in self._parts(batch):
            if values not in self._open:
                self._open[values] = self._begun()
            name, writer, count = self._open[values]
            writer.write_batch(rows)
            self._open[values] = (name, writer, count + rows.num_rows)
            if count + rows.num_rows >= FILE_ROWS_MAX:
                self._close(values)

    def end(self) -> list[TaskFile]:
        for values in list(self._open):
            self._close(values)
        return self._done

    def abandon(self) -> None:
        for name, writer, _ in self._open.values():
            writer.close()
            (self._directory / name).unlink(missing_ok=True)
        for name, *_ in self._done:
            (self._directory / name).unlink(missing_ok=True)

    def _begun(self) -> tuple[str, Any, int]:
        import pyarrow.parquet as pq  # noqa: PLC0415

        name = f"part-{uuid.uuid4()}.parquet"
        return name, pq.ParquetWriter(self._directory / name, self._inner, compression="zstd"), 0

    def _close(self, values: tuple[str | None, ...]) -> None:
        name, writer, rows = self._open.pop(values)
        writer.close()
        size = (self._directory / name).stat().st_size
        self._done.append((name, size, dict(zip(self._partition_by, values, strict=True)), rows))

    def _parts(self, batch: "pa.RecordBatch") -> "Iterator[tuple[tuple[str | None, ...], pa.RecordBatch]]":
        """The rows of each partition of the table."""
        import pyarrow as pa  # noqa: PLC0415
        import pyarrow.compute as pc  # noqa: PLC0415

        if batch.num_rows == 0:
            return
        if not self._partition_by:
            yield (), batch
            return
        columns = [_as_text(batch.column(name)) for name in self._partition_by]
        found: dict[tuple[str | None, ...], list[int]] = {}
        for row, values in enumerate(zip(*(column.to_pylist() for column in columns), strict=True)):
            found.setdefault(values, []).append(row)
        inner = batch.select(self._inner.names)
        for values, rows in found.items():
            yield values, pc.take(inner, pa.array(rows))


def _as_text(column: "pa.Array") -> "pa.Array":
    """A partition value in the format of Delta's log."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute as pc  # noqa: PLC0415

    kind = column.type
    if not (
        pa.types.is_string(kind)
        or pa.types.is_integer(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_date(kind)
    ):
        raise BadTable(f"a table can be partitioned by text, integers, dates or booleans, found {kind}")
    return pc.cast(column, pa.string())


def merge(sink: DeltaSink, flow_id: str, batch: "DataFrame", batch_id: int) -> None:
    """Merge the rows of a batch into a table by key. Repeated calls for a batch have no effect."""
    schema = arrow_schema(batch.schema)
    # Computed even if the table has the batch: an aggregation keeps only what was computed.
    rows = fitted(batch.toArrow(), schema)
    if rows.num_rows == 0:
        return
    keys = list(sink.upsert)
    distinct = rows.group_by(keys).aggregate([]).num_rows
    if distinct != rows.num_rows:
        raise BadTable(
            f"{rows.num_rows - distinct} rows of one batch have the same {', '.join(keys)} as another, so the result "
            "would be arbitrary; expected one row for each, as from an aggregation in mode update"
        )
    # Only now, so that a rejected batch creates no table.
    table = opened(sink.path, schema, sink.partition_by)
    if is_in(table, flow_id, batch_id):
        return
    predicate = " AND ".join(f"(t.{_quoted(key)} IS NOT DISTINCT FROM s.{_quoted(key)})" for key in keys)
    merger = table.merge(
        rows, predicate, source_alias="s", target_alias="t", commit_properties=noted(flow_id, batch_id)
    )
    merger.when_matched_update_all().when_not_matched_insert_all().execute()


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def opened(path: str, schema: "pa.Schema", partition_by: Sequence[str]) -> "DeltaTable":
    """Open the table, or create it. Raises BadTable if its columns differ."""
    from deltalake import DeltaTable, Schema  # noqa: PLC0415

    if not DeltaTable.is_deltatable(path):
        DeltaTable.create(path, schema, mode="ignore", partition_by=list(partition_by))
    table = DeltaTable(path)
    there = {field.name: field.type for field in table.schema().fields}
    ours = {field.name: field.type for field in Schema.from_arrow(schema).fields}
    for name in sorted(there.keys() | ours.keys()):
        if there.get(name) != ours.get(name):
            raise BadTable(
                f"Delta table {path} {_difference(name, there.get(name), ours.get(name))}; expected the same columns: "
                "change the query, name another directory, or remove the table to create it again"
            )
    if list(table.metadata().partition_columns) != list(partition_by):
        found = ", ".join(table.metadata().partition_columns) or "nothing"
        raise BadTable(
            f"Delta table {path} is partitioned by {found}, the flow by {', '.join(partition_by) or 'nothing'}"
        )
    return table


def _difference(name: str, there: Any, ours: Any) -> str:
    if ours is None:
        return f"has column {name}, which the flow does not write"
    if there is None:
        return f"has no column {name}, which the flow writes"
    return f"has column {name} as {_kind(there)}, the flow writes it as {_kind(ours)}"


def _kind(kind: Any) -> str:
    return str(getattr(kind, "type", kind))


def is_in(table: "DeltaTable", flow_id: str, batch_id: int) -> bool:
    """Whether a batch of this flow, or a later one, is in the table."""
    version = table.transaction_version(flow_id)
    return version is not None and version >= batch_id


def noted(flow_id: str, batch_id: int) -> "CommitProperties":
    """The batch under the flow's id; and a mark under the flow's name, which outlasts the id."""
    from deltalake import CommitProperties, Transaction  # noqa: PLC0415

    flow = flow_id.partition("/")[0]
    names = [Transaction(flow_id, batch_id)] + ([Transaction(flow, batch_id)] if flow != flow_id else [])
    return CommitProperties(app_transactions=names)


def has_rows_of(path: str, flow: str) -> bool:
    """Whether a flow, PIPELINE.FLOW, has written to a table, with any id."""
    from deltalake import DeltaTable  # noqa: PLC0415

    return DeltaTable.is_deltatable(path) and DeltaTable(path).transaction_version(flow) is not None


def arrow_schema(schema: "StructType") -> "pa.Schema":
    """Arrow types of a query's columns, all nullable; timestamps in UTC, as in Delta."""
    import pyarrow as pa  # noqa: PLC0415
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415

    return pa.schema([field.with_nullable(True) for field in to_arrow_schema(schema, timezone="UTC")])


def fitted(rows: Any, schema: "pa.Schema") -> Any:
    """Convert rows to exactly these types: Spark's timestamps are in the session's time zone."""
    return rows if rows.schema.equals(schema) else rows.select(schema.names).cast(schema)


def console(flow: str, rows_max: int) -> "Callable[[DataFrame, int], None]":
    """A function for foreachBatch that prints the first rows of each batch."""

    def show(batch: "DataFrame", batch_id: int) -> None:
        lines = [f"-- {flow}, batch {batch_id}", " | ".join(batch.columns)]
        count = 0
        for row in batch.toLocalIterator():  # all rows: an aggregation keeps only what was computed
            count += 1
            if count <= rows_max:
                lines.append(" | ".join(_cell(value) for value in row))
        if count > rows_max:
            lines.append(f"-- and {count - rows_max} more rows")
        if count:
            print("\n".join(lines), flush=True)

    return show


def _cell(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode(errors="backslashreplace")
    return str(value)
