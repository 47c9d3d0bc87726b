"""The records of `_schemas`, in the form that Confluent's registry writes and reads.

Keys are JSON objects. The topic is compacted by their bytes, so the order of their fields matters. Values are JSON.

    SCHEMA          subject, version           a schema; `deleted` marks a soft deletion, no value a permanent one
    DELETE_SUBJECT  subject                    soft deletion of all versions up to one
    CLEAR_SUBJECT   subject                    permanent deletion of all versions
    CONFIG, MODE    subject, or null           settings of a subject, or of all
    CONTEXT         context                    a context that has had a subject
    NOOP                                       no value; here the ids that must not be given again

Karapace once wrote the fields of keys in another order. A record is replaced or removed with the key that it was
written with.
"""

from typing import Any, Final, NamedTuple

import msgspec

from penstock.base.errors import ErrorCode, KafkaError
from penstock.registry.names import DEFAULT_CONTEXT
from penstock.registry.schema import AVRO, Reference, Schema

TOPIC: Final = "_schemas"

_TENANT: Final = "default"
_encode = msgspec.json.Encoder().encode


class UnreadableRecord(KafkaError):
    """A record that is none of a registry's."""

    code = ErrorCode.CORRUPT_MESSAGE


class SchemaRecord(NamedTuple):
    subject: str
    version: int
    id: int = 0
    schema: Schema | None = None
    """None for a permanent deletion."""
    is_deleted: bool = False


class DeleteSubjectRecord(NamedTuple):
    subject: str
    version: int | None
    """The last deleted version; None if the record was removed."""


class ClearSubjectRecord(NamedTuple):
    subject: str


class ConfigRecord(NamedTuple):
    subject: str | None
    config: dict[str, Any] | None
    """Fields as they were set, with `compatibilityLevel`; None if they are unset."""


class ModeRecord(NamedTuple):
    subject: str | None
    mode: str | None


class ContextRecord(NamedTuple):
    context: str


class NoopRecord(NamedTuple):
    next_ids: dict[str, int] | None = None
    """By context: no lower id is given to a new schema. Kept when the schema with the highest id is removed."""


TopicRecord = (
    SchemaRecord
    | DeleteSubjectRecord
    | ClearSubjectRecord
    | ConfigRecord
    | ModeRecord
    | ContextRecord
    | NoopRecord
)


class _Key(msgspec.Struct):
    keytype: str
    subject: str | None = None
    version: int | None = None
    context: str | None = None


class _SchemaValue(msgspec.Struct):
    version: int
    id: int
    schema: str
    schemaType: str | None = None  # noqa: N815  # the field's name
    references: list[Reference] | None = None
    metadata: msgspec.Raw = msgspec.Raw(b"null")
    ruleSet: msgspec.Raw = msgspec.Raw(b"null")  # noqa: N815
    deleted: bool = False


class _Version(msgspec.Struct):
    version: int


class _Mode(msgspec.Struct):
    mode: str


class _NextIds(msgspec.Struct):
    nextIds: dict[str, int] | None = None  # noqa: N815


_key = msgspec.json.Decoder(_Key).decode
_schema_value = msgspec.json.Decoder(_SchemaValue).decode
_version = msgspec.json.Decoder(_Version).decode
_mode = msgspec.json.Decoder(_Mode).decode
_next_ids = msgspec.json.Decoder(_NextIds).decode
_object = msgspec.json.Decoder(dict[str, Any]).decode


def parse(key: bytes | None, value: bytes | None) -> TopicRecord:
    """Read a record. Raises `UnreadableRecord` with the reason."""
    try:
        return _parse(_key(key or b""), value or None)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableRecord(str(error)) from None


