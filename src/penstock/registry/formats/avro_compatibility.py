"""Whether an Avro schema can read what another wrote: the rules of schema resolution in Avro's specification, with the
names of types compared without their namespaces, as Java's `SchemaCompatibility` does."""

from typing import Any, Final

from penstock.registry.compatibility import Difference
from penstock.registry.formats.avro_schema import PRIMITIVES, AvroSchema

_PROMOTED: Final = {
    "long": frozenset({"int"}),
    "float": frozenset({"int", "long"}),
    "double": frozenset({"int", "long", "float"}),
    "string": frozenset({"bytes"}),
    "bytes": frozenset({"string"}),
}
"""Types that a reader's type reads besides its own."""


def differences(reader: AvroSchema, writer: AvroSchema) -> list[Difference]:
    return _Comparison().compare(reader.schema, writer.schema, "/")


class _Comparison:
    def __init__(self) -> None:
        self._known: dict[tuple[int, int], list[Difference]] = {}
        """By identity of reader and writer: what was found. Types that are being compared have nothing yet, so a
        recursive type is compared once."""

    def compare(self, reader: Any, writer: Any, path: str) -> list[Difference]:
        pair = (id(reader), id(writer))
        known = self._known.get(pair)
        if known is None:
            self._known[pair] = []
            known = self._known[pair] = self._compare(reader, writer, path)
        return known

    def _compare(self, reader: Any, writer: Any, path: str) -> list[Difference]:  # noqa: PLR0911  # one for each type
        kind, written = _kind(reader), _kind(writer)
        if written == "union":
            if kind == "union":
                return self._unions(reader, writer, path)
            return [each for branch in writer.schemas for each in self.compare(reader, branch, path)]
        if kind == "union":
            if any(not self.compare(branch, writer, path) for branch in reader.schemas):
                return []
            return [_missing_branch(writer, path)]
        if kind != written:
            if written in _PROMOTED.get(kind, ()):
                return []
            return [_type_mismatch(kind, written, path)]
        if kind in PRIMITIVES:
            return []
        if kind == "array":
            return self.compare(reader.items, writer.items, _under(path, "items"))
        if kind == "map":
            return self.compare(reader.values, writer.values, _under(path, "values"))
        found = _names(reader, writer, path)
        if kind == "record":
            return found + self._records(reader, writer, path)
        return found + (_symbols(reader, writer, path) if kind == "enum" else _sizes(reader, writer, path))

    def _unions(self, reader: Any, writer: Any, path: str) -> list[Difference]:
        return [
            _missing_branch(branch, _under(path, str(number)))
            for number, branch in enumerate(writer.schemas)
            if self.compare(reader, branch, path)
        ]

    def _records(self, reader: Any, writer: Any, path: str) -> list[Difference]:
        found: list[Difference] = []
        written = writer.fields_dict
        for number, field in enumerate(reader.fields):
            at = _under(path, f"fields/{number}")
            names = (field.name, *(field.props.get("aliases") or ()))
            source = next((written[each] for each in names if each in written), None)
            if source is not None:
                found += self.compare(field.type, source.type, _under(at, "type"))
            elif not field.has_default:
                found.append(
                    Difference(
                        "READER_FIELD_MISSING_DEFAULT_VALUE",
                        f"The field '{field.name}' at path '{at}' in the {{reader}} schema has no default value and "
                        "is missing in the {writer} schema",
                        field.name,
                    )
                )
        return found


def _kind(schema: Any) -> str:
    kind: str = schema.type
    return {"error": "record", "error_union": "union"}.get(kind, kind)


def _under(path: str, name: str) -> str:
    return f"{path.removesuffix('/')}/{name}"


def _names(reader: Any, writer: Any, path: str) -> list[Difference]:
    space = f"{reader.namespace}." if reader.namespace else ""
    aliases = {each if "." in each else f"{space}{each}" for each in reader.props.get("aliases") or ()}
    if _short(reader.name) == _short(writer.name) or writer.fullname in aliases:
        return []
    at = _under(path, "name")
    return [
        Difference(
            "NAME_MISMATCH",
            f"The name of the schema has changed (path '{at}')",
            f"expected: {writer.fullname}",
        )
    ]


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def _symbols(reader: Any, writer: Any, path: str) -> list[Difference]:
    missing = [each for each in writer.symbols if each not in reader.symbols]
    if not missing or reader.props.get("default") in reader.symbols:
        return []
    at = _under(path, "symbols")
    return [
        Difference(
            "MISSING_ENUM_SYMBOLS",
            f"The {{reader}} schema is missing enum symbols '{missing}' at path '{at}' in the {{writer}} schema",
            str(missing),
        )
    ]


def _sizes(reader: Any, writer: Any, path: str) -> list[Difference]:
    if reader.size == writer.size:
        return []
    at = _under(path, "size")
    return [
        Difference(
            "FIXED_SIZE_MISMATCH",
            f"The size of FIXED type field at path '{at}' in the {{reader}} schema does not match with the {{writer}} "
            "schema",
            f"expected: {writer.size}, found: {reader.size}",
        )
    ]


def _type_mismatch(reader: str, writer: str, path: str) -> Difference:
    return Difference(
        "TYPE_MISMATCH",
        f"The type (path '{path}') of a field in the {{reader}} schema does not match with the {{writer}} schema",
        f"reader type: {reader.upper()} not compatible with writer type: {writer.upper()}",
    )


def _missing_branch(writer: Any, path: str) -> Difference:
    return Difference(
        "MISSING_UNION_BRANCH",
        f"The {{reader}} schema is missing a type inside a union field at path '{path}' in the {{writer}} schema",
        f"reader union lacking writer type: {_kind(writer).upper()}",
    )
