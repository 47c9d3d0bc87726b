"""Subjects and their versions: list, register, look up, delete."""

from typing import Any

import msgspec

from penstock.base.steps import Steps
from penstock.gateway.http.protocol.messages import Request, Response
from penstock.gateway.http.schemas.dialect import (
    SchemaRequest,
    answer,
    changed,
    check_references,
    context_in,
    flag,
    is_shown,
    on_subject,
    page,
    parameters,
    routes,
    shown,
    subject_in,
    takes_more,
    version_in,
    version_shown,
)
from penstock.gateway.shared.access import Rule
from penstock.metadata.acls import Operation
from penstock.registry.changes import DeleteSubject, DeleteVersion, Register
from penstock.registry.errors import schema_not_found, subject_not_found
from penstock.registry.names import DEFAULT_CONTEXT, WILDCARD
from penstock.registry.schema import PROTOBUF
from penstock.registry.view import RegistryView, Version

ROUTES = routes()

DESCRIBE = Rule((on_subject(Operation.DESCRIBE),))
LISTED = Rule(shows=(on_subject(Operation.DESCRIBE),))
WRITE = Rule((on_subject(Operation.WRITE),))
DELETE = Rule((on_subject(Operation.DELETE),))


@ROUTES.add(
    "GET",
    "/subjects",
    "The names of subjects.",
    query=parameters("subjectPrefix", "deleted", "deletedOnly", "offset", "limit"),
    rule=LISTED,
)
def _subjects(gateway: Any, request: Request) -> Steps[Response]:
    view: RegistryView = yield from gateway.schemas.latest()
    prefix = request.query.get("subjectPrefix")
    if prefix is None:
        context = context_in(request)
        prefix = WILDCARD if context == DEFAULT_CONTEXT else f":{context}:"
    found = view.list_subjects(
        prefix, deleted=flag(request, "deleted"), deleted_only=flag(request, "deletedOnly")
    )
    return answer(page(request, (yield from shown(gateway.context, request, found))))


@ROUTES.add(
    "POST",
    "/subjects/{subject}",
    "The version of a subject that is this schema.",
    query=parameters("normalize", "deleted", "lookupDeletedSchema", "format"),
    body=SchemaRequest,
    rule=DESCRIBE,
    changes=False,
)
def _look_up(gateway: Any, request: Request) -> Steps[Response]:
    subject = subject_in(request)
    check_references(gateway.context, request)
    view: RegistryView = yield from gateway.schemas.latest()
    deleted = flag(request, "deleted") or flag(request, "lookupDeletedSchema")
    if not view.has_subject(subject, deleted=True):
        raise subject_not_found(subject)
    found: Version | None = yield from gateway.schemas.find(
        view, subject, request.body.value, is_normalized=flag(request, "normalize"), deleted=deleted
    )
    if found is None:
        raise schema_not_found()
    return answer(version_shown(request, found))


@ROUTES.add(
    "DELETE",
    "/subjects/{subject}",
    "Delete all versions of a subject, softly or permanently.",
    query=parameters("permanent"),
    rule=DELETE,
)
def _delete_subject(gateway: Any, request: Request) -> Steps[Response]:
    change = DeleteSubject(subject_in(request), flag(request, "permanent"))
    return changed((yield from gateway.schemas.change(request.session, change)))


@ROUTES.add(
    "GET",
    "/subjects/{subject}/versions",
    "The numbers of a subject's versions.",
    query=parameters("deleted", "deletedOnly", "deletedAsNegative", "offset", "limit"),
    rule=DESCRIBE,
)
def _versions(gateway: Any, request: Request) -> Steps[Response]:
    subject = subject_in(request)
    view: RegistryView = yield from gateway.schemas.latest()
    only, negative = flag(request, "deletedOnly"), flag(request, "deletedAsNegative")
    versions = view.versions(subject, deleted=flag(request, "deleted") or only or negative)
    found = [
        -each.version if negative and each.is_deleted else each.version
        for each in versions
        if each.is_deleted or not only
    ]
    if not found:
        raise subject_not_found(subject)
    return answer(page(request, found))


