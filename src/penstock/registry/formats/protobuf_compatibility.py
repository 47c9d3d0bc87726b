"""Whether a Protobuf schema can read what another wrote: Confluent's rules, with its names of differences.

Messages are compared by name and fields by number. Fields may be added and removed, unless they are required; the type
of a field may change to one with the same encoding. A field may not move into a oneof that exists, nor several into
one, since only the last on the wire would be kept.

Compared are the writer's schema and the reader's: what the reader cannot read is a difference.
"""

from collections.abc import Mapping
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor

from penstock.registry.compatibility import Difference
from penstock.registry.formats.limits import DEPTH_MAX, too_deep
from penstock.registry.formats.protobuf_schema import ProtobufSchema

_F = FieldDescriptor
_SCALARS: Final = {
    **dict.fromkeys(
        (_F.TYPE_INT32, _F.TYPE_INT64, _F.TYPE_UINT32, _F.TYPE_UINT64, _F.TYPE_BOOL, _F.TYPE_ENUM), "number"
    ),
    **dict.fromkeys((_F.TYPE_SINT32, _F.TYPE_SINT64), "signed number"),
    **dict.fromkeys((_F.TYPE_STRING, _F.TYPE_BYTES), "string or bytes"),
    **dict.fromkeys((_F.TYPE_FIXED32, _F.TYPE_SFIXED32), "fixed32"),
    **dict.fromkeys((_F.TYPE_FIXED64, _F.TYPE_SFIXED64), "fixed64"),
    _F.TYPE_FLOAT: "float",
    _F.TYPE_DOUBLE: "double",
}
"""Types with the same encoding have the same kind."""

_TEXT: Final = {
    "MESSAGE_REMOVED": "The {reader} schema is missing a MESSAGE type at path '%s' in the {writer} schema",
    "FIELD_KIND_CHANGED": (
        "The type of a field at path '%s' in the {reader} schema does not match the {writer} schema"
    ),
    "FIELD_SCALAR_KIND_CHANGED": (
        "The kind of a SCALAR field at path '%s' in the {reader} schema does not match its kind in the {writer} "
        "schema"
    ),
    "FIELD_NAMED_TYPE_CHANGED": (
        "The type of a MESSAGE field at path '%s' in the {reader} schema does not match its type in the {writer} "
        "schema"
    ),
    "FIELD_NUMERIC_LABEL_CHANGED": (
        "The label for a NUMERIC field at path '%s' in the {reader} schema does not match its label in the {writer} "
        "schema"
    ),
    "REQUIRED_FIELD_ADDED": (
        "A required field at path '%s' in the {reader} schema is missing in the {writer} schema"
    ),
    "REQUIRED_FIELD_REMOVED": (
        "The {reader} schema is missing a required field at path '%s' in the {writer} schema"
    ),
    "ONEOF_FIELD_REMOVED": "The {reader} schema is missing a oneof field at path '%s' in the {writer} schema",
    "MULTIPLE_FIELDS_MOVED_TO_ONEOF": (
        "Multiple fields in the oneof at path '%s' in the {reader} schema are outside a oneof in the {writer} schema"
    ),
    "FIELD_MOVED_TO_EXISTING_ONEOF": (
        "A field in the oneof at path '%s' in the {reader} schema is outside an existing oneof in the {writer} schema"
    ),
}


def differences(reader: ProtobufSchema, writer: ProtobufSchema) -> list[Difference]:
    comparison = _Comparison()
    comparison.files(writer.file, reader.file)
    return comparison.found


