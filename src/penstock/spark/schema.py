"""The columns of the source, in Spark's types and in Arrow's.

They are those of Spark's Kafka source, in its order. `headers` is among them only if it is asked for. Spark compares
the first Arrow batch of a task with its own idea of the schema, field by field, and takes nothing that is merely
alike: `penstock.arrow.schema` is therefore made from the Spark schema that the reader was given.

A reader's schema is the one way to read less: the Python source API does not say which columns a query
uses, so a user's `.schema("value binary, offset long")` decides what is decoded. Any columns, in any order.
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
"""Every column there is."""


def default_schema(*, with_headers: bool) -> StructType:
    """The columns of a reader without a schema."""
    return SCHEMA if with_headers else StructType([each for each in SCHEMA.fields if each.name != "headers"])


def wanted_columns(schema: StructType) -> Sequence[str]:
    """The columns that a user's schema asks for, in its order. Other names, or other types, are refused."""
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
    """A type without what it says about nulls."""
    return str(kind.simpleString())
