"""Schemas by id and guid, lists of schemas, contexts, and what the registry is.

A schema that is found by its id never changes: it is answered at once, if the view is not older than a second.
"""

from functools import partial
from typing import Any, Final

from penstock import __version__
from penstock.base.steps import Steps, next_tick
from penstock.base.world import World
from penstock.gateway.http.protocol.messages import Answer, Out, Request, Response, Stream
from penstock.gateway.http.schemas.dialect import (
    MEDIA_TYPE,
    answer,
    context_in,
    encode,
    flag,
    is_shown,
    may_see_id,
    page,
    parameters,
    routes,
    schema_fields,
    shown,
    subject_asked,
    takes_more,
    version_shown,
)
from penstock.gateway.http.schemas.subjects import LISTED
from penstock.gateway.shared.access import ANY_USER
from penstock.registry.errors import RegistryError, schema_not_found
from penstock.registry.names import DEFAULT_CONTEXT, WILDCARD, context_of
from penstock.registry.schema import PROTOBUF, TYPES, Schema
from penstock.registry.view import RegistryView, Version

ROUTES = routes()

PORTION_BYTES: Final = 1 << 18
"""Of a list of schemas that are sent at once."""

_OF_ID = parameters(
    "subject", "format", "referenceFormat", "findTags", "fetchMaxId", "deleted", "offset", "limit"
)


@ROUTES.add("GET", "/", "An empty object.", rule=ANY_USER)
def _root(_gateway: Any, _request: Request) -> Response:
    return answer({})


@ROUTES.add("GET", "/schemas/types", "The types of schemas.", rule=ANY_USER)
def _types(_gateway: Any, _request: Request) -> Response:
    return answer(TYPES)


@ROUTES.add("GET", "/contexts", "The names of contexts.", query=parameters("offset", "limit"), rule=LISTED)
def _contexts(gateway: Any, request: Request) -> Steps[Response]:
    view: RegistryView = yield from gateway.schemas.latest()
    others = set(view.contexts)
    if gateway.context.authorizer is not None:
        seen = yield from shown(gateway.context, request, list(view.subjects))
        others = set(map(context_of, seen))
    return answer(page(request, [DEFAULT_CONTEXT, *sorted(others - {DEFAULT_CONTEXT})]))


@ROUTES.add("GET", "/v1/metadata/id", "The cluster's id.", rule=ANY_USER)
def _cluster(gateway: Any, _request: Request) -> Response:
    return answer({"scope": {"path": [], "clusters": {"kafka-cluster": gateway.context.cluster_id}}})


@ROUTES.add("GET", "/v1/metadata/version", "The version of the server.", rule=ANY_USER)
def _server_version(_gateway: Any, _request: Request) -> Response:
    return answer({"version": __version__, "commitId": ""})


@ROUTES.add(
    "GET",
    "/schemas",
    "All schemas, with their subjects and versions.",
    query=parameters("subjectPrefix", "aliases", "deleted", "latestOnly", "ruleType", "offset", "limit"),
    rule=LISTED,
)
def _schemas(gateway: Any, request: Request) -> Steps[Answer]:
    view: RegistryView = yield from gateway.schemas.latest()
    deleted, latest = flag(request, "deleted"), flag(request, "latestOnly")
    context = context_in(request)
    prefix = request.query.get("subjectPrefix")
    if prefix is None:
        prefix = WILDCARD if context == DEFAULT_CONTEXT else f":{context}:"
    found: list[Version] = []
    for subject in (yield from shown(gateway.context, request, view.list_subjects(prefix, deleted=deleted))):
        found += view.versions(subject, deleted=deleted)[-1 if latest else 0 :]
    return Stream(partial(_rows, gateway.context.world, request, page(request, found)), MEDIA_TYPE)


def _rows(world: World, request: Request, versions: list[Version], out: Out) -> Steps[None]:
    """The list in portions: all schemas together may be larger than the node's memory."""
    portion = bytearray(b"[")
    for number, each in enumerate(versions):
        if number:
            portion += b","
        portion += encode(version_shown(request, each))
        if len(portion) >= PORTION_BYTES:
            out.write(bytes(portion))
            portion.clear()
            yield out.ready()
            yield next_tick(world)
    out.write(bytes(portion + b"]"))


# -- by id -----------------------------------------------------------------------------------------------


@ROUTES.add("GET", "/schemas/ids/{id}", "A schema by its id.", query=_OF_ID, rule=LISTED)
def _by_id(gateway: Any, request: Request) -> Response | Steps[Response]:
    if gateway.schemas.is_recent() and not request.query.get("format"):
        found = _find(gateway, request, gateway.schemas.known)
        if found is not None:
            return _schema_answer(gateway, request, *found)
    return _by_id_later(gateway, request)


def _by_id_later(gateway: Any, request: Request) -> Steps[Response]:
    view: RegistryView = yield from gateway.schemas.latest()
    context, schema_id, schema = _found(gateway, request, view)
    text = yield from _text(gateway, request, view, context, schema_id, schema)
    return _schema_answer(gateway, request, context, schema_id, schema, text)