class _Comparison:
    def __init__(self) -> None:
        self.found: list[Difference] = []
        self._compared: set[tuple[str, str]] = set()
        """Full names of messages: each pair is compared once."""

    def _add(self, kind: str, path: str) -> None:
        self.found.append(Difference(kind, _TEXT[kind] % path))

    def files(self, old: Any, new: Any) -> None:
        self._types(old.message_types_by_name, new.message_types_by_name, "#/", 0)

    def _types(self, old: Mapping[str, Any], new: Mapping[str, Any], path: str, depth: int) -> None:
        for name, message in old.items():
            at = f"{path}{name}"
            if message.GetOptions().map_entry:
                continue  # compared with the map's field
            if name in new:
                self._messages(message, new[name], at, depth)
            else:
                self._add("MESSAGE_REMOVED", at)

    def _messages(self, old: Any, new: Any, path: str, depth: int) -> None:
        pair = (old.full_name, new.full_name)
        if pair in self._compared:
            return
        if depth > DEPTH_MAX:
            raise too_deep()
        self._compared.add(pair)
        before = {each.number: each for each in old.fields if not _oneof(each)}
        after = {each.number: each for each in new.fields if not _oneof(each)}
        in_oneofs = {each.number for each in old.fields if _oneof(each)}
        before_oneofs, after_oneofs = _oneofs(old), _oneofs(new)
        for name, fields in after_oneofs.items():
            moved = [number for number in fields if before.pop(number, None) is not None]
            if len(moved) > 1:
                self._add("MULTIPLE_FIELDS_MOVED_TO_ONEOF", f"{path}/{name}")
            elif moved and in_oneofs & fields.keys():
                self._add("FIELD_MOVED_TO_EXISTING_ONEOF", f"{path}/{name}")
        for name, fields in before_oneofs.items():
            kept = after_oneofs.get(name)
            if kept is None:
                continue
            for number, field in fields.items():
                at = f"{path}/{name}/{number}"
                if number in kept:
                    self._fields(field, kept[number], at, depth)
                else:
                    self._add("ONEOF_FIELD_REMOVED", at)
        for number in sorted({*before, *after}):
            self._plain(before.get(number), after.get(number), f"{path}/{number}", depth)
        self._types(old.nested_types_by_name, new.nested_types_by_name, f"{path}/", depth + 1)

    def _plain(self, old: Any, new: Any, at: str, depth: int) -> None:
        """A field outside of oneofs; None if there is none."""
        if new is None:
            if old.is_required:
                self._add("REQUIRED_FIELD_REMOVED", at)
        elif old is None:
            if new.is_required:
                self._add("REQUIRED_FIELD_ADDED", at)
        else:
            self._fields(old, new, at, depth)

    def _fields(self, old: Any, new: Any, at: str, depth: int) -> None:
        if _kind(old) != _kind(new):
            self._add("FIELD_KIND_CHANGED", at)
        elif _kind(old) == "map":
            for name in ("key", "value"):
                self._fields(
                    old.message_type.fields_by_name[name], new.message_type.fields_by_name[name], at, depth
                )
        elif _kind(old) == "scalar":
            if _SCALARS[old.type] != _SCALARS[new.type]:
                self._add("FIELD_SCALAR_KIND_CHANGED", at)
            elif old.is_repeated != new.is_repeated and _SCALARS[old.type] != "string or bytes":
                self._add("FIELD_NUMERIC_LABEL_CHANGED", at)
        else:
            first, second = old.message_type, new.message_type
            if _local(first) != _local(second):
                self._add("FIELD_NAMED_TYPE_CHANGED", at)
            else:
                known = len(self.found)
                self._messages(first, second, at, depth + 1)
                if len(self.found) > known:
                    self._add("FIELD_NAMED_TYPE_CHANGED", at)


def _kind(field: Any) -> str:
    if field.message_type is None:
        return "scalar"
    return "map" if field.message_type.GetOptions().map_entry else "message"


def _local(message: Any) -> str:
    """The name of a message within its package: the package may change."""
    name: str = message.full_name
    return name.removeprefix(f"{message.file.package}.") if message.file.package else name


def _oneof(field: Any) -> Any:
    """The oneof that a field is declared in; None for an `optional` field, whose oneof a compiler makes."""
    oneof = field.containing_oneof
    is_made = oneof is not None and len(oneof.fields) == 1 and oneof.name.lstrip("X") == f"_{field.name}"
    return None if is_made else oneof


def _oneofs(message: Any) -> dict[str, dict[int, Any]]:
    found: dict[str, dict[int, Any]] = {}
    for field in message.fields:
        oneof = _oneof(field)
        if oneof is not None:
            found.setdefault(oneof.name, {})[field.number] = field
    return found
