"""Bytes to a typed column: a decoder for each schema that wrote values, all to the columns of the reader's schema.

null                   null
without a schema id    null, with a reason; unless values have none, by `is_framed`
unknown schema id      null, with a reason
does not decode        null, with a reason
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec
import numpy as np
import pyarrow as pa

from penstock.arrow.typed.errors import BadSchema
from penstock.arrow.typed.frame_columns import parse_frames
from penstock.arrow.typed.salvage import Decoded, Reasons
from penstock.base.errors import KafkaError
from penstock.records.schema_framing import NotFramed, parse_message_indexes
from penstock.registry.schema import AVRO, JSON, PROTOBUF, ResolvedSchema

if TYPE_CHECKING:
    from penstock.arrow.typed.protobuf_values import ProtobufReader

READERS_MAX: Final = 1_000
"""Schemas that wrote values of one column, remembered at a time."""

LookUp = Callable[[int | str], ResolvedSchema]
"""The schema with an id or guid. Raises KafkaError if there is none, and others if the registry cannot be asked."""


class ValueReader(Protocol):
    column_type: pa.DataType

    def decode(self, payloads: Sequence[bytes]) -> Decoded: ...


class UnknownSchema(KafkaError):
    """The registry has no schema with this id."""


class ColumnSpec(msgspec.Struct, frozen=True):
    """What a column is read with. Travels to where values are decoded."""

    schema: ResolvedSchema | None
    """None for JSON with a type."""
    is_framed: bool
    """Whether values begin with a schema id."""
    message: str | None = None
    """Of Protobuf: the message, if it is not the first of the file."""
    json_type: bytes | None = None
    """Of JSON: the type of the column as a serialized Arrow schema, instead of a JSON Schema."""

    @property
    def type(self) -> str:
        return JSON if self.schema is None else self.schema.type


class TypedColumn:
    """Raises `BadSchema` if the schema has no columns."""

    def __init__(self, spec: ColumnSpec, look_up: LookUp | None = None) -> None:
        self._spec = spec
        self._look_up = look_up
        self._readers: dict[int | str, ValueReader | str] = {}
        """By the writer's schema; a text is why none of its values can be read."""
        self._own = self._reader(spec.schema)
        self.column_type: pa.DataType = self._own.column_type

    def decode(self, values: pa.Array) -> Decoded:
        """The column, and why values are null that are not null in the topic."""
        if not self._spec.is_framed:
            return self._decode(values.to_pylist(), None)
        framed = parse_frames(values)
        if len(framed.by_schema) == 1 and not framed.reasons:
            return self._decode(framed.payloads, next(iter(framed.by_schema)))
        pieces, places, reasons = [], [], dict(framed.reasons)
        for key, where in framed.by_schema.items():
            found = self._decode([framed.payloads[each] for each in where.tolist()], key)
            pieces.append(found.array)
            places.append(where)
            reasons |= {int(where[index]): why for index, why in found.reasons.items()}
        return Decoded(_in_place(pieces, places, len(values), self.column_type), reasons)

    def _decode(self, payloads: Sequence[bytes | None], key: int | str | None) -> Decoded:
        """Values of one writer's schema."""
        whole = [each for each in payloads if each is not None]
        if len(whole) == len(payloads):
            return self._decode_whole(whole, key)
        if not whole:
            return Decoded(pa.nulls(len(payloads), self.column_type), {})
        where = np.array([index for index, each in enumerate(payloads) if each is not None], np.int64)
        found = self._decode_whole(whole, key)
        array = _in_place([found.array], [where], len(payloads), self.column_type)
        return Decoded(array, {int(where[index]): why for index, why in found.reasons.items()})

    def _decode_whole(self, payloads: list[bytes], key: int | str | None) -> Decoded:
        if not payloads:
            return Decoded(pa.nulls(0, self.column_type), {})
        reader = self._reader_of(key)
        if isinstance(reader, str):
            return Decoded(
                pa.nulls(len(payloads), self.column_type), dict.fromkeys(range(len(payloads)), reader)
            )
        return reader.decode(payloads)

    # -- decoders --------------------------------------------------------------------------------------

    def _reader_of(self, key: int | str | None) -> ValueReader | str:
        if key is None:
            return self._own
        found = self._readers.get(key)
        if found is None:
            try:
                found = self._made(key)
            except (BadSchema, UnknownSchema) as error:
                found = f"{_named(key)}: {error}"
            if len(self._readers) >= READERS_MAX:
                self._readers.clear()
            self._readers[key] = found
        return found

    def _made(self, key: int | str) -> ValueReader:
        if self._look_up is None:
            raise BadSchema("no registry is named")
        writer = self._look_up(key)
        if writer.type != self._spec.type:
            raise BadSchema(f"it is of type {writer.type}, expected {self._spec.type}")
        return self._reader(writer)

    def _reader(self, writer: ResolvedSchema | None) -> ValueReader:
        if self._spec.type == JSON:
            return self._json
        assert writer is not None
        assert self._spec.schema is not None
        if self._spec.type == AVRO:
            from penstock.arrow.typed.avro_values import AvroReader  # noqa: PLC0415  # only what is used

            return AvroReader(writer, self._spec.schema)
        assert self._spec.type == PROTOBUF
        if not self._spec.is_framed:
            return self._protobuf
        return _Indexed(self._protobuf, writer)

    @cached_property
    def _json(self) -> ValueReader:
        from penstock.arrow.typed.json_types import json_field  # noqa: PLC0415
        from penstock.arrow.typed.json_values import JsonReader  # noqa: PLC0415

        if self._spec.schema is not None:
            return JsonReader(json_field(self._spec.schema))
        assert self._spec.json_type is not None
        return JsonReader(pa.ipc.read_schema(pa.py_buffer(self._spec.json_type)).field(0))

    @cached_property
    def _protobuf(self) -> "ProtobufReader":
        from penstock.arrow.typed.protobuf_values import ProtobufFile, ProtobufReader  # noqa: PLC0415

        assert self._spec.schema is not None
        return ProtobufReader(ProtobufFile(self._spec.schema), self._spec.message)


