"""`/openapi.json`: the API in OpenAPI 3.1, made from the table of routes that requests are validated with."""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from penstock import __version__
from penstock.base.pipeline_report import NAME_CHARS_MAX
from penstock.gateway.http.protocol.errors import ALWAYS, ErrorBody
from penstock.gateway.http.protocol.messages import JSON, REASONS, Query, Route
from penstock.gateway.http.protocol.parameters import GROUP_CHARS_MAX, OFFSET_MAX, PARTITION_MAX, TOPIC_NAME
from penstock.gateway.http.protocol.routing import LISTED_MAX, bounds
from penstock.metadata.controller.topics import NAME_LENGTH_MAX

ABOUT = """Read and write topics, consumer groups and offsets over HTTP, in JSON. Kafka clients see the same ones.

Keys and values of records are base64. Every error is `{"error": {"code": "...", "message": "..."}}`: `code` is
stable and meant for programs, `message` is a sentence for people."""

TAGS = {
    "records": "Produce, read, tail and delete records.",
    "groups": "Consume as a member of a group; list, describe, reset and delete groups.",
    "topics": "List, create, describe, extend and delete topics.",
    "configs": "Read and change configs of topics and brokers.",
    "cluster": "The brokers and the active controller.",
    "explorer": "Look into a topic's segments and indexes, with a topic to experiment on.",
    "operations": "Health for supervisors and load balancers, metrics for Prometheus.",
    "labs": "Runs of the simulator, to look at step by step.",
    "session": "Who the caller is, and log-ins of the console.",
    "about": "This description of the API.",
}
"""What the calls of each section do."""

_TOPIC = {"type": "string", "minLength": 1, "maxLength": NAME_LENGTH_MAX, "pattern": TOPIC_NAME}

PATH_PARAMETERS: dict[str, tuple[str, dict[str, Any]]] = {
    "topic": ("Name of the topic.", _TOPIC),
    "name": ("Name of the topic.", _TOPIC),
    "group": ("Id of the consumer group.", {"type": "string", "minLength": 1, "maxLength": GROUP_CHARS_MAX}),
    "member": ("Id of the member.", {"type": "string", "minLength": 1, "maxLength": GROUP_CHARS_MAX}),
    "pipeline": ("Name of the pipeline.", {"type": "string", "minLength": 1, "maxLength": NAME_CHARS_MAX}),
    "partition": ("Number of the partition.", {"type": "integer", "minimum": 0, "maximum": PARTITION_MAX}),
    "offset": ("Offset of the record.", {"type": "integer", "minimum": 0, "maximum": OFFSET_MAX}),
    "transactional_id": (
        "The `transactional.id` of the producer.",
        {"type": "string", "minLength": 1, "maxLength": GROUP_CHARS_MAX},
    ),
    "broker": ("Id of the broker.", {"type": "integer", "minimum": 0, "maximum": PARTITION_MAX}),
    "user": ("Name of the user.", {"type": "string", "minLength": 1, "maxLength": 255}),
    "token": ("Id of the delegation token.", {"type": "string", "minLength": 1, "maxLength": 255}),
}
"""Parameters in paths, by name: a name means the same in every path."""

_REF = "#/components/schemas/{name}"
_KINDS: dict[Any, str] = {str: "string", int: "integer", bool: "boolean"}


SCHEMES: dict[str, dict[str, str]] = {
    "basic": {
        "type": "http",
        "scheme": "basic",
        "description": "A user of PLAIN or SCRAM, or the id and the HMAC of a delegation token.",
    },
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "A token of the identity provider (OAUTHBEARER).",
    },
}
"""What clients log in with, by the names of HTTP."""

OF_LOGINS = (401, 429)
"""Statuses of every route if clients have to log in."""


