"""The Arrow columns of records: names and types, in the order of Spark's Kafka source."""

from collections.abc import Iterable
from typing import Final

import pyarrow as pa

_HEADERS = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)
ARROW_TYPES: Final[dict[str, pa.DataType]] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": _HEADERS,
}

COLUMNS: Final = tuple(ARROW_TYPES)
"""All columns."""


def arrow_schema(columns: Iterable[str]) -> pa.Schema:
    """The schema of record batches that have these columns, in this order."""
    return pa.schema([pa.field(name, ARROW_TYPES[name]) for name in columns])
