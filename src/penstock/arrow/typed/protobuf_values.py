"""Protobuf messages to Arrow columns, decoded by `ptars` (Rust).

A message is read with the reader's schema, whatever schema wrote it: fields that the reader does not know are skipped,
and fields that the writer did not have get their defaults, or null if their presence is tracked. That is
Protobuf's own rule.

Types are those of ptars, with unsigned numbers as the next larger type that Spark has: uint32 is bigint, uint64 is
decimal(20, 0). Enums are their names. Wrappers such as Int32Value are the value, or null.
"""

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
from google.protobuf.descriptor import FieldDescriptor
from ptars import HandlerPool, PtarsConfig

from penstock.arrow.typed.errors import BadSchema
from penstock.arrow.typed.salvage import Decoded, decode_all
from penstock.registry.errors import RegistryError, shown
from penstock.registry.formats.protobuf_schema import parse
from penstock.registry.schema import ResolvedSchema

_CONFIG = PtarsConfig(
    timestamp_unit="us",
    duration_unit="us",
    list_value_name="element",
    list_value_nullable=True,
    map_value_nullable=True,
    list_nullable=True,
    map_nullable=True,
    enum_repr="string",
)

_SIGNED: Final = {pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20, 0), pa.time64("ns"): pa.int64()}


class ProtobufFile:
    """A parsed schema. Raises `BadSchema`."""

    def __init__(self, schema: ResolvedSchema) -> None:
        try:
            self.file: Any = parse(schema).file
        except RegistryError as error:
            raise BadSchema(str(error)) from None

    def message(self, name: str | None) -> Any:
        """The descriptor of a message by its full name, or the name within the package; None for the first."""
        messages = list(_all(self.file.message_types_by_name.values()))
        if not messages:
            raise BadSchema("the Protobuf schema has no message")
        if name is None:
            return next(iter(self.file.message_types_by_name.values()))
        package = f"{self.file.package}." if self.file.package else ""
        for each in messages:
            if name in (each.full_name, each.full_name.removeprefix(package)):
                return each
        raise BadSchema(f"the Protobuf schema has no message {shown(name)}")

    def at(self, indexes: Sequence[int]) -> str:
        """The full name of the message with these indexes. Raises `BadSchema`."""
        level = list(self.file.message_types_by_name.values())
        found = None
        for index in indexes:
            if not 0 <= index < len(level):
                raise BadSchema(f"its schema has no message with indexes {list(indexes)}")
            found = level[index]
            level = list(found.nested_types)
        if found is None:
            raise BadSchema("it has no message indexes")
        return str(found.full_name)


def _all(messages: Any) -> Any:
    for each in messages:
        yield each
        yield from _all(each.nested_types)


class ProtobufReader:
    def __init__(self, file: ProtobufFile, message: str | None = None) -> None:
        descriptor = file.message(message)
        _check_depth(descriptor, [])
        self.message: str = descriptor.full_name
        handler = HandlerPool([file.file], _CONFIG).get_for_message(descriptor)
        decoded = pa.struct(list(handler.schema()))
        self.column_type: pa.DataType = _spark_type(decoded)
        kind = self.column_type

        def decode(payloads: Sequence[bytes]) -> pa.Array:
            batch = handler.list_to_record_batch(list(payloads))
            found = pa.StructArray.from_arrays(batch.columns, fields=list(batch.schema))
            return found.cast(kind)

        self._fast = decode

    def decode(self, payloads: Sequence[bytes]) -> Decoded:
        return decode_all(payloads, self._fast, self._each)

    def _each(self, payloads: Sequence[bytes]) -> Decoded:
        """Decode values one by one, for the reasons of those that fail."""
        pieces, reasons = [], {}
        for index, payload in enumerate(payloads):
            try:
                pieces.append(self._fast([payload]))
            except (ValueError, OverflowError, pa.ArrowException) as error:
                pieces.append(pa.nulls(1, self.column_type))
                reasons[index] = f"not a message {self.message}: {shown(error)}"
        return Decoded(pa.concat_arrays(pieces), reasons)


def _check_depth(message: Any, above: list[str]) -> None:
    if message.full_name in above:
        raise BadSchema(
            f"the message {shown(message.full_name)} contains itself: columns have a depth that is known before"
        )
    for each in message.fields:
        if each.type in (FieldDescriptor.TYPE_MESSAGE, FieldDescriptor.TYPE_GROUP):
            _check_depth(each.message_type, [*above, message.full_name])


def _spark_type(kind: pa.DataType) -> pa.DataType:
    """The type that Spark has for it; everything may be null."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, _spark_type(each.type)) for each in kind])
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _spark_type(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(_spark_type(kind.key_type), _spark_type(kind.item_type))
    return _SIGNED.get(kind, kind)
