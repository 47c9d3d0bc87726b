"""The columns of the source, in Spark's types and in Arrow's.

They are those of Spark's Kafka source, in its order. `headers` is included only on request. Spark compares
the first Arrow batch of a task with its schema, field by field, and requires exact equality: so the Arrow schema is
derived from the reader's Spark schema.

A reader's schema is the only way to decode fewer columns: the Python source API does not tell which columns a query
uses, so a user's `.schema("value binary, offset long")` decides. It may have any columns, in any order.
"""

from collections.abc import Sequence
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from penstock.arrow.schema import COLUMNS
from penstock.spark.errors import BadOption

HEADERS_TYPE: Final = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)

SCHEMA: Final = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
        StructField("headers", HEADERS_TYPE),
    ]
)
"""All columns."""


def default_schema(*, with_headers: bool) -> StructType:
    """The columns of a reader without a schema."""
    return SCHEMA if with_headers else StructType([each for each in SCHEMA.fields if each.name != "headers"])


def wanted_columns(schema: StructType) -> Sequence[str]:
    """The columns of a user's schema, in its order. Raises BadOption for other names or types."""
    for field in schema.fields:
        if field.name not in COLUMNS:
            raise BadOption(f"the schema has a column {field.name!r}, expected some of {', '.join(COLUMNS)}")
        expected = SCHEMA[field.name].dataType
        if _plain(field.dataType) != _plain(expected):
            raise BadOption(
                f"the schema has column {field.name} as {field.dataType.simpleString()}, "
                f"expected {expected.simpleString()}"
            )
        if field.dataType != expected or not field.nullable:
            raise BadOption(f"the schema has column {field.name} as NOT NULL, expected one that may be null")
    if len(set(schema.names)) != len(schema.names):
        raise BadOption(f"the schema names a column twice: {', '.join(schema.names)}")
    if not schema.fields:
        raise BadOption(f"the schema is empty, expected some of {', '.join(COLUMNS)}")
    return tuple(schema.names)


def _plain(kind: DataType) -> str:
    """A type without nullability."""
    return str(kind.simpleString())
