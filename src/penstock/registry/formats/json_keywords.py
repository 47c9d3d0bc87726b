"""Keywords of JSON Schema: their values in a node, and how they may change (`json_compatibility`)."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from penstock.registry.compatibility import Difference
from penstock.registry.formats.limits import json_line

_WORD: Final = re.compile(r"(?<!^)(?=[A-Z])")


def limit(old: Mapping[str, Any], new: Mapping[str, Any], keyword: str, path: str) -> Iterator[Difference]:
    """Compare a limit: `maxLength` may grow, `minLength` may shrink, each may be dropped."""
    before: Any = old.get(keyword)
    after: Any = new.get(keyword)
    if not is_number(after):
        return
    kind, at = _WORD.sub("_", keyword).upper(), f"{path}{keyword}"
    is_upper = "max" in keyword.lower()
    if not is_number(before):
        yield added_keyword(f"{kind}_ADDED", at)
    elif is_upper and after < before:
        yield Difference(
            f"{kind}_DECREASED",
            f"The value at path '{at}' in the {{reader}} schema is less than its value in the {{writer}} schema",
        )
    elif not is_upper and after > before:
        yield Difference(
            f"{kind}_INCREASED",
            f"The value at path '{at}' in the {{reader}} schema is more than its value in the {{writer}} schema",
        )


def strings(old: Mapping[str, Any], new: Mapping[str, Any], path: str) -> Iterator[Difference]:
    for keyword in ("maxLength", "minLength"):
        yield from limit(old, new, keyword, path)
    before, after = old.get("pattern"), new.get("pattern")
    if after is not None and after != before:
        at = f"{path}pattern"
        yield added_keyword("PATTERN_ADDED", at) if before is None else value("PATTERN_CHANGED", at)


def numbers(old: Mapping[str, Any], new: Mapping[str, Any], path: str) -> Iterator[Difference]:
    before, after = bounds(old), bounds(new)
    for keyword in ("maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum"):
        yield from limit(before, after, keyword, path)
    was: Any = old.get("multipleOf")
    step: Any = new.get("multipleOf")
    if is_number(step) and step != was and step > 0:
        at = f"{path}multipleOf"
        if not is_number(was):
            yield added_keyword("MULTIPLE_OF_ADDED", at)
        elif step > was and (step / was).is_integer():
            yield Difference(
                "MULTIPLE_OF_EXPANDED",
                f"The value at path '{at}' in the {{reader}} schema is more than its value in the {{writer}} schema",
            )
        elif not (was / step).is_integer():
            yield value("MULTIPLE_OF_CHANGED", at)
    if new.get("type") == "integer" and old.get("type") != "integer":
        yield Difference(
            "TYPE_NARROWED",
            f"A type at path '{path}' is different between the {{reader}} schema and the {{writer}} schema",
        )


def bounds(node: Mapping[str, Any]) -> Mapping[str, Any]:
    """The bounds of a number. In draft 4 `exclusiveMaximum` is true or false."""
    found = dict(node)
    for name, exclusive in (("maximum", "exclusiveMaximum"), ("minimum", "exclusiveMinimum")):
        if found.get(exclusive) is True:
            found[exclusive] = found.pop(name, None)
    return found


def enums(old: Mapping[str, Any], new: Mapping[str, Any], path: str) -> Iterator[Difference]:
    before, after = ({json_line(each, is_sorted=True) for each in values(node)} for node in (old, new))
    if not before <= after:
        is_narrowed = after <= before
        yield changed("ENUM_ARRAY_NARROWED" if is_narrowed else "ENUM_ARRAY_CHANGED", f"{path}enum")


def values(node: Mapping[str, Any]) -> Sequence[Any]:
    values = node.get("enum")
    return values if isinstance(values, list) else [node.get("const")]


def required(old: Mapping[str, Any], new: Mapping[str, Any], path: str) -> Iterator[Difference]:
    before, after = schemas(old, "properties"), schemas(new, "properties")
    had, needs = names(old, "required"), names(new, "required")
    for name in before:
        if name in after and name in needs and name not in had and not has_default(after[name]):
            yield added_keyword("REQUIRED_ATTRIBUTE_ADDED", f"{path}required/{name}")


def is_open(node: Mapping[str, Any]) -> bool:
    return not schemas(node, "patternProperties") and rest_of(node, "additionalProperties") is True


def matches(pattern: str, name: str) -> bool:
    import re2  # noqa: PLC0415  # in linear time: the pattern is the client's

    try:
        return re2.search(pattern, name) is not None
    except re2.error:
        return False


def rest_of(node: Mapping[str, Any], keyword: str) -> bool | dict[str, Any]:
    """What is allowed besides what is listed: everything (True), nothing, or what a schema allows."""
    rest = node.get(keyword, True)
    if isinstance(rest, dict):
        return rest or True
    return rest is not False


def all_items(node: Mapping[str, Any]) -> Any:
    items = node.get("items")
    return items if isinstance(items, dict) and "prefixItems" not in node else None


def listed(node: Mapping[str, Any]) -> Sequence[Any]:
    items = node.get("prefixItems", node.get("items"))
    return items if isinstance(items, list) else ()


def dependent(node: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **schemas(node, "dependencies"),
        **schemas(node, "dependentRequired"),
        **schemas(node, "dependentSchemas"),
    }


def schemas(node: Mapping[str, Any], keyword: str) -> Mapping[str, Any]:
    found = node.get(keyword)
    return found if isinstance(found, dict) else {}


def names(node: Mapping[str, Any], keyword: str) -> Sequence[str]:
    found = node.get(keyword)
    return found if isinstance(found, list) else ()


def has_default(node: Any) -> bool:
    return isinstance(node, dict) and "default" in node


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


# -- differences ---------------------------------------------------------------------------------------


def type_changed(path: str) -> Difference:
    return Difference(
        "TYPE_CHANGED",
        f"A type at path '{path}' is different between the {{reader}} schema and the {{writer}} schema",
    )


def added_keyword(kind: str, at: str) -> Difference:
    return Difference(
        kind, f"The keyword at path '{at}' in the {{reader}} schema is not present in the {{writer}} schema"
    )


def value(kind: str, at: str) -> Difference:
    return Difference(
        kind, f"The value at path '{at}' is different between the {{reader}} and {{writer}} schema"
    )


def changed(kind: str, at: str) -> Difference:
    if kind.endswith(("NARROWED", "EXTENDED")):
        less = "fewer" if kind.endswith("NARROWED") else "more"
        return Difference(
            kind,
            f"An array or combined type at path '{at}' has {less} elements in the {{reader}} schema than the "
            "{writer} schema",
        )
    return Difference(
        kind, f"A type at path '{at}' is different between the {{reader}} schema and the {{writer}} schema"
    )


def added_to_open(kind: str, at: str) -> Difference:
    return Difference(
        kind,
        f"The {{writer}} schema has an open content model and has no property or item at path '{at}', which the "
        "{reader} schema has",
    )


def missing_in_closed(kind: str, at: str) -> Difference:
    return Difference(
        kind,
        f"The {{reader}} schema has a closed content model and is missing a property or item present at path '{at}' "
        "in the {writer} schema",
    )


def not_covered(kind: str, at: str) -> Difference:
    return Difference(
        kind,
        f"The {{reader}} schema has a property or item at path '{at}' which is missing in the {{writer}} schema and "
        "is not covered by its partially open content model",
    )
