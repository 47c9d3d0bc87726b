"""A DataFrame's rows as a topic's: which columns there are, what they may be, and where each row goes.

    value       string or binary, required; null is a tombstone
    key         string or binary
    headers     array<struct<key: string, value: binary>>
    timestamp   timestamp; null, or no such column: the time of writing
    topic       string; the option `topic` goes before it
    partition   int; null, or no such column: by the key, as Kafka's own producers do

Other columns are left out, so that what was read from a topic can be written to another as it is. `check_columns`
looks at the schema, once, on the driver; `split_by_topic` at the values, batch by batch, in a task.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    CharType,
    DataType,
    IntegerType,
    StringType,
    StructType,
    TimestampType,
    VarcharType,
)

from penstock.arrow.schema import ARROW_TYPES
from penstock.spark.errors import BadRows

_TEXT = (StringType, CharType, VarcharType)
_WANTED: Final = {
    "value": "string or binary",
    "key": "string or binary",
    "headers": "array<struct<key:string,value:binary>>",
    "timestamp": "timestamp",
    "topic": "string",
    "partition": "int",
}

RECORD_COLUMNS: Final = ("key", "value", "headers", "timestamp")
"""What a record carries; the rest says where it goes."""


def check_columns(schema: StructType, topic: str | None) -> None:
    """BadRows where a DataFrame of this schema cannot be written."""
    names = schema.names
    if "value" not in names:
        found = ", ".join(names) or "none"
        raise BadRows(f"the DataFrame has no column value, expected one of string or binary; it has {found}")
    if "topic" not in names and topic is None:
        raise BadRows("no topic is named, expected the option topic or a column topic of string")
    for name, words in _WANTED.items():
        if names.count(name) > 1:
            raise BadRows(f"the DataFrame has {names.count(name)} columns {name}, expected one")
        if name in names and not _fits(name, schema[name].dataType):
            raise BadRows(
                f"the DataFrame has column {name} as {schema[name].dataType.simpleString()}, expected {words}"
            )


def _fits(name: str, kind: DataType) -> bool:
    if name in ("key", "value"):
        return isinstance(kind, (*_TEXT, BinaryType))
    if name == "topic":
        return isinstance(kind, _TEXT)
    if name == "partition":
        return isinstance(kind, IntegerType)
    if name == "timestamp":
        return isinstance(kind, TimestampType)
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    fields = [(each.name, type(each.dataType)) for each in kind.elementType.fields]
    return fields == [("key", StringType), ("value", BinaryType)]


class Rows(NamedTuple):
    """Rows for one topic."""

    topic: str
    records: pa.RecordBatch
    """Some of RECORD_COLUMNS, in the types that the encoder takes."""
    partitions: pa.Array | None
    """As the column says, null where it does not."""


def split_by_topic(batch: pa.RecordBatch, topic: str | None) -> Iterator[Rows]:
    """A batch as Spark hands it over, by topic; order within a topic stays."""
    names = batch.schema.names
    columns = {name: _plain(name, batch.column(name)) for name in RECORD_COLUMNS if name in names}
    if "key" not in columns:
        columns["key"] = pa.nulls(batch.num_rows, pa.binary())
    records = pa.record_batch(columns)
    partitions = _plain("partition", batch.column("partition")) if "partition" in names else None
    _check_times(columns.get("timestamp"))
    _check_header_names(columns.get("headers"))
    if topic is not None:
        yield Rows(topic, records, partitions)
        return
    topics = _plain("topic", batch.column("topic"))
    if topics.null_count:
        raise BadRows("a row has null in column topic, expected the name of a topic (or the option topic)")
    encoded = topics.dictionary_encode()
    if len(encoded.dictionary) == 1:
        yield Rows(encoded.dictionary[0].as_py(), records, partitions)
        return
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    for code, name in enumerate(encoded.dictionary.to_pylist()):
        chosen = pa.array(np.flatnonzero(codes == code))
        yield Rows(name, records.take(chosen), None if partitions is None else pc.take(partitions, chosen))


def _plain(name: str, column: pa.Array) -> pa.Array:
    """In the type that the encoder knows: text becomes bytes, large offsets become small ones."""
    wanted = ARROW_TYPES[name]
    return column if column.type == wanted else column.cast(wanted)


def _check_times(times: pa.Array | None) -> None:
    if times is None or times.null_count == len(times):
        return
    earliest = pc.min(times.cast(pa.int64())).as_py()
    if earliest < 0:
        raise BadRows(f"a row has {pc.min(times)} in column timestamp, expected none before 1970")


def _check_header_names(headers: pa.Array | None) -> None:
    if headers is None:
        return
    elements = headers.flatten()
    if elements.null_count or pc.struct_field(elements, "key").null_count:
        raise BadRows("a row has a header whose key is null, expected a name for each header")
