"""The text of a `.proto` file from its `FileDescriptorProto`."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from google.protobuf import descriptor_pb2
from google.protobuf.text_format import MessageToString

from penstock.registry.formats.protobuf_descriptor import ENUM_NUMBER_MAX, FIELD_NUMBER_MAX, SCALARS, quoted

_FIELD = descriptor_pb2.FieldDescriptorProto
_NAMES: Final = {number: name for name, number in SCALARS.items()}
_LABELS: Final = {
    _FIELD.LABEL_REQUIRED: "required ",
    _FIELD.LABEL_OPTIONAL: "optional ",
    _FIELD.LABEL_REPEATED: "repeated ",
}


def write(file: Any, *, is_sorted: bool = False) -> str:
    """The text of a file whose names are resolved. Sorted, fields are in the order of their numbers, and imports,
    options, types and methods in that of their names."""
    return "\n".join(_Writer(file, is_sorted=is_sorted).file()) + "\n"


class _Writer:
    def __init__(self, file: Any, *, is_sorted: bool) -> None:
        self._file = file
        self._is_sorted = is_sorted
        self._declared = {f"{scope}.{each}" for scope, each in _declared(file)}
        """Names of the types of the file, with a leading dot."""

    def _in_order(self, items: Iterable[Any], key: str = "name") -> list[Any]:
        return sorted(items, key=lambda each: getattr(each, key)) if self._is_sorted else list(items)

    def file(self) -> Iterator[str]:
        file = self._file
        if file.syntax == "editions":
            edition = descriptor_pb2.Edition.Name(file.edition).removeprefix("EDITION_")
            yield f'edition = "{edition}";'
        else:
            yield f'syntax = "{file.syntax or "proto2"}";'
        if file.package:
            yield f"package {file.package};"
        imports = []
        for number, name in enumerate(file.dependency):
            how = (
                "public "
                if number in file.public_dependency
                else "weak "
                if number in file.weak_dependency
                else ""
            )
            imports.append((name, f"import {how}{quoted(name)};"))
        yield from (line for _, line in (sorted(imports) if self._is_sorted else imports))
        yield from self._options(file.options, "")
        scope = f".{file.package}" if file.package else ""
        for message in self._in_order(file.message_type):
            yield from self._message(message, scope, "")
        for enum in self._in_order(file.enum_type):
            yield from self._enum(enum, "")
        yield from self._extensions(file.extension, scope, "")
        for service in self._in_order(file.service):
            yield f"service {service.name} {{"
            yield from self._options(service.options, "  ")
            for method in self._in_order(service.method):
                taken = ("stream " if method.client_streaming else "") + self._name(method.input_type, scope)
                given = ("stream " if method.server_streaming else "") + self._name(method.output_type, scope)
                yield f"  rpc {method.name} ({taken}) returns ({given}) {{"
                yield from self._options(method.options, "    ")
                yield "  }"
            yield "}"

    # -- messages --------------------------------------------------------------------------------------

    def _message(self, message: Any, outer: str, indent: str, head: str = "") -> Iterator[str]:
        scope = f"{outer}.{message.name}"
        inner = f"{indent}  "
        yield f"{indent}{head or f'message {message.name}'} {{"
        yield from self._options(message.options, inner)
        entries = {f"{scope}.{each.name}": each for each in message.nested_type if each.options.map_entry}
        groups = {
            each.type_name for each in (*message.field, *message.extension) if each.type == _FIELD.TYPE_GROUP
        }
        in_oneofs: dict[int, list[Any]] = {}
        for field in self._in_order(message.field, "number"):
            if field.HasField("oneof_index") and not field.proto3_optional:
                in_oneofs.setdefault(field.oneof_index, []).append(field)
        done: set[int] = set()
        for field in self._in_order(message.field, "number"):
            if field.HasField("oneof_index") and not field.proto3_optional:
                number = field.oneof_index
                if number not in done:
                    done.add(number)
                    yield f"{inner}oneof {message.oneof_decl[number].name} {{"
                    yield from self._options(message.oneof_decl[number].options, f"{inner}  ")
                    for each in in_oneofs[number]:
                        yield from self._field(each, message, scope, f"{inner}  ", entries, is_bare=True)
                    yield f"{inner}}}"
            else:
                yield from self._field(field, message, scope, inner, entries)
        yield from _reserved(message, inner, FIELD_NUMBER_MAX, 1)
        for each in message.extension_range:
            yield f"{inner}extensions {_range(each.start, each.end - 1, FIELD_NUMBER_MAX)};"
        for nested in self._in_order(message.nested_type):
            if not nested.options.map_entry and f"{scope}.{nested.name}" not in groups:
                yield from self._message(nested, scope, inner)
        for enum in self._in_order(message.enum_type):
            yield from self._enum(enum, inner)
        yield from self._extensions(message.extension, scope, inner)
        yield f"{indent}}}"

    def _field(
        self,
        field: Any,
        message: Any,
        scope: str,
        indent: str,
        entries: dict[str, Any],
        *,
        is_bare: bool = False,
    ) -> Iterator[str]:
        options = self._field_options(field)
        entry = entries.get(field.type_name)
        if entry is not None:
            key, value = entry.field
            kind = f"map<{self._type(key, scope)}, {self._type(value, scope)}>"
            yield f"{indent}{kind} {field.name} = {field.number}{options};"
            return
        label = "" if is_bare else self._label(field)
        if field.type == _FIELD.TYPE_GROUP:
            name = field.type_name.rpartition(".")[2]
            nested = next((each for each in message.nested_type if each.name == name), None)
            if nested is not None:
                yield from self._message(
                    nested, scope, indent, f"{label}group {name} = {field.number}{options}"
                )
            return
        yield f"{indent}{label}{self._type(field, scope)} {field.name} = {field.number}{options};"

    def _label(self, field: Any) -> str:
        is_plain = self._file.syntax in ("proto3", "editions") and not field.proto3_optional
        if field.label == _FIELD.LABEL_OPTIONAL and is_plain:
            return ""
        return _LABELS[field.label]

    def _type(self, field: Any, scope: str) -> str:
        if field.type in _NAMES:
            return str(_NAMES[field.type])
        return self._name(field.type_name, scope)

    def _name(self, full: str, scope: str) -> str:
        """A type's name, as short as it can be: without the package if that is the file's own. With a leading dot if
        another type is nearer by the short name."""
        package = f".{self._file.package}." if self._file.package else "."
        short = full.removeprefix(package) if full in self._declared else full.removeprefix(".")
        first = short.partition(".")[0]
        at = scope
        while True:
            if f"{at}.{first}" in self._declared:
                return short if f"{at}.{short}" == full else full
            if not at:
                return short
            at = at.rpartition(".")[0]

    def _extensions(self, fields: Iterable[Any], scope: str, indent: str) -> Iterator[str]:
        by_extendee: dict[str, list[Any]] = {}
        for field in self._in_order(fields, "number"):
            by_extendee.setdefault(field.extendee, []).append(field)
        for extendee, those in by_extendee.items():
            yield f"{indent}extend {self._name(extendee, scope)} {{"
            for field in those:
                options = self._field_options(field)
                kind = f"{self._label(field)}{self._type(field, scope)}"
                yield f"{indent}  {kind} {field.name} = {field.number}{options};"
            yield f"{indent}}}"

    def _enum(self, enum: Any, indent: str) -> Iterator[str]:
        yield f"{indent}enum {enum.name} {{"
        yield from self._options(enum.options, f"{indent}  ")
        for value in enum.value:
            options = _bracketed(self._option_pairs(value.options))
            yield f"{indent}  {value.name} = {value.number}{options};"
        yield from _reserved(enum, f"{indent}  ", ENUM_NUMBER_MAX, 0)
        yield f"{indent}}}"

    # -- options ---------------------------------------------------------------------------------------

    def _options(self, options: Any, indent: str) -> Iterator[str]:
        for name, value in self._option_pairs(options):
            if name != "map_entry":
                yield f"{indent}option {name} = {value};"

    def _field_options(self, field: Any) -> str:
        pairs = []
        if field.HasField("default_value"):
            default = field.default_value
            if field.type == _FIELD.TYPE_STRING:
                default = quoted(default)
            elif field.type == _FIELD.TYPE_BYTES:
                default = f'"{default}"'  # a descriptor has it escaped
            pairs.append(("default", default))
        if field.json_name and field.json_name != json_name(field.name):
            pairs.append(("json_name", quoted(field.json_name)))
        return _bracketed([*pairs, *self._option_pairs(field.options)])

    def _option_pairs(self, options: Any) -> list[tuple[str, str]]:
        pairs: list[tuple[str, str]] = []
        for field, value in options.ListFields():
            if field.name == "uninterpreted_option":
                pairs += [_uninterpreted(each) for each in value]
                continue
            name = f"({field.full_name})" if field.is_extension else field.name
            for each in value if field.is_repeated else (value,):
                pairs.append((name, _value(field, each)))
        return sorted(pairs) if self._is_sorted else pairs


def _declared(file: Any) -> Iterator[tuple[str, str]]:
    waiting = [(f".{file.package}" if file.package else "", file.message_type, file.enum_type)]
    while waiting:
        scope, messages, enums = waiting.pop()
        yield from ((scope, each.name) for each in enums)
        for each in messages:
            yield scope, each.name
            waiting.append((f"{scope}.{each.name}", each.nested_type, each.enum_type))


def _bracketed(pairs: list[tuple[str, str]]) -> str:
    return f" [{', '.join(f'{name} = {value}' for name, value in pairs)}]" if pairs else ""


def _value(field: Any, value: Any) -> str:
    if field.message_type is not None:
        return f"{{ {MessageToString(value, as_one_line=True)} }}"
    if field.enum_type is not None:
        found = field.enum_type.values_by_number.get(value)
        return str(value) if found is None else str(found.name)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return quoted(value)
    return quoted(value.decode("latin-1")) if isinstance(value, bytes) else str(value)


def _uninterpreted(option: Any) -> tuple[str, str]:
    name = ".".join(f"({each.name_part})" if each.is_extension else each.name_part for each in option.name)
    if option.HasField("identifier_value"):
        return name, option.identifier_value
    if option.HasField("string_value"):
        return name, quoted(option.string_value.decode(errors="replace"))
    if option.HasField("aggregate_value"):
        return name, f"{{ {option.aggregate_value} }}"
    for field in ("positive_int_value", "negative_int_value", "double_value"):
        if option.HasField(field):
            return name, str(getattr(option, field))
    return name, '""'


def _reserved(made: Any, indent: str, most: int, past: int) -> Iterator[str]:
    """`past` is 1 if the ends of ranges are exclusive, as those of messages are."""
    if made.reserved_range:
        ranges = (_range(each.start, each.end - past, most) for each in made.reserved_range)
        yield f"{indent}reserved {', '.join(ranges)};"
    if made.reserved_name:
        yield f"{indent}reserved {', '.join(map(quoted, made.reserved_name))};"


def _range(start: int, end: int, most: int) -> str:
    if start == end:
        return str(start)
    return f"{start} to {'max' if end == most else end}"


def json_name(name: str) -> str:
    """The name in JSON that a compiler gives a field."""
    first, *rest = name.split("_")
    return first + "".join(each[:1].upper() + each[1:] for each in rest)
