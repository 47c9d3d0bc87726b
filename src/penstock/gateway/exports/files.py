"""The child's work: a range's segments, read and decoded as Spark's scans do it, into one file.

Columns are decoded some megabytes at a time and written as they come, so that memory does not depend on the range.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

import pyarrow as pa
from pyarrow import parquet

from penstock.arrow.errors import DataLoss
from penstock.arrow.scan.log_dirs import LogLocation
from penstock.arrow.scan.read_range import ScanRange, read_range
from penstock.arrow.scan.transaction_outcomes import AbortedRange
from penstock.arrow.schema import ARROW_TYPES
from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import Offset, TopicPartition
from penstock.gateway.exports.job import ARROW_STREAM, PARQUET, ExportedFile, ExportRefused, ExportSpec, Span
from penstock.vfs import File, Vfs

ROW_GROUP_BYTES: Final = 32 << 20
"""Of Parquet's row groups: large enough that readers pay little for each, small enough to be held."""

_TEXTS: Final = ("key", "value")


def make(vfs: Vfs, wanted: ExportSpec, path: str) -> ExportedFile | ExportRefused:
    try:
        file = vfs.open(path, write=True, create=True)
        try:
            file.truncate(0)
            return _write(vfs, wanted, file)
        finally:
            file.close()
    except DataLoss as error:
        return ExportRefused(ErrorCode.OFFSET_OUT_OF_RANGE, str(error))
    except KafkaError as error:
        return ExportRefused(error.code, str(error))
    except OSError as error:
        return ExportRefused(
            ErrorCode.KAFKA_STORAGE_ERROR, f"cannot create the file: {error.strerror or error}"
        )


class _Tail:
    """A file, as pyarrow writes to it."""

    closed = False

    def __init__(self, file: File) -> None:
        self._file = file
        self.size = 0

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self._file.pwrite([view], self.size)
        self.size += len(view)
        return len(view)

    def tell(self) -> int:
        return self.size

    def flush(self) -> None: ...

    def close(self) -> None: ...

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False


class _Groups:
    """Parquet, in row groups of a good size."""

    def __init__(self, sink: Any, schema: pa.Schema) -> None:
        self._writer = parquet.ParquetWriter(sink, schema, compression="zstd", compression_level=1)
        self._schema = schema
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = 0

    def write_batch(self, batch: pa.RecordBatch) -> None:
        self._held.append(batch)
        self._held_bytes += batch.nbytes
        if self._held_bytes >= ROW_GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._held:
            table = pa.Table.from_batches(self._held, self._schema)
            self._writer.write_table(table, row_group_size=len(table))
        self._held, self._held_bytes = [], 0

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Discard an unfinished file. Arrow's writer would otherwise write its footer when it is garbage collected,
        and fail because the file is closed."""
        if self._writer.is_open:
            with suppress(OSError, pa.ArrowException):
                self._writer.close()
            self._writer.is_open = False


def _write(vfs: Vfs, wanted: ExportSpec, file: File) -> ExportedFile | ExportRefused:
    schema = pa.schema([pa.field(name, _type(name, wanted)) for name in wanted.columns])
    tail = _Tail(file)
    with pa.PythonFile(tail, mode="w") as sink:
        if wanted.content_type == PARQUET:
            writer: Any = _Groups(sink, schema)
        elif wanted.content_type == ARROW_STREAM:
            writer = pa.ipc.new_stream(sink, schema)
        else:
            writer = pa.ipc.new_file(sink, schema)
        with writer:
            rows, following = _write_rows(vfs, wanted, schema, writer)
            if following is not None and not wanted.may_be_cut:
                return ExportRefused(
                    ErrorCode.RECORD_LIST_TOO_LARGE,
                    f"the range has more than {wanted.bytes_max} bytes. Request a shorter range, or set "
                    "limit or max_bytes.",
                )
            writer.close()
    return ExportedFile(rows, tail.size, following)


def _write_rows(
    vfs: Vfs, wanted: ExportSpec, schema: pa.Schema, writer: Any
) -> tuple[int, tuple[int, Offset] | None]:
    """How many there are, and where the first one is that did not fit."""
    rows = size = 0
    for span, batch in _batches(vfs, wanted):
        offsets = batch.column(batch.schema.get_field_index("offset"))
        size += batch.nbytes
        left = len(batch) if wanted.rows_max is None else wanted.rows_max - rows
        if left <= 0 or (size > wanted.bytes_max and rows):
            return rows, (span.partition, offsets[0].as_py())
        shown = batch.slice(0, left)
        writer.write_batch(_shaped(shown, span, wanted, schema))
        rows += len(shown)
        if left < len(batch):
            return rows, (span.partition, offsets[left].as_py())
    return rows, None


def _batches(vfs: Vfs, wanted: ExportSpec) -> Iterator[tuple[Span, pa.RecordBatch]]:
    columns = tuple(dict.fromkeys((*wanted.columns, "offset")))
    for span in wanted.spans:
        scan = ScanRange(
            LogLocation(TopicPartition(span.topic, span.partition), span.directory, span.log_start),
            span.start,
            span.stop,
            aborted=tuple(AbortedRange(*each) for each in span.aborted),
        )
        if span.start < span.stop:
            for batch in read_range(vfs, scan, columns, fails_on_data_loss=True):
                if len(batch):
                    yield span, batch


def _type(name: str, wanted: ExportSpec) -> pa.DataType:
    return pa.string() if wanted.is_text and name in _TEXTS else ARROW_TYPES[name]


def _shaped(batch: pa.RecordBatch, span: Span, wanted: ExportSpec, schema: pa.Schema) -> pa.RecordBatch:
    """The columns that are wanted, in their order and types."""
    arrays = []
    for name in wanted.columns:
        array = batch.column(batch.schema.get_field_index(name))
        if wanted.is_text and name in _TEXTS:
            try:
                array = array.cast(pa.string())
            except pa.ArrowInvalid:
                first = batch.column(batch.schema.get_field_index("offset"))[0].as_py()
                raise KafkaError(
                    f"the {name} of a record of {span.topic}-{span.partition} at offset {first} or behind it is "
                    "not text in UTF-8: read it without decode",
                    ErrorCode.INVALID_RECORD,
                ) from None
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