@ROUTES.add(
    "POST",
    "/subjects/{subject}/versions",
    "Register a schema under a subject.",
    query=parameters("normalize", "format"),
    body=SchemaRequest,
    rule=WRITE,
)
def _register(gateway: Any, request: Request) -> Steps[Response]:
    body: SchemaRequest = request.body
    check_references(gateway.context, request)
    change = Register(
        subject_in(request),
        body.value,
        flag(request, "normalize"),
        -1 if body.id is None else body.id,
        0 if body.version is None else max(body.version, 0),
    )
    reply = yield from gateway.schemas.change(request.session, change)
    if reply.status == 200 and not takes_more(request):
        return answer({"id": msgspec.json.decode(reply.body)["id"]})
    return changed(reply)


@ROUTES.add(
    "GET",
    "/subjects/{subject}/versions/{version}",
    "A version of a subject.",
    query=parameters("deleted", "format", "referenceFormat", "findTags"),
    rule=DESCRIBE,
)
def _version(gateway: Any, request: Request) -> Steps[Response]:
    view, version = yield from _found(gateway, request)
    text = None
    if request.query.get("format") == "serialized" and version.schema.type == PROTOBUF:
        text = yield from gateway.schemas.work.serialized(
            gateway.schemas.resolve(view, version.subject, version.schema)
        )
    return answer(version_shown(request, version, text))


def _found(gateway: Any, request: Request) -> Steps[tuple[RegistryView, Version]]:
    subject, number = subject_in(request), version_in(request)
    view: RegistryView = yield from gateway.schemas.latest()
    return view, view.version(subject, number, deleted=flag(request, "deleted"))


@ROUTES.add(
    "GET",
    "/subjects/{subject}/versions/{version}/schema",
    "The schema of a version, alone.",
    query=parameters("deleted", "format"),
    rule=DESCRIBE,
)
def _schema(gateway: Any, request: Request) -> Steps[Response]:
    _, version = yield from _found(gateway, request)
    return Response(200, version.schema.text.encode(), "application/vnd.schemaregistry.v1+json")


@ROUTES.add(
    "GET",
    "/subjects/{subject}/versions/{version}/referencedby",
    "The ids of schemas that refer to a version.",
    query=parameters("deleted", "offset", "limit"),
    rule=DESCRIBE,
)
def _referenced_by(gateway: Any, request: Request) -> Steps[Response]:
    view, version = yield from _found(gateway, request)
    referring = view.referring(version.subject, version.version, deleted=flag(request, "deleted"))
    seen = (each.id for each in referring if is_shown(gateway.context, request, each.subject))
    return answer(page(request, dict.fromkeys(seen)))


@ROUTES.add(
    "DELETE",
    "/subjects/{subject}/versions/{version}",
    "Delete a version, softly or permanently.",
    query=parameters("permanent"),
    rule=DELETE,
)
def _delete_version(gateway: Any, request: Request) -> Steps[Response]:
    change = DeleteVersion(subject_in(request), version_in(request), flag(request, "permanent"))
    return changed((yield from gateway.schemas.change(request.session, change)))


@ROUTES.add(
    "GET",
    "/subjects/{subject}/metadata",
    "The latest version whose metadata has a property with a value.",
    query=parameters("key", "value", "deleted", "format"),
    rule=DESCRIBE,
)
def _with_metadata(gateway: Any, request: Request) -> Steps[Response]:
    """One property: clients that send several keys and values are not served."""
    subject = subject_in(request)
    view: RegistryView = yield from gateway.schemas.latest()
    versions = view.versions(subject, deleted=flag(request, "deleted"))
    if not versions:
        raise subject_not_found(subject)
    key, value = request.query.get("key"), request.query.get("value")
    for each in reversed(versions):
        properties = msgspec.json.decode(each.schema.metadata or "{}").get("properties") or {}
        if key is None or properties.get(key) == value:
            return answer(version_shown(request, each))
    raise schema_not_found()
