"""From the syntax tree of a `.proto` file to its `FileDescriptorProto`, as a compiler makes it.

Names of types stay as they are written; the descriptor pool resolves them.
"""

from collections.abc import Iterable
from typing import Any, Final

from google.protobuf import descriptor_pb2
from google.protobuf.text_encoding import CUnescape
from proto_schema_parser import ast

from penstock.registry.errors import invalid_schema, shown
from penstock.registry.formats.limits import DEPTH_MAX, too_deep

_FIELD = descriptor_pb2.FieldDescriptorProto
SCALARS: Final = {
    name.removeprefix("TYPE_").lower(): number
    for name, number in _FIELD.Type.items()
    if name not in ("TYPE_GROUP", "TYPE_MESSAGE", "TYPE_ENUM")
}
_LABELS: Final = {
    ast.FieldCardinality.REQUIRED: _FIELD.LABEL_REQUIRED,
    ast.FieldCardinality.OPTIONAL: _FIELD.LABEL_OPTIONAL,
    ast.FieldCardinality.REPEATED: _FIELD.LABEL_REPEATED,
}
FIELD_NUMBER_MAX: Final = 2**29 - 1
ENUM_NUMBER_MAX: Final = 2**31 - 1


def describe(tree: ast.File) -> Any:  # noqa: PLR0912  # one for each element
    """The descriptor of a file. Raises `RegistryError` for what a compiler would refuse at once."""
    made = descriptor_pb2.FileDescriptorProto()
    if tree.edition is not None:
        made.syntax = "editions"
        made.edition = _edition(tree.edition)
    elif tree.syntax not in (None, "proto2"):
        if tree.syntax != "proto3":
            raise invalid_schema(f"the syntax is {shown(tree.syntax)}, expected proto2 or proto3")
        made.syntax = "proto3"
    for element in tree.file_elements:
        match element:
            case ast.Package():
                made.package = element.name
            case ast.Import():
                if element.public:
                    made.public_dependency.append(len(made.dependency))
                if element.weak:
                    made.weak_dependency.append(len(made.dependency))
                made.dependency.append(element.name)
            case ast.Option():
                _option(made.options, element)
            case ast.Message():
                _message(made.message_type.add(), element, made.syntax, 1)
            case ast.Enum():
                _enum(made.enum_type.add(), element)
            case ast.Extension():
                _extensions(made.extension, made.message_type, element, made.syntax, 1)
            case ast.Service():
                _service(made.service.add(), element)
    return made


def _edition(name: str) -> int:
    try:
        return int(descriptor_pb2.Edition.Value(f"EDITION_{name}"))
    except ValueError:
        raise invalid_schema(f"the edition {shown(name)} is not known") from None


def _message(made: Any, message: Any, syntax: str, depth: int) -> None:  # noqa: C901, PLR0912  # the same
    if depth > DEPTH_MAX:
        raise too_deep()
    if hasattr(message, "name"):
        made.name = message.name
    optional: list[Any] = []
    for element in message.elements:
        match element:
            case ast.Field():
                field = made.field.add()
                _field(field, element)
                if syntax == "proto3" and element.cardinality is ast.FieldCardinality.OPTIONAL:
                    optional.append(field)
            case ast.MapField():
                _map(made, element)
            case ast.Group():
                _group(made.field.add(), made.nested_type, element, syntax, depth)
            case ast.OneOf():
                _oneof(made, element, syntax, depth)
            case ast.Message():
                _message(made.nested_type.add(), element, syntax, depth + 1)
            case ast.Enum():
                _enum(made.enum_type.add(), element)
            case ast.Option():
                _option(made.options, element)
            case ast.Extension():
                _extensions(made.extension, made.nested_type, element, syntax, depth)
            case ast.Reserved():
                made.reserved_name.extend(element.names)
                for start, end in _ranges(element.ranges, FIELD_NUMBER_MAX):
                    made.reserved_range.add(start=start, end=end + 1)
            case ast.ExtensionRange():
                for start, end in _ranges(element.ranges, FIELD_NUMBER_MAX):
                    made.extension_range.add(start=start, end=end + 1)
    # Each `optional` field of proto3 is alone in a oneof that a compiler makes, after those of the file.
    taken = {each.name for each in (*made.field, *made.oneof_decl)}
    for field in optional:
        name = f"_{field.name}"
        while name in taken:
            name = f"X{name}"
        taken.add(name)
        field.proto3_optional = True
        field.oneof_index = len(made.oneof_decl)
        made.oneof_decl.add(name=name)


