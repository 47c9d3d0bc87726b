"""How clients of Confluent's registry speak: content types, error bodies, parameters, names of subjects.

Parameters of the query are texts here: clients send `true` and `True`, and numbers that mean nothing (`limit=-1`).
"""

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Final, TypeVar

import msgspec

from penstock.base.steps import Steps
from penstock.gateway.http.protocol.messages import JSON, Dialect, HttpError, Query, Request, Response, Routes
from penstock.gateway.peer_rpc.messages import SchemasChanged
from penstock.gateway.shared.access import TOPIC, Need, allow
from penstock.handlers.support.context import Context
from penstock.handlers.support.ticks import chosen_in_ticks
from penstock.metadata.acls import Operation
from penstock.registry.decisions import REFERENCED_MAX
from penstock.registry.errors import invalid_version
from penstock.registry.names import DEFAULT_CONTEXT, parse_context, parse_subject
from penstock.registry.schema import AVRO, Reference, Schema, json_text
from penstock.registry.view import LATEST, RegistryView, Version, qualify_reference

MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_MEDIA_TYPES: Final = (
    MEDIA_TYPE,
    "application/vnd.schemaregistry+json",
    JSON,
    "application/octet-stream",
)

_ERROR_CODES: Final = {401: 40101, 403: 40301, 429: 42901, 500: 50001, 503: 50003, 504: 50002}
"""By status, of errors that are not the registry's own. Others have the status as their code."""

T = TypeVar("T")

encode = msgspec.json.Encoder().encode


def _error_response(error: HttpError) -> Response:
    code = error.more.get("error_code") or _ERROR_CODES.get(error.status, error.status)
    return Response(
        error.status, encode({"error_code": code, "message": str(error)}), MEDIA_TYPE, headers=error.headers
    )


DIALECT: Final = Dialect(_MEDIA_TYPES, _error_response)


def routes() -> Routes:
    return Routes("schemas", DIALECT)


def parameters(*names: str) -> Sequence[Query]:
    return [Query(each, str, "As Confluent's.") for each in names]


def answer(value: Any) -> Response:
    return Response(200, encode(value), MEDIA_TYPE)


def changed(reply: SchemasChanged) -> Response:
    return Response(reply.status, reply.body, MEDIA_TYPE)


# -- requests ------------------------------------------------------------------------------------------


class SchemaRequest(msgspec.Struct):
    """A schema to register, to look up or to check."""

    schema: str | None = None
    schemaType: str | None = None  # noqa: N815  # the field's name
    references: Annotated[list[Reference], msgspec.Meta(max_length=REFERENCED_MAX)] | None = None
    metadata: Any = None
    ruleSet: Any = None  # noqa: N815
    id: int | None = None
    version: int | None = None

    @property
    def value(self) -> Schema:
        return Schema(
            self.schemaType or AVRO,
            self.schema or "",
            tuple(self.references or ()),
            json_text(self.metadata),
            json_text(self.ruleSet),
        )


def flag(request: Request, name: str) -> bool:
    return (request.query.get(name) or "").lower() == "true"


def number(request: Request, name: str, otherwise: int) -> int:
    text = request.query.get(name) or ""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else otherwise


def page(request: Request, items: Iterable[T]) -> list[T]:
    """The part of a list that is asked for."""
    offset, limit = number(request, "offset", 0), number(request, "limit", -1)
    return list(items)[offset : None if limit < 0 else offset + limit]


def subject_in(request: Request, *, may_be_context: bool = False) -> str:
    """The qualified name of the subject in the path."""
    return _qualified(request, request.path["subject"], may_be_context=may_be_context)


def subject_asked(request: Request) -> str | None:
    """The qualified name of the parameter `subject`, which may be a context's; None without it."""
    text = request.query.get("subject")
    if not text:
        context = context_in(request)
        return None if context == DEFAULT_CONTEXT else f":{context}:"
    return _qualified(request, text, may_be_context=True)


def context_in(request: Request) -> str:
    return parse_context(request.path.get("context", ""))


def _qualified(request: Request, text: str, *, may_be_context: bool) -> str:
    context = context_in(request)
    if context != DEFAULT_CONTEXT and not text.startswith(":."):
        text = f":{context}:{text}"
    return parse_subject(text, may_be_context=may_be_context).qualified


def version_in(request: Request) -> int:
    text = request.path["version"]
    if text in ("latest", "-1"):
        return LATEST
    if text.isascii() and text.isdecimal() and len(text) <= 10 and 0 < int(text) < 2**31:
        return int(text)
    raise invalid_version(text)


def takes_more(request: Request) -> bool:
    """Whether the client ignores fields that it does not know. Older clients fail on them."""
    return request.headers.get("confluent-accept-unknown-properties", "").lower() == "true"


# -- who may ---------------------------------------------------------------------------------------------


def topic_of(subject: str) -> str:
    """The topic whose ACLs a subject obeys: `orders` for `orders-key` and `orders-value`, in any context. A subject
    with another name obeys those of a topic of its own name."""
    name = subject
    if subject.startswith(":."):
        name = subject[1:].partition(":")[2]
    for suffix in ("-value", "-key"):
        if name.endswith(suffix) and len(name) > len(suffix):
            return name.removesuffix(suffix)
    return name


def on_subject(operation: Operation) -> Need:
    return Need(operation, TOPIC, "subject", named=topic_of)


def check_references(context: Context, request: Request) -> None:
    """Raise unless the client may see the subjects that its schema refers to: a schema tells about them, and keeps
    them from being deleted."""
    if context.authorizer is None:
        return
    subject, asked = subject_in(request), request.body.references or ()
    for each in dict.fromkeys(qualify_reference(subject, each.subject) for each in asked):
        allow(context, request.session, Operation.DESCRIBE, TOPIC, topic_of(each))


def is_shown(context: Context, request: Request, subject: str) -> bool:
    """Whether a list shows a subject to the client."""
    return context.permits(request.session, Operation.DESCRIBE, TOPIC, topic_of(subject))


def shown(context: Context, request: Request, subjects: Iterable[str]) -> Steps[list[str]]:
    """The subjects that a list shows to the client."""
    return chosen_in_ticks(context.world, subjects, lambda each: is_shown(context, request, each))


def may_see_id(context: Context, request: Request, view: RegistryView, name: str, schema_id: int) -> bool:
    """A client may see a schema of any subject that it may see."""
    if context.authorizer is None:
        return True
    return any(
        is_shown(context, request, each.subject) for each in view.used_by(name, schema_id, deleted=True)
    )


# -- answers -------------------------------------------------------------------------------------------


def schema_fields(schema: Schema) -> dict[str, Any]:
    """What all answers with a schema have, but for its text."""
    found: dict[str, Any] = {}
    if schema.type != AVRO:
        found["schemaType"] = schema.type
    if schema.references:
        found["references"] = schema.references
    for name, text in (("metadata", schema.metadata), ("ruleSet", schema.rule_set)):
        if text is not None:
            found[name] = msgspec.Raw(text.encode())
    return found


def version_shown(request: Request, version: Version, text: str | None = None) -> dict[str, Any]:
    found: dict[str, Any] = {"subject": version.subject, "version": version.version, "id": version.id}
    if takes_more(request):
        found["guid"] = version.schema.guid
    found |= schema_fields(version.schema)
    found["schema"] = version.schema.text if text is None else text
    if version.is_deleted:
        found["deleted"] = True
    return found
