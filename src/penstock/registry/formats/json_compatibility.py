"""Whether data that is valid by one JSON Schema is valid by another: Confluent's rules, with its names of differences.

A node becomes one of a few kinds (`_Kind`): texts, numbers, objects, arrays, enumerations, combinations and so on. A
node with keywords of several kinds is all of them (`allOf`). Nodes of the same kind are compared keyword by keyword;
most differences are compatible in one direction. Objects and arrays follow their content model: an open one allows
what it does not list, so a property that is added to it may be there already, with another type.

Compared are the writer's schema, whose data is read, and the reader's: what the reader allows less is a difference.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from penstock.registry.compatibility import Difference
from penstock.registry.errors import RegistryError, invalid_schema
from penstock.registry.formats.json_keywords import (
    added_keyword,
    added_to_open,
    all_items,
    changed,
    dependent,
    enums,
    has_default,
    is_open,
    limit,
    listed,
    matches,
    missing_in_closed,
    names,
    not_covered,
    numbers,
    required,
    rest_of,
    schemas,
    strings,
    type_changed,
)
from penstock.registry.formats.json_schema import JsonSchema
from penstock.registry.formats.limits import DEPTH_MAX, json_line, too_deep

PAIRS_MAX: Final = 20_000
"""Pairs of nodes that are compared; combinations compare each with each."""

ANY, NEVER, STRING, NUMBER, BOOLEAN, NULL, OBJECT, ARRAY, ENUM, NOT, COMBINED = (
    "any", "never", "string", "number", "boolean", "null", "object", "array", "enum", "not", "combined",
)  # fmt: skip

_KEYWORDS: Final = {
    STRING: ("minLength", "maxLength", "pattern"),
    NUMBER: ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    OBJECT: (
        "properties", "required", "additionalProperties", "minProperties", "maxProperties", "dependencies",
        "dependentRequired", "dependentSchemas", "patternProperties", "propertyNames",
    ),
    ARRAY: ("items", "prefixItems", "additionalItems", "minItems", "maxItems", "uniqueItems", "contains"),
}  # fmt: skip
"""Keywords that make a node without a type one of a kind."""

_TYPES: Final = {
    "string": STRING, "number": NUMBER, "integer": NUMBER, "boolean": BOOLEAN, "null": NULL, "object": OBJECT,
    "array": ARRAY,
}  # fmt: skip


class _Kind(NamedTuple):
    kind: str
    node: Mapping[str, Any]
    document: Any
    """That a `$ref` of the node refers to."""
    criterion: str = ""
    """Of a combination: allOf, anyOf or oneOf."""
    parts: Sequence["_Kind | _Node"] = ()


class _Node(NamedTuple):
    """A node that is not looked at yet."""

    node: Any
    document: Any


def differences(reader: JsonSchema, writer: JsonSchema) -> list[Difference]:
    compare = _Comparison(reader, writer)
    return compare.compare(_Node(writer.data, writer.data), _Node(reader.data, reader.data), "#/", 0)


class _Comparison:
    def __init__(self, reader: JsonSchema, writer: JsonSchema) -> None:
        self._reader = reader
        self._writer = writer
        self._known: dict[tuple[Any, Any], list[Difference]] = {}
        """By identity of two nodes."""
        self._kept: list[_Kind | _Node] = []
        """The nodes, so that no other gets their identity."""

    def compare(self, old: "_Kind | _Node", new: "_Kind | _Node", path: str, depth: int) -> list[Difference]:
        """What the writer's node (`old`) allows and the reader's (`new`) does not."""
        key = (_identity(old), _identity(new))
        known = self._known.get(key)
        if known is not None:
            return known
        self._kept += (old, new)
        if len(self._known) > PAIRS_MAX:
            raise invalid_schema(
                f"The schema cannot be compared: its combinations take more than {PAIRS_MAX} steps"
            )
        if depth > DEPTH_MAX:
            raise too_deep("The comparison of the schemas")
        self._known[key] = []  # a recursive schema is compared once
        found = self._compare(_look(old, self._writer), _look(new, self._reader), path, depth + 1)
        self._known[key] = found
        return found

    def _is_one_of(self, old: _Kind, new: _Kind, path: str, depth: int) -> bool:
        """Whether one node is a combination of which a part is enough: a part of the reader's `anyOf` that allows all
        of the writer's, or a part of the writer's `allOf` that the reader allows."""
        if new.kind == COMBINED and old.kind != COMBINED:
            return (len(new.parts) == 1 or new.criterion != "allOf") and any(
                not self.compare(old, each, path, depth) for each in new.parts
            )
        if old.kind == COMBINED and new.kind != COMBINED:
            return (len(old.parts) == 1 or old.criterion == "allOf") and any(
                not self.compare(each, new, path, depth) for each in old.parts
            )
        return False

    def _compare(self, old: _Kind, new: _Kind, path: str, depth: int) -> list[Difference]:
        if self._is_one_of(old, new, path, depth):
            return []
        if old.kind != new.kind:
            return [] if old.kind == NEVER or new.kind == ANY else [type_changed(path)]
        found: list[Difference] = []
        match old.kind:
            case "string":
                found = list(strings(old.node, new.node, path))
            case "number":
                found = list(numbers(old.node, new.node, path))
            case "enum":
                found = list(enums(old.node, new.node, path))
            case "object":
                found = self._objects(old, new, path, depth)
            case "array":
                found = self._arrays(old, new, path, depth)
            case "combined":
                found = self._combined(old, new, path, depth)
            case "not":
                # What may not be is compared the other way round.
                reverse = _Comparison(self._writer, self._reader)
                if reverse.compare(_under(new, "not"), _under(old, "not"), path, depth):
                    found = [changed("NOT_TYPE_EXTENDED", path)]
        return found

    # -- combinations ----------------------------------------------------------------------------------

    def _combined(self, old: _Kind, new: _Kind, path: str, depth: int) -> list[Difference]:
        if not _criteria_fit(old, new):
            return [changed("COMBINED_TYPE_CHANGED", path)]
        found: list[Difference] = []
        before, after = _distinct(old.parts), _distinct(new.parts)
        if len(before) < len(after) and new.criterion == "allOf":
            found.append(changed("PRODUCT_TYPE_EXTENDED", path))
        elif len(before) > len(after) and old.criterion != "allOf":
            found.append(changed("SUM_TYPE_NARROWED", path))
        edges = [
            [
                number
                for number, other in enumerate(after)
                if not self.compare(each, other, f"{path}{old.criterion}/{at}/", depth)
            ]
            for at, each in enumerate(before)
        ]
        if _matching(edges, len(after)) < min(len(before), len(after)):
            found.append(changed("COMBINED_TYPE_SUBSCHEMAS_CHANGED", path))
        return found

    # -- objects ---------------------------------------------------------------------------------------

    def _objects(self, old: _Kind, new: _Kind, path: str, depth: int) -> list[Difference]:
        found = list(required(old.node, new.node, path))
        found += self._properties(old, new, path, depth)
        found += self._dependencies(old, new, path, depth)
        found += self._rest(old, new, "additionalProperties", "ADDITIONAL_PROPERTIES", path, depth)
        for keyword in ("maxProperties", "minProperties"):
            found += limit(old.node, new.node, keyword, path)
        return found

    def _properties(self, old: _Kind, new: _Kind, path: str, depth: int) -> list[Difference]:
        found: list[Difference] = []
        before, after = schemas(old.node, "properties"), schemas(new.node, "properties")
        for name in dict.fromkeys((*before, *after)):
            at = f"{path}properties/{name}"
            if name not in after:
                found += self._removed(old, new, name, _Node(before[name], old.document), at, depth)
            elif name not in before:
                found += self._added(old, new, name, _Node(after[name], new.document), at, depth)
            else:
                found += self.compare(
                    _Node(before[name], old.document), _Node(after[name], new.document), f"{at}/", depth
                )
        return found

    def _removed(
        self, old: _Kind, new: _Kind, name: str, node: _Node, at: str, depth: int
    ) -> list[Difference]:
        if is_open(new.node):
            return []
        partial = _partial(new, name)
        if partial is not None:
            inner = self.compare(node, partial, f"{at}/", depth)
            return inner and [
                *inner,
                Difference(
                    "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
                    f"A property or item is missing in the {{reader}} schema but present at path '{at}' in the "
                    "{writer} schema and is not covered by its partially open content model",
                ),
            ]
        if _look(node, self._writer).kind == NEVER:
            return []
        return [missing_in_closed("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL", at)]

    def _added(self, old: _Kind, new: _Kind, name: str, node: _Node, at: str, depth: int) -> list[Difference]:
        if is_open(old.node):
            if _look(node, self._reader).kind == ANY:
                return []
            return [added_to_open("PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL", at)]
        found: list[Difference] = []
        partial = _partial(old, name)
        if partial is not None:
            inner = self.compare(partial, node, f"{at}/", depth)
            if inner:
                found = [
                    *inner,
                    not_covered("PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", at),
                ]
        if name in names(new.node, "required") and not has_default(node.node):
            found.append(
                Difference(
                    "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL",
                    f"The {{reader}} schema has an unopen content model and has a required property at path '{at}' "
                    "which is missing in the {writer} schema",
                )
            )
        return found

    def _dependencies(self, old: _Kind, new: _Kind, path: str, depth: int) -> list[Difference]:
        found: list[Difference] = []
        before, after = dependent(old.node), dependent(new.node)
        for name, needs in after.items():
            at = f"{path}dependencies/{name}"
            had = before.get(name)
            if isinstance(needs, list):
                if not isinstance(had, list):
                    found.append(added_keyword("DEPENDENCY_ARRAY_ADDED", at))
                elif not set(needs) <= set(had):
                    is_extended = set(had) <= set(needs)
                    found.append(
                        changed(
                            "DEPENDENCY_ARRAY_EXTENDED" if is_extended else "DEPENDENCY_ARRAY_CHANGED", at
                        )
                    )
            elif had is None or isinstance(had, list):
                found.append(added_keyword("DEPENDENCY_SCHEMA_ADDED", at))
            else:
                found += self.compare(_Node(had, old.document), _Node(needs, new.document), f"{at}/", depth)
        return found

    def _rest(
        self, old: _Kind, new: _Kind, keyword: str, kind: str, path: str, depth: int
    ) -> list[Difference]:
        """Compare what is allowed besides what is listed: nothing, anything, or what a schema allows."""
        before, after = rest_of(old.node, keyword), rest_of(new.node, keyword)
        at = f"{path}{keyword}"
        if (before is False) != (after is False):
            return [added_keyword(f"{kind}_REMOVED", at)] if after is False else []
        if before is True and after is not True:
            return [changed(f"{kind}_NARROWED", at)]
        if isinstance(before, dict) and isinstance(after, dict):
            return self.compare(_Node(before, old.document), _Node(after, new.document), f"{at}/", depth)
        return []

    # -- arrays ----------------------------------------------------------------------------------------

    def _arrays(self, old: _Kind, new: _Kind, path: str, depth: int) -> list[Difference]:
        found: list[Difference] = []
        before, after = all_items(old.node), all_items(new.node)
        if after is not None:
            if before is None:
                if _look(_Node(after, new.document), self._reader).kind != ANY:
                    found.append(added_keyword("SCHEMA_ADDED", f"{path}items"))
            else:
                found += self.compare(
                    _Node(before, old.document), _Node(after, new.document), f"{path}items/", depth
                )
        found += self._listed_items(old, new, path, depth)
        found += self._rest(
            _items_rest(old), _items_rest(new), "additionalItems", "ADDITIONAL_ITEMS", path, depth
        )
        for keyword in ("maxItems", "minItems"):
            found += limit(old.node, new.node, keyword, path)
        if new.node.get("uniqueItems") is True and old.node.get("uniqueItems") is not True:
            found.append(added_keyword("UNIQUE_ITEMS_ADDED", f"{path}uniqueItems"))
        return found

    def _listed_items(self, old: _Kind, new: _Kind, path: str, depth: int) -> list[Difference]:
        found: list[Difference] = []
        before, after = listed(old.node), listed(new.node)
        for number, (first, second) in enumerate(zip(before, after, strict=False)):
            found += self.compare(
                _Node(first, old.document), _Node(second, new.document), f"{path}items/{number}/", depth
            )
        rest = rest_of(_items_rest(new).node, "additionalItems")
        for number in range(len(after), len(before)):
            at, node = f"{path}items/{number}", _Node(before[number], old.document)
            if rest is False and _look(node, self._writer).kind != NEVER:
                found.append(missing_in_closed("ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL", at))
            elif isinstance(rest, dict):
                found += self.compare(node, _Node(rest, new.document), f"{at}/", depth)
        rest = rest_of(_items_rest(old).node, "additionalItems")
        for number in range(len(before), len(after)):
            at, node = f"{path}items/{number}", _Node(after[number], new.document)
            if rest is True and _look(node, self._reader).kind != ANY:
                found.append(added_to_open("ITEM_ADDED_TO_OPEN_CONTENT_MODEL", at))
            elif isinstance(rest, dict):
                inner = self.compare(_Node(rest, old.document), node, f"{at}/", depth)
                found += inner and [
                    *inner, not_covered("ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", at),
                ]  # fmt: skip
        return found


# -- kinds ---------------------------------------------------------------------------------------------


def _identity(node: "_Kind | _Node") -> Any:
    """A kind that was made of a node is that node and its kind."""
    if isinstance(node, _Node):
        return id(node.node) if isinstance(node.node, dict) else ("=", node.node)
    return id(node.node), node.kind, node.criterion


def _look(node: "_Kind | _Node", schema: JsonSchema) -> _Kind:
    """The kind of a node."""
    if isinstance(node, _Kind):
        return node
    data, document = node
    for _ in range(DEPTH_MAX):
        if not isinstance(data, dict) or not isinstance(data.get("$ref"), str):
            break
        try:
            data, document = schema.resolve(data["$ref"], document)
        except RegistryError:
            return _Kind(ANY, {}, document)
    else:
        raise too_deep("A chain of references")
    if not isinstance(data, dict):
        return _Kind(NEVER if data is False else ANY, {}, document)
    kinds = list(_kinds(data, document))
    if len(kinds) == 1:
        return kinds[0]
    return _Kind(COMBINED, data, document, "allOf", tuple(kinds)) if kinds else _Kind(ANY, data, document)


def _kinds(data: Mapping[str, Any], document: Any) -> Iterator[_Kind]:
    if "enum" in data or "const" in data:
        yield _Kind(ENUM, data, document)
    types = data.get("type")
    if isinstance(types, list) and len(types) > 1:
        typed = tuple(_typed(each, data, document) for each in types if each in _TYPES)
        yield _Kind(COMBINED, {"type": types}, document, "anyOf", typed)
    elif types:
        one = types[0] if isinstance(types, list) else types
        if one in _TYPES:
            yield _typed(one, data, document)
    else:
        for kind, keywords in _KEYWORDS.items():
            if any(each in data for each in keywords):
                yield _Kind(kind, data, document)
    for criterion in ("allOf", "anyOf", "oneOf"):
        parts = data.get(criterion)
        if isinstance(parts, list) and parts:
            yield _Kind(
                COMBINED,
                {criterion: parts},
                document,
                criterion,
                tuple(_Node(each, document) for each in parts),
            )
    if "not" in data:
        yield _Kind(NOT, data, document)


def _typed(name: str, data: Mapping[str, Any], document: Any) -> _Kind:
    kind = _TYPES[name]
    return _Kind(kind, {**data, "type": name} if kind == NUMBER else data, document)


def _under(kind: _Kind, keyword: str) -> _Node:
    return _Node(kind.node[keyword], kind.document)


def _distinct(parts: Sequence["_Kind | _Node"]) -> list["_Kind | _Node"]:
    return list({(json_line(each.node, is_sorted=True), each[0] if isinstance(each, _Kind) else ""): each
                 for each in parts}.values())  # fmt: skip


def _criteria_fit(old: _Kind, new: _Kind) -> bool:
    if new.criterion in (old.criterion, "anyOf"):
        return True
    is_one, becomes_one = len(old.parts) == 1, len(new.parts) == 1
    return (
        (is_one and becomes_one)
        or (is_one and new.criterion == "oneOf")
        or (becomes_one and old.criterion == "allOf")
    )


def _matching(edges: Sequence[Sequence[int]], count: int) -> int:
    """The most pairs such that no part is in two of them."""
    taken: list[int] = [-1] * count

    def place(at: int, tried: set[int]) -> bool:
        for number in edges[at]:
            if number not in tried:
                tried.add(number)
                if taken[number] < 0 or place(taken[number], tried):
                    taken[number] = at
                    return True
        return False

    return sum(place(at, set()) for at in range(len(edges)))


def _items_rest(kind: _Kind) -> _Kind:
    """With `additionalItems` under this name, which is `items` beside `prefixItems` since draft 2020-12. An array with
    one schema for all items has none."""
    if "prefixItems" in kind.node:
        return kind._replace(node={"additionalItems": kind.node.get("items", True)})
    if all_items(kind.node) is not None:
        return kind._replace(node={})
    return kind


def _partial(kind: _Kind, name: str) -> _Node | None:
    """The schema of a property that is not listed, in an object that allows some."""
    for pattern, schema in schemas(kind.node, "patternProperties").items():
        if matches(pattern, name):
            return _Node(schema, kind.document)
    rest = rest_of(kind.node, "additionalProperties")
    return _Node(rest, kind.document) if isinstance(rest, dict) else None