@ROUTES.add("GET", "/schemas/ids/{id}/schema", "A schema by its id, alone.", query=_OF_ID, rule=LISTED)
def _text_by_id(gateway: Any, request: Request) -> Steps[Response]:
    view: RegistryView = yield from gateway.schemas.latest()
    context, schema_id, schema = _found(gateway, request, view)
    text = yield from _text(gateway, request, view, context, schema_id, schema)
    return Response(200, text.encode(), MEDIA_TYPE)


@ROUTES.add(
    "GET", "/schemas/ids/{id}/subjects", "The subjects that have a schema.", query=_OF_ID, rule=LISTED
)
def _subjects_of_id(gateway: Any, request: Request) -> Steps[Response]:
    view: RegistryView = yield from gateway.schemas.latest()
    context, schema_id, _ = _found(gateway, request, view)
    used = view.used_by(context, schema_id, deleted=flag(request, "deleted"))
    subjects = dict.fromkeys(
        each.subject for each in used if is_shown(gateway.context, request, each.subject)
    )
    return answer(page(request, subjects))


@ROUTES.add(
    "GET", "/schemas/ids/{id}/versions", "The versions that have a schema.", query=_OF_ID, rule=LISTED
)
def _versions_of_id(gateway: Any, request: Request) -> Steps[Response]:
    view: RegistryView = yield from gateway.schemas.latest()
    context, schema_id, _ = _found(gateway, request, view)
    used = view.used_by(context, schema_id, deleted=flag(request, "deleted"))
    return answer(
        page(
            request,
            [
                {"subject": each.subject, "version": each.version}
                for each in used
                if is_shown(gateway.context, request, each.subject)
            ],
        )
    )


@ROUTES.add("GET", "/schemas/guids/{guid}", "A schema by its guid.", query=parameters("format"), rule=LISTED)
def _by_guid(gateway: Any, request: Request) -> Steps[Response]:
    view: RegistryView = yield from gateway.schemas.latest()
    guid = request.path["guid"]
    context, schema_id, schema = view.by_guid(guid)
    if not may_see_id(gateway.context, request, view, context, schema_id):
        raise schema_not_found(guid)
    text = yield from _text(gateway, request, view, context, schema_id, schema)
    return answer({"guid": schema.guid, **schema_fields(schema), "schema": text})


@ROUTES.add("GET", "/schemas/guids/{guid}/ids", "The ids of a guid, by context.", rule=LISTED)
def _ids_of_guid(gateway: Any, request: Request) -> Steps[Response]:
    view: RegistryView = yield from gateway.schemas.latest()
    return answer(
        [
            {"context": context, "id": schema_id}
            for context, schema_id in view.ids_of_guid(request.path["guid"])
            if may_see_id(gateway.context, request, view, context, schema_id)
        ]
    )


def _id(request: Request) -> int:
    text = request.path["id"]
    if not (text.isascii() and text.isdecimal() and len(text) <= 10):
        raise RegistryError(404, f"the id {text[:64]!r} is not a number")
    return int(text)


def _find(gateway: Any, request: Request, view: RegistryView) -> tuple[str, int, Schema] | None:
    """The context, the id and the schema; None if the view does not have it, or the client may not see it."""
    schema_id = _id(request)
    try:
        context, schema = view.by_id(schema_id, subject_asked(request))
    except RegistryError:
        return None
    seen = may_see_id(gateway.context, request, view, context, schema_id)
    return (context, schema_id, schema) if seen else None


def _found(gateway: Any, request: Request, view: RegistryView) -> tuple[str, int, Schema]:
    found = _find(gateway, request, view)
    if found is None:
        raise schema_not_found(_id(request))
    return found


def _text(
    gateway: Any, request: Request, view: RegistryView, context: str, schema_id: int, schema: Schema
) -> Steps[str]:
    if request.query.get("format") != "serialized" or schema.type != PROTOBUF:
        return schema.text
    subject, _ = view.contexts[context].versions[schema_id][0]
    resolved = gateway.schemas.resolve(view, subject, schema)
    text: str = yield from gateway.schemas.work.serialized(resolved)
    return text


def _schema_answer(
    gateway: Any, request: Request, context: str, schema_id: int, schema: Schema, text: str | None = None
) -> Response:
    found = schema_fields(schema)
    view: RegistryView = gateway.schemas.known
    if flag(request, "fetchMaxId"):
        found["maxId"] = view.max_id(context)
    if takes_more(request):
        found["guid"] = schema.guid
        subject = request.query.get("subject")
        used = view.used_by(context, schema_id, deleted=True) if subject else []
        version = next((each for each in used if each.subject == subject), None)
        if version is not None:
            found |= {"subject": version.subject, "version": version.version}
    return answer({**found, "schema": schema.text if text is None else text})
