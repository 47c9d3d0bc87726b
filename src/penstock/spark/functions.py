"""Functions for DataFrames from elsewhere: `from_registry` and `to_registry`.

    from penstock.spark.functions import from_registry, to_registry

    options = {"schema.registry.url": "http://127.0.0.1:8081"}
    frame.select(from_registry("payload", "orders-value", options).alias("order")).select("order.*")

Both ask the registry when they are called, on the driver: the column stays with the schema that was found then.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import BinaryType, DataType

from penstock.arrow.typed.errors import BadSchema
from penstock.arrow.typed.value_writers import value_writer
from penstock.client.errors import ClientError
from penstock.client.schema_registry import RegistrySettings, SchemaRegistry
from penstock.registry.schema import AVRO, JSON, ResolvedSchema
from penstock.spark.errors import BadOption
from penstock.spark.options import OptionValues
from penstock.spark.reading.typed_rows import (
    REGISTRY,
    CorruptValue,
    SideOptions,
    TypedOptions,
    pin,
    typed_column,
)
from penstock.spark.registry_options import REGISTRY_NAMES, URL, read_registry

if TYPE_CHECKING:
    from pyspark.sql import Column


def from_registry(
    column: "Column | str",
    subject: str,
    options: Mapping[str, str],
    *,
    version: int | None = None,
    message: str | None = None,
    on_corrupt: str = "fail",
) -> "Column":
    """Decode bytes that begin with a schema id to the columns of a subject's schema, by default the latest.

    `options` name the registry and the log-in, as those of the source do. With `on_corrupt="null"` what does not
    decode is null; otherwise it fails the query. Raises BadOption.
    """
    if on_corrupt not in ("fail", "null"):
        raise BadOption(f"on_corrupt is {on_corrupt!r}, expected fail or null")
    fails = on_corrupt == "fail"
    side = SideOptions("value", REGISTRY, None, subject, version, message)
    source = pin(TypedOptions((side,), _registry(options), fails))
    [pinned] = source.sides
    spec, registry, kind = pinned.spec, source.registry, source.type_of(pinned)
    arrow_kind = to_arrow_type(kind, timezone="UTC")

    def decode(values: pa.Array) -> pa.Array:
        found = typed_column(spec, registry).decode(values)
        if fails and found.reasons:
            raise CorruptValue(f"a value does not decode: {found.reasons[min(found.reasons)]}")
        return found.array if found.array.type == arrow_kind else found.array.cast(arrow_kind)

    return _applied(decode, kind, column)


def to_registry(
    column: "Column | str",
    subject: str,
    options: Mapping[str, str],
    *,
    schema: str | None = None,
    schema_type: str = AVRO,
) -> "Column":
    """Encode a struct as Avro or JSON after its schema's id.

    `schema` is registered under the subject; without it, the subject's latest schema is used. Raises BadOption.
    """
    if schema_type not in (AVRO, JSON):
        raise BadOption(f"schema_type is {schema_type!r}, expected {AVRO} or {JSON}")
    registry = SchemaRegistry(_registry(options))
    try:
        if schema is None:
            found = registry.version(subject)
            written, schema_id = found.schema, found.schema_id
        else:
            written = ResolvedSchema(schema_type, schema)
            value_writer(written, 0)
            schema_id = registry.register(subject, written)
        value_writer(written, schema_id)
    except (BadSchema, ClientError) as error:
        raise BadOption(f"subject {subject} cannot be written: {error}") from None

    def encode(values: pa.Array) -> pa.Array:
        return value_writer(written, schema_id)(values)

    return _applied(encode, BinaryType(), column)


def _applied(function: Callable[[pa.Array], pa.Array], kind: DataType, column: "Column | str") -> "Column":
    make: Any = arrow_udf  # its stubs ask for the kind of function, and it warns of one that is given
    made: Column = make(function, returnType=kind)(column)
    return made


def _registry(options: Mapping[str, str]) -> RegistrySettings:
    unknown = [name for name in options if name.lower() not in REGISTRY_NAMES]
    if unknown:
        raise BadOption(f"there is no option {unknown[0]}, expected some of {', '.join(REGISTRY_NAMES)}")
    found = read_registry(OptionValues(options))
    if found is None:
        raise BadOption(f"option {URL} is missing")
    return found
