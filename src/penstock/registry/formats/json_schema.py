"""JSON Schema, drafts 4 to 2020-12: parsing, and the text that schemas are compared by: the JSON without spaces.

`$ref` may point within the schema, or to a schema that the registry has, by the name of the reference.
"""

from typing import Any, Final
from urllib.parse import unquote

import jsonschema_rs

from penstock.registry.errors import RegistryError, invalid_schema, shown
from penstock.registry.formats.limits import json_line, parse_json
from penstock.registry.schema import ResolvedSchema

_DRAFT_7: Final = "http://json-schema.org/draft-07/schema#"
"""Of schemas that name no draft, or one of their own."""


class JsonSchema:
    def __init__(self, data: Any, references: dict[str, Any]) -> None:
        self.data = data
        self._references = references
        """By name."""

    @property
    def canonical(self) -> str:
        return json_line(self.data)

    @property
    def normalized(self) -> str:
        return json_line(self.data, is_sorted=True)

    identity = canonical

    def resolve(self, reference: str, within: Any) -> tuple[Any, Any]:
        """What a `$ref` of a document points to, and the document that this is in. Raises if there is none."""
        name, _, fragment = reference.partition("#")
        document = within if not name or name == _id(within) else self._references.get(name)
        if document is None:
            document = next((each for each in self._references.values() if _id(each) == name), None)
        if document is None and name == _id(self.data):
            document = self.data
        found = None if document is None else _pointed(document, unquote(fragment))
        if found is None:
            raise invalid_schema(f"the reference {shown(reference)} points to nothing")
        return found, document


def parse(schema: ResolvedSchema, *, is_new: bool = False) -> JsonSchema:
    """Parse a schema; a new one is checked against the draft it names. Raises `RegistryError`."""
    try:
        references = {}
        for name, text in schema.references:
            references[name] = _node(parse_json(text))
        made = JsonSchema(_node(parse_json(schema.text)), references)
        if is_new:
            _check(made)
    except RegistryError as error:
        raise RegistryError(error.error_code, f"Invalid schema of type JSON: {error}") from None
    return made


def _node(data: Any) -> Any:
    if not isinstance(data, dict | bool):
        raise invalid_schema(f"it is {shown(json_line(data))}, expected an object, true or false")
    return data


def with_draft(data: Any) -> Any:
    """The schema with the draft that it is of."""
    if not isinstance(data, dict):
        return data
    try:
        jsonschema_rs.meta.is_valid({"$schema": data.get("$schema", _DRAFT_7)})
    except (jsonschema_rs.ReferencingError, ValueError, TypeError):
        return {**data, "$schema": _DRAFT_7}
    return {"$schema": _DRAFT_7, **data}


def _check(schema: JsonSchema) -> None:
    """Check keywords, and that every `$ref` points to something."""
    try:
        jsonschema_rs.meta.validate(with_draft(schema.data))
    except jsonschema_rs.ValidationError as error:
        at = "/".join(map(str, error.instance_path))
        raise invalid_schema(f"at path '#/{at}': {shown(error.message)}") from None
    except (jsonschema_rs.ReferencingError, ValueError) as error:
        raise invalid_schema(shown(error)) from None
    waiting: list[tuple[Any, Any]] = [(schema.data, schema.data)]
    while waiting:
        node, document = waiting.pop()
        if isinstance(node, list):
            waiting += [(each, document) for each in node]
        elif isinstance(node, dict):
            reference = node.get("$ref")
            if isinstance(reference, str):
                schema.resolve(reference, document)
            waiting += [
                (each, document) for name, each in node.items() if name not in ("enum", "const", "default")
            ]


def _id(document: Any) -> str:
    if not isinstance(document, dict):
        return ""
    found = document.get("$id", document.get("id", ""))
    return found.rstrip("#") if isinstance(found, str) else ""


def _pointed(document: Any, fragment: str) -> Any:
    if not fragment:
        return document
    if not fragment.startswith("/"):
        return _anchored(document, fragment)
    at = document
    for step in fragment[1:].split("/"):
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(at, dict) and name in at:
            at = at[name]
        elif isinstance(at, list) and name.isdecimal() and int(name) < len(at):
            at = at[int(name)]
        else:
            return None
    return at if isinstance(at, dict | bool) else None


def _anchored(document: Any, anchor: str) -> Any:
    waiting = [document]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            if (
                each.get("$anchor") == anchor
                or each.get("$id") == f"#{anchor}"
                or each.get("id") == f"#{anchor}"
            ):
                return each
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each
    return None
