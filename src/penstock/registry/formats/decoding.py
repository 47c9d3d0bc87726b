"""Decodes payloads by their schemas, to see that they can be."""

import io
import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from penstock.records.schema_framing import parse_message_indexes
from penstock.registry.errors import shown
from penstock.registry.schema import AVRO, JSON, ResolvedSchema

DECODERS_MAX: Final = 256


def decode(schema: ResolvedSchema, payload: bytes) -> None:
    """Raise ValueError with the reason if a payload does not decode."""
    _decoder(schema)(payload)


@lru_cache(DECODERS_MAX)
def _decoder(schema: ResolvedSchema) -> Callable[[bytes], None]:
    if schema.type == AVRO:
        return _avro(schema)
    return _json(schema) if schema.type == JSON else _protobuf(schema)


def _avro(schema: ResolvedSchema) -> Callable[[bytes], None]:
    import fastavro  # noqa: PLC0415  # only what is used

    named: dict[str, Any] = {}
    for _, text in schema.references:
        fastavro.parse_schema(json.loads(text), named)
    parsed = fastavro.parse_schema(json.loads(schema.text), named)

    def check(payload: bytes) -> None:
        stream = io.BytesIO(payload)
        try:
            fastavro.schemaless_reader(stream, parsed, None)
        except (EOFError, IndexError, KeyError, OverflowError, TypeError, MemoryError) as error:
            raise ValueError(f"{type(error).__name__} {shown(error)}".strip()) from None
        left = len(payload) - stream.tell()
        if left:
            raise ValueError(f"{left} bytes are left over")

    return check


def _json(schema: ResolvedSchema) -> Callable[[bytes], None]:
    import jsonschema_rs  # noqa: PLC0415

    from penstock.registry.formats.json_schema import with_draft  # noqa: PLC0415

    resources = {name: json.loads(text) for name, text in schema.references}

    def retrieve(uri: str) -> Any:
        for name, data in resources.items():
            if uri == name or uri.endswith(f"/{name}"):
                return data
        raise ValueError(f"no schema is named {uri}")

    validator = jsonschema_rs.validator_for(
        with_draft(json.loads(schema.text)), retriever=retrieve, validate_formats=False
    )

    def check(payload: bytes) -> None:
        try:
            validator.validate(json.loads(payload))
        except jsonschema_rs.ValidationError as error:
            at = "/".join(map(str, error.instance_path))
            raise ValueError(f"at /{at}: {shown(error.message)}") from None
        except RecursionError:
            raise ValueError("it is nested too deeply") from None

    return check


def _protobuf(schema: ResolvedSchema) -> Callable[[bytes], None]:
    from google.protobuf.message import DecodeError  # noqa: PLC0415
    from google.protobuf.message_factory import GetMessageClass  # noqa: PLC0415

    from penstock.registry.formats.protobuf_schema import parse  # noqa: PLC0415

    parsed = parse(schema)
    file = parsed.descriptor

    @lru_cache(DECODERS_MAX)
    def message_type(indexes: tuple[int, ...]) -> Any:
        messages, name = file.message_type, file.package
        for index in indexes:
            if index >= len(messages):
                raise ValueError(f"the schema has no message with indexes {list(indexes)}")
            name = f"{name}.{messages[index].name}" if name else messages[index].name
            messages = messages[index].nested_type
        return GetMessageClass(parsed.pool.FindMessageTypeByName(name))

    def check(payload: bytes) -> None:
        indexes, at = parse_message_indexes(payload, 0)
        try:
            message_type(indexes).FromString(payload[at:])
        except DecodeError as error:
            raise ValueError(shown(error)) from None

    return check
