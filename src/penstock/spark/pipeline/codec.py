"""Converts values of records to columns, and back.

source, value: json     the schema's columns, and those of the record as _key, _topic, _partition, _offset, ...
source, value: string   key, value, topic, partition, offset, ... with the value as text
source, value: raw      the same, with the value as bytes
sink, value: json       one object of all columns; `key` names the column that becomes the key, as text
sink, value: string     one column
sink, value: raw        unchanged: the query has the columns key, value, headers, ... of a record
"""

from typing import TYPE_CHECKING

from .errors import one_sentence, shown
from .spec import METADATA_ALL, TopicSink, TopicSource

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

CORRUPT = "_corrupt"
"""Column for the text of a bad record with `bad_records: keep`; null in good rows."""

_TYPES = {
    "key": "BINARY",
    "value": "BINARY",
    "topic": "STRING",
    "partition": "INT",
    "offset": "BIGINT",
    "timestamp": "TIMESTAMP",
    "timestampType": "INT",
    "headers": "ARRAY<STRUCT<key: STRING, value: BINARY>>",
}


class Unfit(Exception):
    """Columns do not fit the file; `key` is the key of the file that requires them."""

    def __init__(self, key: str, sentence: str) -> None:
        super().__init__(sentence)
        self.key = key


def wanted_schema(source: TopicSource) -> str:
    """The columns of a record that are decoded."""
    wanted = {"value", *source.metadata}
    return ", ".join(f"`{name}` {kind}" for name, kind in _TYPES.items() if name in wanted)


def decode(records: "DataFrame", source: TopicSource) -> "DataFrame":
    """The columns that a query sees of a topic's records."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415  # its name everywhere
    from pyspark.sql.types import StructType  # noqa: PLC0415

    prefix = "_" if source.value == "json" else ""
    columns = [_coded(name, source).alias(prefix + name) for name in METADATA_ALL if name in source.metadata]
    if source.value != "json":
        value = F.col("value").cast("string") if source.value == "string" else F.col("value")
        at = 1 if "key" in source.metadata else 0
        return records.select(*columns[:at], value.alias("value"), *columns[at:])
    assert source.schema is not None  # checked in `parse`
    schema = columns_of(source.schema, "schema")
    taken = {f"_{name}".lower() for name in source.metadata} | {CORRUPT}
    for name in schema.names:
        if name.lower() in taken:
            raise Unfit(
                "schema", f"has the column {name}, which is a column of the record; expected another name"
            )
    options = {"mode": "FAILFAST"}
    if source.bad_records != "fail":
        schema = StructType(schema.fields).add(CORRUPT, "string")
        options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    own = [prefix + name for name in METADATA_ALL if name in source.metadata]
    value = F.from_json(F.col("value").cast("string"), schema, options).alias("value")
    rows = records.select(value, *columns).select("value.*", *own)
    return rows if source.bad_records != "drop" else rows.where(F.col(CORRUPT).isNull()).drop(CORRUPT)


def columns_of(schema: str, key: str) -> "StructType":
    """Parse a `schema` of the file with Spark; `key` is its key."""
    from pyspark.sql.types import StructType  # noqa: PLC0415

    try:
        columns = StructType.fromDDL(schema)
    except Exception as error:
        raise Unfit(key, f"{shown(schema)} is not a list of columns: {one_sentence(error)}") from error
    if not isinstance(columns, StructType):
        raise Unfit(key, f"{shown(schema)} is one type, expected columns: `id BIGINT, name STRING`")
    return columns


def _coded(name: str, source: TopicSource) -> "Column":
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    column = F.col(name)
    if name != "key" or source.key == "raw":
        return column
    text = column.cast("string")
    if source.key == "string":
        return text
    assert source.key_schema is not None  # checked in `parse`
    return F.from_json(text, columns_of(source.key_schema, "key_schema"))


def encode(rows: "DataFrame", sink: TopicSink) -> "DataFrame":
    """The columns of records, from a query's rows."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    names = rows.columns
    if sink.value == "raw":
        if "value" not in names:
            raise Unfit("value", f"raw needs a column value, found {', '.join(names)}")
        if sink.topic is None and "topic" not in names:
            raise Unfit("topics", f"by row needs a column topic, found {', '.join(names)}")
        return rows
    for key, name in (("key", sink.key), ("column", sink.column if sink.value == "string" else None)):
        if name is not None and name not in names:
            raise Unfit(key, f"{name!r} is not a column of the query, expected one of {', '.join(names)}")
    if sink.value == "string":
        value = F.col(f"`{sink.column}`").cast("string")
    else:
        value = F.to_json(F.struct(*(F.col(f"`{name}`") for name in names)), {"ignoreNullFields": "false"})
    columns = [value.alias("value")]
    if sink.key is not None:
        columns.insert(0, F.col(f"`{sink.key}`").cast("string").alias("key"))
    return rows.select(*columns)
