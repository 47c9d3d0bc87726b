"""Keys and values as typed columns: options, the schema that a query is pinned to, and the decoding of rows.

    key.format, value.format     avro, json, protobuf; or registry: what the subject's schema is

The schema to read with is given inline, or is a version of a subject, the latest by default. It is looked up once,
when the DataFrame is made, and stays for all of its queries: values of other versions are resolved to it by the
format's own rules. With a registry values begin with the id of the schema that wrote them; without one they have no
frame.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import DataType, StringType, StructField, StructType

from penstock.arrow.typed.errors import BadSchema
from penstock.arrow.typed.typed_column import ColumnSpec, TypedColumn, UnknownSchema
from penstock.base.errors import KafkaError
from penstock.client.errors import ClientError
from penstock.client.schema_registry import RegistryRefused, RegistrySettings, SchemaRegistry
from penstock.registry.schema import AVRO, JSON, PROTOBUF, ResolvedSchema
from penstock.spark.errors import BadOption
from penstock.spark.options import INT32_MAX, OptionValues
from penstock.spark.reading.option_names import TYPED_NAMES
from penstock.spark.registry_options import URL, read_registry
from penstock.spark.schema import wanted_columns

SIDES: Final = ("key", "value")
CORRUPT: Final = "_corrupt"
REGISTRY: Final = "registry"
_TYPES: Final = {"avro": AVRO, "json": JSON, "protobuf": PROTOBUF}
_SIDE_NAMES: Final = ("format", "schema", "subject", "schema.version", "message")
ON_CORRUPT: Final = "on.corrupt"

_PLACE: Final = ("topic", "partition", "offset")


class CorruptValue(KafkaError):
    """A key or value does not decode, and `on.corrupt` is fail."""


@dataclass(frozen=True)
class SideOptions:
    side: str
    format: str
    schema: str | None = None
    subject: str | None = None
    version: int | None = None
    message: str | None = None


@dataclass(frozen=True)
class TypedOptions:
    sides: tuple[SideOptions, ...]
    registry: RegistrySettings | None
    fails: bool
    """Whether a value that does not decode fails the query; otherwise it is null, with a reason in `_corrupt`."""


def read_typed_options(options: Mapping[str, str], topics: Sequence[str]) -> TypedOptions | None:
    """The options of typed columns; None if neither has a format. Raises BadOption."""
    values = OptionValues(options)
    registry = read_registry(values)
    sides = [found for side in SIDES if (found := _side(values, side, registry, topics)) is not None]
    if not sides:
        given = [name for name in TYPED_NAMES if values.text(name) is not None]
        if given:
            raise BadOption(f"option {given[0]} is given without key.format or value.format")
        return None
    return TypedOptions(
        tuple(sides), registry, (values.choice(ON_CORRUPT, ("fail", "null")) or "fail") == "fail"
    )


def _side(
    values: OptionValues, side: str, registry: RegistrySettings | None, topics: Sequence[str]
) -> SideOptions | None:
    name = f"{side}.format"
    form = values.choice(name, (*_TYPES, REGISTRY))
    if form is None:
        given = [f"{side}.{each}" for each in _SIDE_NAMES if values.text(f"{side}.{each}") is not None]
        if given:
            raise BadOption(f"option {given[0]} is given without {name}")
        return None
    schema = values.text(f"{side}.schema")
    subject = values.text(f"{side}.subject")
    version = values.number(f"{side}.schema.version", 1, INT32_MAX)
    if registry is None and form == REGISTRY:
        raise BadOption(f"option {name} is registry, which needs {URL}")
    if registry is None and schema is None:
        raise BadOption(f"option {name} is {form}, which needs {side}.schema or {URL}")
    if schema is not None and (form == REGISTRY or subject is not None or version is not None):
        other = f"{name}=registry" if form == REGISTRY else f"{side}.subject or {side}.schema.version"
        raise BadOption(f"options {side}.schema and {other} are given, expected one of them")
    if schema is None and subject is None:
        if len(topics) != 1:
            raise BadOption(f"several topics are read, expected the option {side}.subject")
        subject = f"{topics[0]}-{side}"
    return SideOptions(side, form, schema, subject, version, values.text(f"{side}.message"))


# -- the schema that is read with -----------------------------------------------------------------------------


@dataclass(frozen=True)
class TypedSide:
    side: str
    spec: ColumnSpec
    subject: str | None = None
    version: int | None = None


@dataclass(frozen=True)
class TypedSource:
    """What a DataFrame is pinned to."""

    sides: tuple[TypedSide, ...]
    registry: RegistrySettings | None
    fails: bool

    @property
    def pins(self) -> dict[str, Any]:
        """Versions of subjects, for the checkpoint of a stream."""
        return {
            each.side: {"subject": each.subject, "version": each.version}
            for each in self.sides
            if each.version is not None
        }

    def schema(self, plain: StructType) -> StructType:
        """The columns of a reader without a schema, from those of an untyped one."""
        types = {each.side: self.type_of(each) for each in self.sides}
        fields = [StructField(each.name, types.get(each.name, each.dataType)) for each in plain.fields]
        return StructType(fields if self.fails else [*fields, StructField(CORRUPT, StringType())])

    def type_of(self, side: TypedSide) -> DataType:
        return from_arrow_type(typed_column(side.spec, self.registry).column_type, prefer_timestamp_ntz=True)


def pin(options: TypedOptions) -> TypedSource:
    """Look up the schemas, once for a DataFrame. Raises BadOption."""
    registry = None if options.registry is None else SchemaRegistry(options.registry)
    source = TypedSource(
        tuple(_pinned(each, registry) for each in options.sides), options.registry, options.fails
    )
    for each in source.sides:
        try:
            source.type_of(each)
        except BadSchema as error:
            raise BadOption(f"{each.side}s cannot be columns: {error}") from None
    return source


def _pinned(side: SideOptions, registry: SchemaRegistry | None) -> TypedSide:
    if side.schema is not None:
        return TypedSide(side.side, _inline(side, is_framed=registry is not None))
    assert registry is not None
    assert side.subject is not None
    try:
        found = registry.version(side.subject, "latest" if side.version is None else str(side.version))
    except ClientError as error:
        raise BadOption(
            f"option {side.side}.format: subject {side.subject} cannot be read: {error}"
        ) from None
    if side.format != REGISTRY and found.schema.type != _TYPES[side.format]:
        raise BadOption(
            f"option {side.side}.format is {side.format}, but subject {side.subject} has a schema of type "
            f"{found.schema.type}"
        )
    spec = ColumnSpec(found.schema, True, message=side.message)
    return TypedSide(side.side, spec, found.subject, found.version)


def _inline(side: SideOptions, *, is_framed: bool) -> ColumnSpec:
    text = side.schema or ""
    if side.format == "json":
        try:
            parsed = json.loads(text)
            if isinstance(parsed, dict) and parsed.get("type") == "struct":
                kind = to_arrow_schema(
                    StructType([StructField("value", StructType.fromJson(parsed))]), timezone="UTC"
                )
                return ColumnSpec(None, is_framed, json_type=kind.serialize().to_pybytes())
        except (ValueError, KeyError, TypeError, RecursionError):
            raise BadOption(
                f"option {side.side}.schema is not JSON, expected a JSON Schema, or the JSON of Spark's schema.json()"
            ) from None
    return ColumnSpec(ResolvedSchema(_TYPES[side.format], text), is_framed, message=side.message)


@lru_cache(32)  # kept by a worker from task to task
def typed_column(spec: ColumnSpec, registry: RegistrySettings | None) -> TypedColumn:
    """The decoder of a column, with the registry's schemas."""
    if registry is None:
        return TypedColumn(spec)
    client = SchemaRegistry(registry)

    def look_up(key: int | str) -> ResolvedSchema:
        try:
            return client.schema(key)
        except RegistryRefused as error:
            if error.status == 404:
                raise UnknownSchema("the registry has no such schema") from None
            raise

    return TypedColumn(spec, look_up)


