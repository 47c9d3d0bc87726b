"""Structs as keys and values with a schema: what `value.format` and `key.format` of the sink do.

The schema is given by `value.schema`, or made of the column's type. It is registered when a writer is made, on the
driver: the registry answers with the id that it has, or refuses a schema that would break readers. Tasks get schema
and id.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, StructField, StructType

from penstock.arrow.typed.derived_schemas import avro_schema, json_schema
from penstock.arrow.typed.errors import BadSchema
from penstock.arrow.typed.value_writers import value_writer
from penstock.client.errors import ClientError
from penstock.client.schema_registry import SchemaRegistry
from penstock.registry.schema import AVRO, JSON, ResolvedSchema
from penstock.spark.errors import BadOption
from penstock.spark.writing.sink_options import SinkOptions, TypedSide

_TYPES: Final = {"avro": AVRO, "json": JSON}


@dataclass(frozen=True)
class _Side:
    name: str
    schema: ResolvedSchema
    schema_id: int


class TypedValues:
    """Encodes the typed columns of a writer's batches. Travels to tasks."""

    def __init__(self, sides: Sequence[_Side]) -> None:
        self._sides = tuple(sides)

    def of(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return map(self._encoded, batches)

    def _encoded(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        for each in self._sides:
            place = batch.schema.get_field_index(each.name)
            column = _writer(each.schema, each.schema_id)(batch.column(place))
            batch = batch.set_column(place, each.name, column)
        return batch


@lru_cache(32)  # kept by a worker from task to task
def _writer(schema: ResolvedSchema, schema_id: int) -> Any:
    return value_writer(schema, schema_id)


def as_bytes(schema: StructType, options: SinkOptions) -> StructType:
    """The columns of a DataFrame when keys and values are encoded."""
    sides = {each.side for each in options.typed}
    return StructType(
        [StructField(each.name, BinaryType()) if each.name in sides else each for each in schema.fields]
    )


def register(schema: StructType, options: SinkOptions) -> TypedValues | None:
    """Register the schemas of typed columns; None if there are none. Raises BadOption."""
    if not options.typed:
        return None
    assert options.registry is not None
    registry = SchemaRegistry(options.registry)
    return TypedValues([_registered(each, schema, options, registry) for each in options.typed])


def _registered(side: TypedSide, schema: StructType, options: SinkOptions, registry: SchemaRegistry) -> _Side:
    if side.side not in schema.names:
        raise BadOption(f"option {side.side}.format is given, but the DataFrame has no column {side.side}")
    subject = side.subject
    if subject is None:
        if options.topic is None:
            raise BadOption(f"rows name their topics, expected the option topic or {side.side}.subject")
        subject = f"{options.topic}-{side.side}"
    kind = to_arrow_schema(StructType([schema[side.side]]), timezone="UTC").field(0).type
    try:
        text = side.schema
        if text is None:
            text = avro_schema(kind, subject) if side.format == "avro" else json_schema(kind, subject)
        found = ResolvedSchema(_TYPES[side.format], text)
        value_writer(found, 0)
        return _Side(side.side, found, registry.register(subject, found))
    except BadSchema as error:
        raise BadOption(f"{side.side}s cannot be written as {side.format}: {error}") from None
    except ClientError as error:
        raise BadOption(f"the schema of subject {subject} cannot be registered: {error}") from None
