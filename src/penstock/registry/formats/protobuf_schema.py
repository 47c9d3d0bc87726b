"""Protobuf: `.proto` files as text, or serialized descriptors in base64, which some serializers register.

    text --> syntax tree (proto-schema-parser) --> FileDescriptorProto --> pool: names resolved, rules checked

A text is kept as it was sent, comments included. A descriptor is kept as text too, as Confluent's registry keeps it.
Imports are references by their names, or files that every Protobuf compiler knows.
"""

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from functools import cache
from importlib import import_module
from typing import Any, Final

from antlr4.error.ErrorListener import ErrorListener
from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.message import DecodeError
from proto_schema_parser import Parser

from penstock.registry.errors import RegistryError, invalid_schema, shown, too_large
from penstock.registry.formats.limits import check_brackets
from penstock.registry.formats.protobuf_descriptor import describe
from penstock.registry.formats.protobuf_text import write
from penstock.registry.schema import ResolvedSchema

TEXT_CHARACTERS_MAX: Final = 256 * 1024
"""Of a `.proto` file, which takes seconds to parse at this size."""

FILE_NAME: Final = "default.proto"
"""Of the schema itself: registries give files no names."""

_KNOWN: Final = {
    f"google/protobuf/{name}.proto": f"google.protobuf.{name}_pb2"
    for name in (
        "any", "api", "descriptor", "duration", "empty", "field_mask", "source_context", "struct", "timestamp", "type",
        "wrappers",
    )
}  # fmt: skip

_CONFLUENT: Final = {
    "confluent/type/decimal.proto": (
        'syntax = "proto3"; package confluent.type;'
        "message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }"
    ),
    "confluent/meta.proto": (
        'syntax = "proto3"; package confluent; import "google/protobuf/descriptor.proto";'
        "message Meta { string doc = 1; map<string, string> params = 2; repeated string tags = 3; }"
        "extend google.protobuf.FileOptions { Meta file_meta = 1088; }"
        "extend google.protobuf.MessageOptions { Meta message_meta = 1088; }"
        "extend google.protobuf.FieldOptions { Meta field_meta = 1088; }"
        "extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }"
        "extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }"
    ),
}
"""Files that schemas of Confluent's tools import without a reference."""


class ProtobufSchema:
    def __init__(self, text: str | None, file: Any, pool: Any) -> None:
        self.file = file
        """The file's descriptor (`google.protobuf.descriptor.FileDescriptor`)."""
        self.pool = pool
        self._text = text

    @property
    def descriptor(self) -> Any:
        """The `FileDescriptorProto`, with all names resolved."""
        made = descriptor_pb2.FileDescriptorProto()
        self.file.CopyToProto(made)
        return made

    @property
    def canonical(self) -> str:
        return self._text if self._text is not None else write(self.descriptor)

    @property
    def normalized(self) -> str:
        """Without comments, in the order of numbers and names."""
        return write(self.descriptor, is_sorted=True)

    @property
    def identity(self) -> str:
        """Equal for texts that differ in comments and spaces."""
        return write(self.descriptor)

    @property
    def serialized(self) -> str:
        """For `format=serialized`: base64 of the descriptor, without options that only a compiler can interpret."""
        made = self.descriptor
        _drop_uninterpreted(made)
        return b64encode(made.SerializeToString(deterministic=True)).decode()


def parse(schema: ResolvedSchema, *, is_new: bool = False) -> ProtobufSchema:  # noqa: ARG001  # checked always
    """Parse a schema. Raises `RegistryError`."""
    try:
        references = {name: _descriptor(text)[0] for name, text in schema.references}
        made, text = _descriptor(schema.text)
        made.name = FILE_NAME
        pool = descriptor_pool.DescriptorPool()
        _add(pool, made, references, set())
        return ProtobufSchema(text, pool.FindFileByName(FILE_NAME), pool)
    except RegistryError as error:
        raise RegistryError(error.error_code, f"Invalid schema of type PROTOBUF: {error}") from None


def _descriptor(text: str) -> tuple[Any, str | None]:
    """The descriptor, and the text unless it was a serialized descriptor."""
    try:
        data = b64decode("".join(text.split()), validate=True)
        made = descriptor_pb2.FileDescriptorProto.FromString(data)
        if made.name or made.message_type or made.enum_type:
            made.ClearField("source_code_info")
            return made, None
    except (Base64Error, ValueError, DecodeError, RecursionError):
        pass
    return describe(_tree(text)), text


class _Listener(ErrorListener):  # type: ignore[misc]  # the library has no types
    def syntaxError(  # noqa: N802  # the library's name
        self, recognizer: Any, token: Any, line: int, column: int, message: str, error: Any
    ) -> None:
        raise invalid_schema(f"line {line}, column {column + 1}: {shown(message)}")


def _listen(recognizer: Any) -> None:
    recognizer.removeErrorListeners()
    recognizer.addErrorListener(_Listener())


def _tree(text: str) -> Any:
    if len(text) > TEXT_CHARACTERS_MAX:
        raise too_large(f"The schema has {len(text)} characters, expected at most {TEXT_CHARACTERS_MAX}")
    check_brackets(text, "{[<", "}]>")
    try:
        return Parser(setup_lexer=_listen, setup_parser=_listen).parse(text)
    except RegistryError:
        raise
    except Exception as error:  # what the library raises for trees that it did not foresee
        raise invalid_schema(f"it cannot be parsed: {type(error).__name__} {shown(error)}") from None


def _add(pool: Any, made: Any, references: dict[str, Any], adding: set[str]) -> None:
    """Add a file to the pool, after those that it imports."""
    adding.add(made.name)
    for name in made.dependency:
        if name in adding:
            raise invalid_schema(f"the file {shown(name)} imports itself")
        try:
            pool.FindFileByName(name)
        except KeyError:
            imported = references.get(name)
            if imported is None:
                imported = _known(name)
            else:
                imported.name = name
            if imported is None:
                raise invalid_schema(
                    f"the import {shown(name)} is neither a reference of the schema nor a known file"
                ) from None
            _add(pool, imported, references, adding)
    adding.discard(made.name)
    try:
        pool.Add(made)
    except (TypeError, ValueError) as error:
        raise invalid_schema(
            shown(str(error).replace("Couldn't build proto file into descriptor pool: ", ""))
        ) from None


@cache
def _known_descriptor(name: str) -> bytes | None:
    if name in _CONFLUENT:
        made = describe(_tree(_CONFLUENT[name]))
        made.name = name
        data: bytes = made.SerializeToString()
        return data
    module = _KNOWN.get(name)
    if (
        module is None
        and name.startswith("google/type/")
        and name.removesuffix(".proto").replace("/", "").isidentifier()
    ):
        module = f"{name.removesuffix('.proto').replace('/', '.')}_pb2"
    if module is None:
        return None
    try:
        found: bytes = import_module(module).DESCRIPTOR.serialized_pb
    except ImportError:
        return None
    return found


def _known(name: str) -> Any:
    data = _known_descriptor(name)
    return None if data is None else descriptor_pb2.FileDescriptorProto.FromString(data)


def _drop_uninterpreted(message: Any) -> None:
    for field, value in message.ListFields():
        if field.name == "uninterpreted_option":
            message.ClearField(field.name)
        elif field.message_type is not None:
            for each in value if field.is_repeated else (value,):
                _drop_uninterpreted(each)
