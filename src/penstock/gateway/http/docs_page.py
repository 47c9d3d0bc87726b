"""The routes' description for people: one page of HTML that needs nothing but itself."""

from collections.abc import Sequence
from html import escape
from typing import Any

import msgspec

from penstock import __version__
from penstock.gateway.http.protocol.messages import JSON, Query, Route
from penstock.gateway.http.protocol.openapi import ABOUT, PATH_PARAMETERS, operation_id, path_parameters

HTML = "text/html; charset=utf-8"

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
td, th { text-align: left; vertical-align: top; padding: .25rem .75rem .25rem 0; border-top: 1px solid var(--line); }
nav a { margin-right: 1rem; }
"""


def page(routes: Sequence[Route]) -> bytes:
    tags = dict.fromkeys(route.tag for route in routes)
    links = "".join(f'<a href="#{escape(tag)}">{escape(tag)}</a>' for tag in tags)
    about = "".join(f"<p>{_prose(each)}</p>" for each in ABOUT.split("\n\n"))
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>Penstock {__version__}: JSON over HTTP</title><style>{_STYLE}</style></head><body>",
        f'<h1>Penstock {__version__}</h1>{about}<p>For programs: <a href="/openapi.json">/openapi.json</a>.</p>',
        f"<nav>{links}</nav>",
    ]
    for tag in tags:
        parts.append(f'<h2 id="{escape(tag)}">{escape(tag)}</h2>')
        parts += [_route(route) for route in routes if route.tag == tag]
    parts.append(_shapes(routes))
    parts.append("</body></html>")
    return "".join(parts).encode()


def _route(route: Route) -> str:
    name = operation_id(route)
    rows = [_path_row(each) for each in path_parameters(route)] + [_query_row(each) for each in route.query]
    table = f"<table><tr><th>parameter<th>type<th>meaning</tr>{''.join(rows)}</table>" if rows else ""
    more = []
    if route.body is not None:
        more.append(f"<p>Body: {_shape(route.body)}</p>")
    forms = ", ".join(f"<code>{escape(each)}</code>" for each in route.content_types)
    answer = _shape(route.answer) if route.answer is not None and JSON in route.content_types else ""
    more.append(f"<p>Answer: {route.status} {answer} {forms}</p>")
    return (
        f'<h3 id="{name}"><b>{route.method}</b> <a href="#{name}">{escape(route.path)}</a></h3>'
        f"<p>{_prose(route.summary)}</p>{table}{''.join(more)}"
    )


def _path_row(name: str) -> str:
    what, schema = PATH_PARAMETERS.get(name, ("", {"type": "string"}))
    return f"<tr><td><code>{escape(name)}</code><td>{schema['type']}<td>{_prose(what)}</tr>"


def _query_row(each: Query) -> str:
    kind = " | ".join(map(escape, each.one_of)) or _KINDS.get(each.type, "list")
    notes = []
    if each.is_required:
        notes.append("required")
    if each.default is not None:
        notes.append(f"{_literal(each.default)} unless given")
    if each.type is int and (each.min is not None or each.max is not None):
        low, high = "" if each.min is None else each.min, "" if each.max is None else each.max
        notes.append(f"{low} to {high}".strip())
    shown = f" ({'; '.join(notes)})" if notes else ""
    return f"<tr><td><code>{escape(each.name)}</code><td>{kind}<td>{_prose(each.what)}{escape(shown)}</tr>"


def _literal(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _shape(kind: Any) -> str:
    (schema,), _ = msgspec.json.schema_components([kind], ref_template=_REF)
    return _kind(schema)


def _shapes(routes: Sequence[Route]) -> str:
    """All shapes of bodies and answers, each once."""
    kinds = [each for route in routes for each in (route.body, route.answer) if each is not None]
    _, components = msgspec.json.schema_components(kinds, ref_template=_REF)
    parts = ['<h2 id="shapes">shapes</h2>']
    for name, schema in components.items():
        fields = "".join(
            f"<tr><td><code>{escape(field)}</code><td>{_kind(of)}"
            f"<td>{'' if field in schema.get('required', ()) else 'optional'}</tr>"
            for field, of in schema.get("properties", {}).items()
        )
        what = _prose(schema.get("description", ""))
        parts.append(f'<h3 id="{escape(name)}">{escape(name)}</h3><p>{what}</p><table>{fields}</table>')
    return "".join(parts)


def _kind(schema: dict[str, Any]) -> str:
    """A schema in a few words."""
    if "$ref" in schema:
        name = escape(schema["$ref"])
        return f'<a href="#{name}">{name}</a>'
    if "anyOf" in schema:
        return " or ".join(map(_kind, schema["anyOf"]))
    if "enum" in schema:
        return " | ".join(escape(str(each)) for each in schema["enum"])
    kind = escape(str(schema.get("type", "anything")))
    if kind == "array" and isinstance(schema.get("items"), dict):
        return f"list of {_kind(schema['items'])}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_kind(schema['additionalProperties'])}"
    encoding = schema.get("contentEncoding")
    return f"{kind} ({encoding})" if encoding else kind


def _prose(text: str) -> str:
    """Text with `code` in it."""
    pieces = escape(text).split("`")
    return "".join(
        f"<code>{piece}</code>" if number % 2 and number < len(pieces) - 1 else piece
        for number, piece in enumerate(pieces)
    )