def _field(made: Any, field: Any) -> None:
    made.name = field.name
    made.number = _number(field.number, field.name)
    made.label = _LABELS.get(field.cardinality, _FIELD.LABEL_OPTIONAL)
    _type(made, field.type)
    for option in field.options:
        if option.name == "default":
            made.default_value = _default(made, option.value)
        elif option.name == "json_name" and isinstance(option.value, str):
            made.json_name = _unescaped(option.value)
        else:
            _option(made.options, option)


def _type(made: Any, name: str) -> None:
    if name in SCALARS:
        made.type = SCALARS[name]
    else:
        made.type_name = name  # of a message or an enum: the pool finds out


def _map(made: Any, field: Any) -> None:
    name = "".join(part[:1].upper() + part[1:] for part in field.name.split("_")) + "Entry"
    entry = made.nested_type.add(name=name)
    entry.options.map_entry = True
    for number, (part, kind) in enumerate((("key", field.key_type), ("value", field.value_type)), 1):
        each = entry.field.add(name=part, number=number, label=_FIELD.LABEL_OPTIONAL)
        _type(each, kind)
    own = made.field.add(
        name=field.name, number=_number(field.number, field.name), label=_FIELD.LABEL_REPEATED
    )
    own.type, own.type_name = _FIELD.TYPE_MESSAGE, name
    for option in field.options:
        if option.name == "json_name" and isinstance(option.value, str):
            own.json_name = _unescaped(option.value)
        else:
            _option(own.options, option)


def _group(made: Any, nested: Any, group: Any, syntax: str, depth: int) -> None:
    made.name = group.name.lower()
    made.number = _number(group.number, group.name)
    made.label = _LABELS.get(group.cardinality, _FIELD.LABEL_OPTIONAL)
    made.type, made.type_name = _FIELD.TYPE_GROUP, group.name
    _message(nested.add(), group, syntax, depth + 1)


def _oneof(made: Any, oneof: Any, syntax: str, depth: int) -> None:
    number = len(made.oneof_decl)
    own = made.oneof_decl.add(name=oneof.name)
    for element in oneof.elements:
        match element:
            case ast.Field():
                field = made.field.add(oneof_index=number)
                _field(field, element)
            case ast.Group():
                _group(made.field.add(oneof_index=number), made.nested_type, element, syntax, depth)
            case ast.Option():
                _option(own.options, element)


def _extensions(made: Any, nested: Any, extension: Any, syntax: str, depth: int) -> None:
    for element in extension.elements:
        if isinstance(element, ast.Field):
            field = made.add(extendee=extension.typeName)
            _field(field, element)
        elif isinstance(element, ast.Group):
            _group(made.add(extendee=extension.typeName), nested, element, syntax, depth)


def _enum(made: Any, enum: Any) -> None:
    made.name = enum.name
    for element in enum.elements:
        match element:
            case ast.EnumValue():
                value = made.value.add(name=element.name)
                if not -ENUM_NUMBER_MAX - 1 <= int(element.number) <= ENUM_NUMBER_MAX:
                    raise invalid_schema(f"the number of {shown(element.name)} is {element.number}")
                value.number = int(element.number)
                for option in element.options:
                    _option(value.options, option)
            case ast.Option():
                _option(made.options, element)
            case ast.EnumReserved():
                made.reserved_name.extend(element.names)
                for start, end in _ranges(element.ranges, ENUM_NUMBER_MAX):
                    made.reserved_range.add(start=start, end=end)


def _service(made: Any, service: Any) -> None:
    made.name = service.name
    for element in service.elements:
        if isinstance(element, ast.Option):
            _option(made.options, element)
        elif isinstance(element, ast.Method):
            method = made.method.add(name=element.name)
            method.input_type, method.output_type = element.input_type.type, element.output_type.type
            method.client_streaming, method.server_streaming = (
                element.input_type.stream,
                element.output_type.stream,
            )
            for each in element.elements:
                if isinstance(each, ast.Option):
                    _option(method.options, each)