# -- rows -------------------------------------------------------------------------------------------------------


class TypedRows:
    """Decodes the batches of a reader. Travels to tasks."""

    def __init__(self, source: TypedSource, schema: StructType) -> None:
        self._source = source
        self._names = tuple(schema.names)
        kinds = {each.side: each for each in source.sides}
        self._sides = tuple(
            each for each in source.sides if each.side in self._names or CORRUPT in self._names
        )
        _check(schema, source, kinds)
        self._types = to_arrow_schema(schema, timezone="UTC")
        wanted = [name for name in self._names if name != CORRUPT]
        wanted += [each.side for each in self._sides if each.side not in wanted]
        if source.fails:
            wanted += [name for name in _PLACE if name not in wanted]
        self.columns: tuple[str, ...] = tuple(wanted)
        """Columns to decode from records."""

    @property
    def pins(self) -> dict[str, Any]:
        return self._source.pins

    def of(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return map(self._typed, batches)

    def _typed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        made: dict[str, Any] = {}
        reasons: dict[int, str] = {}
        for each in self._sides:
            found = typed_column(each.spec, self._source.registry).decode(batch.column(each.side))
            made[each.side] = found.array
            for index, why in found.reasons.items():
                told = f"{each.side}: {why}"
                reasons[index] = f"{reasons[index]}; {told}" if index in reasons else told
        if reasons and self._source.fails:
            index = min(reasons)
            topic, partition, offset = (batch.column(name)[index].as_py() for name in _PLACE)
            raise CorruptValue(
                f"partition {partition} of topic {topic} has a record at offset {offset} that does not decode: "
                f"{reasons[index]}; on.corrupt=null returns it as null"
            )
        arrays = []
        for kind in self._types:
            if kind.name == CORRUPT:
                array = _texts(reasons, batch.num_rows)
            else:
                array = made.get(kind.name)
                array = batch.column(kind.name) if array is None else array
            arrays.append(array if array.type == kind.type else array.cast(kind.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self._types)


def _texts(reasons: Mapping[int, str], count: int) -> pa.Array:
    if not reasons:
        return pa.nulls(count, pa.string())
    return pa.array([reasons.get(index) for index in range(count)], pa.string())


def _check(schema: StructType, source: TypedSource, sides: Mapping[str, TypedSide]) -> None:
    """Raise BadOption if a user's schema has other columns than there are."""
    plain = [each for each in schema.fields if each.name not in sides and each.name != CORRUPT]
    if plain:
        wanted_columns(StructType(plain))
    for each in schema.fields:
        if each.name == CORRUPT and source.fails:
            raise BadOption(f"the schema has a column {CORRUPT}, which needs the option {ON_CORRUPT}=null")
        expected = (
            StringType()
            if each.name == CORRUPT
            else source.type_of(sides[each.name])
            if each.name in sides
            else None
        )
        if expected is not None and each.dataType.simpleString() != expected.simpleString():
            raise BadOption(
                f"the schema has column {each.name} as {each.dataType.simpleString()}, expected "
                f"{expected.simpleString()}"
            )
