"""`/docs`: the API for readers, as one HTML page that loads nothing else."""

import ast
import inspect
import sys
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import pairwise
from typing import Any, Final, TypeAlias, get_args, get_origin

import msgspec

from penstock import __version__
from penstock.base.steps import Steps, next_tick
from penstock.base.world import World
from penstock.gateway.http.protocol.messages import JSON, Query, Route
from penstock.gateway.http.protocol.openapi import (
    ABOUT,
    PATH_PARAMETERS,
    TAGS,
    operation_id,
    path_parameters,
)

HTML = "text/html; charset=utf-8"

POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Content security policy: the page loads and runs nothing."""

UNBOUNDED: Final = 2**31 - 1
"""A bound as large as this is one of the wire's integers, and is not shown."""

Meanings: TypeAlias = dict[str, dict[str, str]]

_REF = "{name}"
_KINDS: dict[Any, str] = {str: "string", int: "integer", bool: "boolean"}

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8882; --link: light-dark(#0b57d0, #8ab4f8); }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
a { color: var(--link); text-decoration: none; }
h2 { margin-top: 2.5rem; border-bottom: 1px solid var(--line); }
h3 { font: 600 1rem ui-monospace, monospace; margin: 2rem 0 .25rem; }
h3 b { display: inline-block; min-width: 4.5rem; }
code, pre { font: .875rem/1.45 ui-monospace, monospace; background: var(--soft); border-radius: .25rem; }
code { padding: .1rem .25rem; }
pre { padding: .75rem; overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
td:first-child { white-space: nowrap; }
td, th { text-align: left; vertical-align: top; padding: .25rem .75rem .25rem 0; border-top: 1px solid var(--line); }
nav a { margin-right: 1rem; }
"""


def page(routes: Sequence[Route], meanings: Meanings | None = None) -> bytes:
    """`meanings` are those of `field_meanings`."""
    tags = dict.fromkeys(route.tag for route in routes)
    links = "".join(f'<a href="#{escape(tag)}">{escape(_title(tag))}</a>' for tag in (*tags, "types"))
    about = "".join(f"<p>{_prose(each)}</p>" for each in ABOUT.split("\n\n"))
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>Penstock {__version__} HTTP API</title><style>{_STYLE}</style></head><body>",
        f"<h1>Penstock {__version__} HTTP API</h1>{about}",
        '<p>The same as an OpenAPI 3.1 document: <a href="/openapi.json">/openapi.json</a>.</p>',
        f"<nav>{links}</nav>",
    ]
    by_path = {(route.method, route.path): route for route in routes}
    for tag in tags:
        parts.append(f'<h2 id="{escape(tag)}">{escape(_title(tag))}</h2><p>{_prose(TAGS.get(tag, ""))}</p>')
        parts += [_route(route, by_path) for route in routes if route.tag == tag]
    parts.append(_types(routes, meanings or {}))
    parts.append("</body></html>")
    return "".join(parts).encode()


def _title(tag: str) -> str:
    return tag.capitalize()


def _route(route: Route, by_path: Mapping[tuple[str, str], Route]) -> str:
    name = operation_id(route)
    more = []
    base = by_path.get((route.method, route.path.rpartition(".")[0]))
    if base is not None:  # `records.parquet` takes the parameters of `records`
        more.append(
            f'<p>Parameters: those of <a href="#{operation_id(base)}">{escape(base.path)}</a>'
            f"{', without <code>format</code>' if len(base.query) > len(route.query) else ''}.</p>"
        )
    else:
        rows = [_path_row(each) for each in path_parameters(route)] + [
            _query_row(each) for each in route.query
        ]
        if rows:
            more.append(f"<table><tr><th>Parameter<th>Type<th>Meaning</tr>{''.join(rows)}</table>")
    if route.body is not None:
        more.append(f"<p>Request body: {_type_of(route.body)}</p>")
    forms = ", ".join(f"<code>{escape(each.partition(';')[0])}</code>" for each in route.content_types)
    answer = _type_of(route.answer) if route.answer is not None and JSON in route.content_types else ""
    more.append(f"<p>Response: {route.status} {answer} {forms}</p>")
    return (
        f'<h3 id="{name}"><b>{route.method}</b> <a href="#{name}">{escape(route.path)}</a></h3>'
        f"<p>{_prose(route.summary)}</p>{''.join(more)}"
    )


def _path_row(name: str) -> str:
    what, schema = PATH_PARAMETERS.get(name, ("", {"type": "string"}))
    return f"<tr><td><code>{escape(name)}</code><td>{schema['type']}<td>{_prose(what)} Part of the path.</tr>"


def _query_row(each: Query) -> str:
    if each.one_of:
        kind = ("" if each.type is str else "list of ") + ", ".join(map(escape, each.one_of))
    else:
        kind = _KINDS.get(each.type, "comma-separated list")
    notes = []
    if each.is_required:
        notes.append("Required.")
    if each.type is int:
        notes.append(_bounds(each.min, each.max))
    if each.default is not None:
        notes.append(
            f"Default: {each.default:,}." if type(each.default) is int else f"Default: {_literal(each)}."
        )
    shown = " ".join(filter(None, [_prose(each.what), *map(escape, notes)]))
    return f"<tr><td><code>{escape(each.name)}</code><td>{kind}<td>{shown}</tr>"


def _bounds(low: int | None, high: int | None) -> str:
    """The bounds of a number, as far as a user may meet them: those of the wire's integers are left out."""
    if high is not None and high < UNBOUNDED:
        return f"{low or 0:,} to {high:,}."
    return f"At least {low:,}." if low is not None and low > 1 else ""


def _literal(each: Query) -> str:
    return each.default if each.type is str else msgspec.json.encode(each.default).decode()


# -- types of bodies and responses -----------------------------------------------------------------------------


def field_meanings(routes: Sequence[Route], world: World) -> Steps[Meanings]:
    """The docstrings of the fields of all bodies and responses, by type and field. They are read from the modules'
    source, one module at a time; a type whose source is not installed has none."""
    structs: dict[str, set[str]] = {}
    for route in routes:
        for kind in (route.body, route.answer):
            _add_structs(kind, structs)
    meanings: Meanings = {}
    for module, names in structs.items():
        yield next_tick(world)
        try:
            tree = ast.parse(inspect.getsource(sys.modules[module]))
        except OSError:
            continue
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and node.name in names:
                meanings[node.name] = dict(_documented(node))
    yield next_tick(world)
    return meanings


def _add_structs(kind: Any, found: dict[str, set[str]]) -> None:
    """Note the names of the structs that a type consists of, by module."""
    origin = get_origin(kind)
    struct = kind if origin is None else origin
    if isinstance(struct, type) and issubclass(struct, msgspec.Struct):
        names = found.setdefault(struct.__module__, set())
        if struct.__name__ not in names:
            names.add(struct.__name__)
            for field in msgspec.structs.fields(struct):
                _add_structs(field.type, found)
    for each in get_args(kind):
        _add_structs(each, found)


def _documented(struct: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """Fields with the string that follows them."""
    for field, after in pairwise(struct.body):
        match field, after:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                yield name, " ".join(text.split())


def _type_of(kind: Any) -> str:
    (schema,), _ = msgspec.json.schema_components([kind], ref_template=_REF)
    return _type(schema)


def _types(routes: Sequence[Route], meanings: Meanings) -> str:
    """All types of bodies and responses, each once."""
    kinds = [each for route in routes for each in (route.body, route.answer) if each is not None]
    _, components = msgspec.json.schema_components(kinds, ref_template=_REF)
    parts = ['<h2 id="types">Types</h2><p>JSON objects of requests and responses.</p>']
    for name, schema in components.items():
        meant = {_camel(field): what for field, what in meanings.get(name, {}).items()}
        meant |= meanings.get(name, {})
        required = schema.get("required", ())
        rows = "".join(
            f"<tr><td><code>{escape(field)}</code><td>{_type(of)}"
            f"<td>{_prose(of.get('description') or meant.get(field, ''))}"
            f"{'' if field in required else ' Optional.'}</tr>"
            for field, of in schema.get("properties", {}).items()
        )
        what = _prose(" ".join(schema.get("description", "").split()))
        parts.append(
            f'<h3 id="{escape(name)}">{escape(name)}</h3>{what and f"<p>{what}</p>"}'
            f"<table><tr><th>Field<th>Type<th>Meaning</tr>{rows}</table>"
        )
    return "".join(parts)


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(each.capitalize() for each in rest)


def _type(schema: dict[str, Any]) -> str:
    """A schema in a few words."""
    if "$ref" in schema:
        name = escape(schema["$ref"])
        return f'<a href="#{name}">{name}</a>'
    if "enum" in schema:
        return ", ".join(escape(str(each)) for each in schema["enum"])
    if "anyOf" in schema and "type" not in schema:
        return " or ".join(dict.fromkeys(map(_type, schema["anyOf"])))
    kind = escape(str(schema.get("type", "any value")))
    if kind == "array" and isinstance(schema.get("items"), dict):
        return f"list of {_type(schema['items'])}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_type(schema['additionalProperties'])}"
    encoding = schema.get("contentEncoding")
    return f"{encoding} {kind}" if encoding else kind


def _prose(text: str) -> str:
    """Text with `code` in it, as HTML."""
    pieces = escape(text).split("`")
    return "".join(
        f"<code>{piece}</code>" if number % 2 and number < len(pieces) - 1 else piece
        for number, piece in enumerate(pieces)
    )