def _parse(key: _Key, value: bytes | None) -> TopicRecord:  # noqa: PLR0911  # one for each type
    match key.keytype:
        case "SCHEMA":
            if key.version is None:
                raise UnreadableRecord("the key of a SCHEMA record has no version")
            return _schema(_subject(key), key.version, value)
        case "DELETE_SUBJECT":
            return DeleteSubjectRecord(_subject(key), None if value is None else _version(value).version)
        case "CLEAR_SUBJECT":
            return ClearSubjectRecord(_subject(key))
        case "CONFIG":
            return ConfigRecord(key.subject, None if value is None else _object(value))
        case "MODE":
            return ModeRecord(key.subject, None if value is None else _mode(value).mode)
        case "CONTEXT":
            return ContextRecord(key.context or DEFAULT_CONTEXT)
        case "NOOP":
            return NoopRecord(None if value is None else _next_ids(value).nextIds)
    raise UnreadableRecord(f"the key's type is {key.keytype[:64]!r}")


def _subject(key: _Key) -> str:
    if not key.subject:
        raise UnreadableRecord(f"the key of a {key.keytype} record has no subject")
    return key.subject


def _schema(subject: str, version: int, value: bytes | None) -> SchemaRecord:
    if value is None:
        return SchemaRecord(subject, version)
    found = _schema_value(value)
    schema = Schema(
        found.schemaType or AVRO,
        found.schema,
        tuple(found.references or ()),
        _raw(found.metadata),
        _raw(found.ruleSet),
    )
    return SchemaRecord(subject, version, found.id, schema, found.deleted)


def _raw(value: msgspec.Raw) -> str | None:
    text = bytes(value).decode()
    return None if text == "null" else text


# -- writing -------------------------------------------------------------------------------------------


def write(record: TopicRecord) -> tuple[bytes, bytes | None]:
    """Key and value of a record."""
    return write_key(record), write_value(record)


def write_key(record: TopicRecord) -> bytes:  # noqa: PLR0911  # one for each type
    match record:
        case SchemaRecord(subject, version):
            return _encode({"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1})
        case DeleteSubjectRecord(subject):
            return _encode({"keytype": "DELETE_SUBJECT", "subject": subject, "magic": 0})
        case ClearSubjectRecord(subject):
            return _encode({"keytype": "CLEAR_SUBJECT", "subject": subject, "magic": 0})
        case ConfigRecord(subject):
            return _encode({"keytype": "CONFIG", "subject": subject, "magic": 0})
        case ModeRecord(subject):
            return _encode({"keytype": "MODE", "subject": subject, "magic": 0})
        case ContextRecord(context):
            return _encode({"keytype": "CONTEXT", "tenant": _TENANT, "context": context, "magic": 0})
        case NoopRecord():
            return b'{"keytype":"NOOP","magic":0}'


def write_value(record: TopicRecord) -> bytes | None:  # noqa: PLR0911  # one for each type
    match record:
        case SchemaRecord(subject, version, schema_id, schema, is_deleted):
            return None if schema is None else _schema_json(subject, version, schema_id, schema, is_deleted)
        case DeleteSubjectRecord(subject, version):
            return None if version is None else _encode({"subject": subject, "version": version})
        case ClearSubjectRecord(subject):
            return _encode({"subject": subject})
        case ConfigRecord(subject, config):
            return None if config is None else _encode({"subject": subject, **config})
        case ModeRecord(subject, mode):
            return None if mode is None else _encode({"subject": subject, "mode": mode})
        case ContextRecord(context):
            return _encode({"tenant": _TENANT, "context": context})
        case NoopRecord(next_ids):
            return None if next_ids is None else _encode({"nextIds": next_ids})


def _schema_json(subject: str, version: int, schema_id: int, schema: Schema, is_deleted: bool) -> bytes:
    fields: dict[str, Any] = {"subject": subject, "version": version, "id": schema_id}
    if schema.type != AVRO:
        fields["schemaType"] = schema.type
    if schema.references:
        fields["references"] = schema.references
    for name, text in (("metadata", schema.metadata), ("ruleSet", schema.rule_set)):
        if text is not None:
            fields[name] = msgspec.Raw(text.encode())
    return _encode({**fields, "schema": schema.text, "deleted": is_deleted})