def _number(number: Any, name: str) -> int:
    if not 0 < int(number) <= FIELD_NUMBER_MAX:
        raise invalid_schema(f"the number of {shown(name)} is {number}, expected 1 to {FIELD_NUMBER_MAX}")
    return int(number)


def _ranges(ranges: Iterable[str], most: int) -> Iterable[tuple[int, int]]:
    """Pairs of the first and the last number."""
    for each in ranges:
        first, _, last = each.partition(" to ")
        try:
            start = int(first, 0)
            end = start if not last else most if last.strip() == "max" else int(last, 0)
        except ValueError:
            raise invalid_schema(f"{shown(each)} is not a range of numbers") from None
        if not -most - 1 <= start <= end <= most:
            raise invalid_schema(f"{shown(each)} is not a range of numbers from low to high")
        yield start, end


# -- options -------------------------------------------------------------------------------------------


def _default(made: Any, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, ast.Identifier):
        return str(value.name)
    if isinstance(value, str) and made.type != _FIELD.TYPE_BYTES:
        return _unescaped(value)
    return str(value)


def _unescaped(text: str) -> str:
    """The text of a string literal. Bytes that are not UTF-8 stay escaped."""
    if "\\" not in text:
        return text
    try:
        return str(CUnescape(text), "utf-8")
    except (ValueError, UnicodeDecodeError):
        return text


def _option(options: Any, option: Any) -> None:
    """Set an option that every compiler knows; keep any other uninterpreted."""
    value = _unescaped(option.value) if isinstance(option.value, str) else option.value
    at, *rest = option.name.split(".")
    field = options.DESCRIPTOR.fields_by_name.get(at)
    if field is not None and not rest and _set(options, field, value):
        return
    if field is not None and rest and field.message_type is not None and not field.is_repeated:
        inner = field.message_type.fields_by_name.get(".".join(rest))
        if inner is not None and _set(getattr(options, at), inner, value):
            return
    _uninterpreted(options.uninterpreted_option.add(), option)


def _set(options: Any, field: Any, value: Any) -> bool:
    if field.enum_type is not None and isinstance(value, ast.Identifier):
        found = field.enum_type.values_by_name.get(value.name)
        if found is not None and field.is_repeated:
            getattr(options, field.name).append(found.number)
        elif found is not None:
            setattr(options, field.name, found.number)
        return found is not None
    if field.is_repeated or not isinstance(value, bool | int | float | str):
        return False
    try:
        setattr(options, field.name, value)
    except (TypeError, ValueError):
        return False
    return True


def _uninterpreted(made: Any, option: Any) -> None:
    for part in _name_parts(option.name):
        made.name.add(name_part=part.strip("()"), is_extension=part.startswith("("))
    value = option.value
    match value:
        case bool():
            made.identifier_value = "true" if value else "false"
        case int() if value >= 0:
            made.positive_int_value = min(value, 2**64 - 1)
        case int():
            made.negative_int_value = max(value, -(2**63))
        case float():
            made.double_value = value
        case str():
            made.string_value = _unescaped(value).encode()
        case ast.Identifier():
            made.identifier_value = value.name
        case _:
            made.aggregate_value = _aggregate(value)


def _name_parts(name: str) -> list[str]:
    """`(x.y).z` is (x.y) and z."""
    parts: list[str] = []
    rest = name
    while rest:
        if rest.startswith("("):
            part, _, rest = rest.partition(")")
            parts.append(f"{part})")
            rest = rest.removeprefix(".")
        else:
            part, _, rest = rest.partition(".")
            parts.append(part)
    return parts


def _aggregate(value: Any) -> str:
    """The text of a message literal, in one form for all spellings."""
    match value:
        case ast.MessageLiteral():
            fields = [each for each in value.elements if isinstance(each, ast.MessageLiteralField)]
            return " ".join(f"{each.name}: {_literal(each.value)}" for each in fields)
        case _:
            return _literal(value)


def _literal(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case ast.Identifier():
            return str(value.name)
        case ast.MessageLiteral():
            return f"{{ {_aggregate(value)} }}"
        case list():
            return f"[{', '.join(map(_literal, value))}]"
        case str():
            return quoted(_unescaped(value))
        case _:
            return str(value)


def quoted(text: str) -> str:
    """A string of a `.proto` file."""
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return '"' + "".join(escapes.get(each, each) for each in text) + '"'