class _Indexed:
    """Messages after the indexes of their types in the writer's file."""

    def __init__(self, reader: "ProtobufReader", writer: ResolvedSchema) -> None:
        from penstock.arrow.typed.protobuf_values import ProtobufFile  # noqa: PLC0415

        self._reader = reader
        self._file = ProtobufFile(writer)
        self.column_type: pa.DataType = reader.column_type

    def decode(self, payloads: Sequence[bytes]) -> Decoded:
        reasons: Reasons = {}
        messages: list[bytes] = []
        names: dict[tuple[int, ...], str | None] = {}
        for index, payload in enumerate(payloads):
            try:
                indexes, at = parse_message_indexes(payload, 0)
                if indexes not in names:
                    names[indexes] = self._file.at(indexes)
            except (NotFramed, BadSchema) as error:
                reasons[index] = str(error)
                continue
            if names[indexes] != self._reader.message:
                reasons[index] = f"it is a message {names[indexes]}, expected {self._reader.message}"
                continue
            messages.append(payload[at:])
        if not reasons:
            return self._reader.decode(messages)
        where = np.array([each for each in range(len(payloads)) if each not in reasons], np.int64)
        pieces, places = [], []
        if messages:
            found = self._reader.decode(messages)
            pieces, places = [found.array], [where]
            reasons |= {int(where[index]): why for index, why in found.reasons.items()}
        return Decoded(_in_place(pieces, places, len(payloads), self.column_type), reasons)


def _in_place(pieces: Sequence[pa.Array], places: Sequence[Any], count: int, kind: pa.DataType) -> pa.Array:
    """One array of the pieces' values at their places; null elsewhere."""
    if not pieces:
        return pa.nulls(count, kind)
    sources = np.full(count, -1, np.int64)
    sources[np.concatenate(places)] = np.arange(sum(map(len, places)))
    return pa.concat_arrays(pieces).take(pa.array(sources, mask=sources < 0))


def _named(key: int | str) -> str:
    return f"schema {key}" if isinstance(key, str) else f"schema id {key}"