def describe(routes: Sequence[Route], schemes: Sequence[str] = ()) -> bytes:
    """The document, as JSON. `schemes` are those of `SCHEMES` that clients have to log in with; empty for none."""
    shapes = [each for route in routes for each in (route.body, route.answer) if each is not None]
    schemas, components = msgspec.json.schema_components([*shapes, ErrorBody], ref_template=_REF)
    found = iter(schemas)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        body = next(found) if route.body is not None else None
        answer = next(found) if route.answer is not None else None
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, body, answer, schemes)
    secured = {"securitySchemes": {each: SCHEMES[each] for each in schemes}} if schemes else {}
    document = {
        "openapi": "3.1.0",
        "info": {"title": "Penstock", "version": __version__, "description": ABOUT},
        "tags": [
            {"name": tag, "description": TAGS.get(tag, "")}
            for tag in dict.fromkeys(route.tag for route in routes)
        ],
        "paths": paths,
        "components": {
            "schemas": components,
            "responses": {str(status): _error(status) for status in _statuses(routes, schemes)},
            **secured,
        },
    }
    return msgspec.json.encode(document)


def _operation(route: Route, body: Any, answer: Any, schemes: Sequence[str]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "tags": [route.tag],
        "summary": route.summary,
        "operationId": operation_id(route),
        "parameters": [*map(_path_parameter, path_parameters(route)), *map(_query_parameter, route.query)],
        "responses": {
            str(route.status): _good(route, answer),
            **{
                str(status): {"$ref": f"#/components/responses/{status}"}
                for status in sorted({*ALWAYS, *route.errors, *(OF_LOGINS if schemes else ())})
            },
        },
    }
    if schemes:
        is_optional = route.rule is not None and (route.rule.is_open or bool(route.rule.opened_by))
        operation["security"] = [*([{}] if is_optional else []), *({each: []} for each in schemes)]
    if body is not None:
        operation["requestBody"] = {"required": True, "content": {JSON: {"schema": body}}}
    return operation


def operation_id(route: Route) -> str:
    """The call's name in generated clients: getTopicsTopicRecords."""
    words = re.findall(r"[A-Za-z0-9]+", route.path)
    return route.method.lower() + "".join(word[0].upper() + word[1:] for word in words)


def path_parameters(route: Route) -> list[str]:
    return re.findall(r"\{(\w+)\}", route.path)


def _path_parameter(name: str) -> dict[str, Any]:
    what, schema = PATH_PARAMETERS.get(name, ("", {"type": "string", "minLength": 1}))
    return {"name": name, "in": "path", "required": True, "description": what, "schema": schema}


def _query_parameter(each: Query) -> dict[str, Any]:
    parameter = {
        "name": each.name,
        "in": "query",
        "required": each.is_required,
        "description": each.what,
        "schema": _query_schema(each),
    }
    if each.type not in _KINDS:
        parameter |= {"style": "form", "explode": False}  # commas in between
    return parameter


def _query_schema(each: Query) -> dict[str, Any]:
    if each.type not in _KINDS:
        return _list_schema(each)
    schema: dict[str, Any] = {"type": _KINDS[each.type]}
    if each.type is int:
        schema["minimum"], schema["maximum"] = bounds(each)
    elif each.type is str:
        if each.one_of:
            schema["enum"] = list(each.one_of)
        if each.min is not None:
            schema["minLength"] = each.min
        if each.max is not None:
            schema["maxLength"] = each.max
        if each.pattern:
            schema["pattern"] = each.pattern
    if each.default is not None:
        schema["default"] = each.default
    return schema


def _list_schema(each: Query) -> dict[str, Any]:
    item: dict[str, Any] = {"type": "string", "minLength": 1}
    if each.one_of:
        item["enum"] = list(each.one_of)
    if each.each_max is not None:
        item["maxLength"] = each.each_max
    if each.pattern:
        item["pattern"] = each.pattern
    return {
        "type": "array",
        "items": item,
        "minItems": 1,
        "maxItems": each.max or LISTED_MAX,
        "uniqueItems": each.is_unique,
    }


def _good(route: Route, answer: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"description": REASONS.get(route.status, "")}
    if route.status != 204:
        found["content"] = {
            kind.partition(";")[0]: {"schema": answer} if kind == JSON and answer is not None else {}
            for kind in route.content_types
        }
    return found


def _error(status: int) -> dict[str, Any]:
    return {
        "description": REASONS.get(status, ""),
        "content": {JSON: {"schema": {"$ref": _REF.format(name="ErrorBody")}}},
    }


def _statuses(routes: Sequence[Route], schemes: Sequence[str]) -> list[int]:
    return sorted(
        {*ALWAYS, *(OF_LOGINS if schemes else ()), *(status for route in routes for status in route.errors)}
    )
