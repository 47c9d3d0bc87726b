"""ACLs: listed, added, removed; and what they decide: "may alice read orders?", and "who may read orders?".

Decisions are those of the node's authorizer (`security.authorizer`), so super users and
`allow.everyone.if.no.acl.found` count. A node without an authorizer answers 409 `security_disabled`.
"""

from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from msgspec import Meta

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.steps import Steps
from penstock.gateway.http.protocol.messages import HttpError, Query, Request, Response, Routes, json
from penstock.gateway.shared.access import ALTER_CLUSTER, DESCRIBE_CLUSTER, Rule
from penstock.gateway.shared.controller_call import decide
from penstock.handlers.support.context import Context
from penstock.handlers.support.ticks import chosen_in_ticks, mapped_in_ticks, sorted_in_ticks
from penstock.metadata.acls import (
    ANY_HOST,
    ANY_PRINCIPAL,
    CLUSTER_NAME,
    Acl,
    AclFilter,
    AclResourceType,
    Operation,
    PatternType,
    Permission,
)
from penstock.metadata.controller.requests import CreateAcls, DeleteAcls

if TYPE_CHECKING:
    from penstock.security.authorizer import Authorizer, Decision

LISTED: Final = 1_000
LISTED_MAX: Final = 10_000
ADDED_MAX: Final = 1_000
TEXT_CHARS_MAX: Final = 1_000

NO_AUTHORIZER: Final = (
    "there is no authorizer: every client may do everything. Set authorizer.class.name in server.properties; "
    "docs/security.md shows how"
)


def _word(code: Any) -> str:
    return str(code.name).lower()


_TYPES: Final = {_word(each): each for each in AclResourceType if each > AclResourceType.ANY}
_PATTERNS: Final = {_word(each): each for each in (PatternType.LITERAL, PatternType.PREFIXED)}
_OPERATIONS: Final = {_word(each): each for each in Operation if each > Operation.ANY}
_PERMISSIONS: Final = {_word(each): each for each in (Permission.ALLOW, Permission.DENY)}


def _choice(words: dict[str, Any]) -> Meta:
    return Meta(max_length=64, pattern=f"^({'|'.join(words)})$", examples=[next(iter(words))])


_Text = Annotated[str, Meta(min_length=1, max_length=TEXT_CHARS_MAX)]
_Principal = Annotated[
    str, Meta(min_length=3, max_length=TEXT_CHARS_MAX, pattern="^[^:]+:.+$", examples=["User:alice"])
]

ROUTES = Routes("acls")


class AclEntry(msgspec.Struct, forbid_unknown_fields=True):
    resource_type: Annotated[str, _choice(_TYPES)]
    resource_name: _Text
    """`*` with the pattern `literal` stands for all of the type; the cluster is `kafka-cluster`."""
    principal: _Principal
    """`User:alice`; `User:*` stands for all."""
    operation: Annotated[str, _choice(_OPERATIONS)]
    permission: Annotated[str, _choice(_PERMISSIONS)] = "allow"
    pattern: Annotated[str, _choice(_PATTERNS)] = "literal"
    """`prefixed`: all names that begin with `resource_name`."""
    host: _Text = ANY_HOST
    """A client's address; `*` for all."""


class AclList(msgspec.Struct):
    acls: list[AclEntry]
    """By resource."""
    total: int
    """Number of ACLs that match; `acls` has the first of them."""


class AddAclsRequest(msgspec.Struct, forbid_unknown_fields=True):
    acls: Annotated[list[AclEntry], Meta(min_length=1, max_length=ADDED_MAX)]


class AclChanges(msgspec.Struct):
    acls: list[AclEntry]
    """The ACLs that were added or removed."""


class Explanation(msgspec.Struct):
    is_allowed: bool
    reason: str
    acl: AclEntry | None
    """The ACL that decides; null if none does."""


class Allowed(msgspec.Struct):
    principal: str
    reason: str
    acl: AclEntry | None


class WhoMay(msgspec.Struct):
    everyone: bool
    """Whether a principal without ACLs of its own may, too."""
    reason: str
    """Why everyone may, or may not."""
    allowed: list[Allowed]
    """Super users, and principals that ACLs name, in order."""
    denied: list[Allowed]
    """Principals that an ACL denies it."""


def _entry(acl: Acl) -> AclEntry:
    return AclEntry(
        _word(acl.resource_type),
        acl.resource_name,
        acl.principal,
        _word(acl.operation),
        _word(acl.permission),
        _word(acl.pattern_type),
        acl.host,
    )


def _acl(entry: AclEntry) -> Acl:
    return Acl(
        _TYPES[entry.resource_type],
        entry.resource_name,
        _PATTERNS[entry.pattern],
        entry.principal,
        entry.host,
        _OPERATIONS[entry.operation],
        _PERMISSIONS[entry.permission],
    )


def authorizer_of(context: Context) -> "Authorizer":
    if context.authorizer is None:
        raise KafkaError(NO_AUTHORIZER, ErrorCode.SECURITY_DISABLED)
    return context.authorizer


_FILTER: Final = (
    Query("resource_type", str, "Only ACLs of this type of resource.", one_of=tuple(_TYPES)),
    Query("resource_name", str, "Only ACLs of the resource with this name.", min=1, max=TEXT_CHARS_MAX),
    Query(
        "pattern",
        str,
        "How `resource_name` is compared: `literal` and `prefixed` with the ACL's own name, `match` with all names "
        "that the ACL applies to.",
        one_of=(*_PATTERNS, "match"),
    ),
    Query("principal", str, "Only ACLs of this principal, such as `User:alice`.", min=1, max=TEXT_CHARS_MAX),
    Query("host", str, "Only ACLs for this address.", min=1, max=TEXT_CHARS_MAX),
    Query("operation", str, "Only ACLs of this operation.", one_of=tuple(_OPERATIONS)),
    Query("permission", str, "Only ACLs that allow, or deny.", one_of=tuple(_PERMISSIONS)),
)


def _filter(request: Request) -> AclFilter:
    query = request.query
    return AclFilter(
        _TYPES.get(query["resource_type"], AclResourceType.ANY),
        query["resource_name"],
        PatternType.MATCH
        if query["pattern"] == "match"
        else _PATTERNS.get(query["pattern"], PatternType.ANY),
        query["principal"],
        query["host"],
        _OPERATIONS.get(query["operation"], Operation.ANY),
        _PERMISSIONS.get(query["permission"], Permission.ANY),
    )


@ROUTES.add(
    "GET",
    "/acls",
    "List ACLs.",
    query=(
        *_FILTER,
        Query("limit", int, "Maximum number of ACLs.", default=LISTED, min=1, max=LISTED_MAX),
    ),
    answer=AclList,
    errors=(409,),
    rule=Rule((DESCRIBE_CLUSTER,)),
)
def _list(gateway: Any, request: Request) -> Steps[Response]:
    context: Context = gateway.context
    authorizer_of(context)
    world = context.world
    held = (acl for _, acl in context.image.acls.entries())
    found = yield from chosen_in_ticks(world, held, _filter(request).matches)
    found = yield from sorted_in_ticks(world, found)
    rows = yield from mapped_in_ticks(world, found[: request.query["limit"]], _entry)
    return json(AclList(rows, len(found)))


@ROUTES.add(
    "POST",
    "/acls",
    "Add ACLs. One that exists already stays.",
    body=AddAclsRequest,
    answer=AclChanges,
    status=201,
    errors=(409,),
    rule=Rule((ALTER_CLUSTER,)),
)
def _add(gateway: Any, request: Request) -> Steps[Response]:
    context: Context = gateway.context
    authorizer_of(context)
    entries: list[AclEntry] = request.body.acls
    acls = tuple(_acl(each) for each in entries)
    for entry, acl in zip(entries, acls, strict=True):
        if acl.resource_type is AclResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
            raise HttpError(
                400,
                "invalid_body",
                f"invalid body: the cluster's name is {entry.resource_name[:64]!r}, expected {CLUSTER_NAME!r}",
            )
    results = yield from decide(context, CreateAcls(acls), request.session)
    made = []
    for acl, result in zip(acls, results, strict=True):
        if result.code is not ErrorCode.NONE:
            raise KafkaError(f"{acl}: {result.message or result.code.name}", result.code)
        made.append(_entry(acl))
    return json(AclChanges(made), 201)


@ROUTES.add(
    "DELETE",
    "/acls",
    "Remove the ACLs that match; at least one parameter must be given. Returns those that were removed.",
    query=_FILTER,
    answer=AclChanges,
    errors=(409,),
    rule=Rule((ALTER_CLUSTER,)),
)
def _remove(gateway: Any, request: Request) -> Steps[Response]:
    context: Context = gateway.context
    authorizer_of(context)
    if all(value is None for value in request.query.values()):
        raise HttpError(
            400,
            "missing_parameter",
            "no parameter is given: name the ACLs to remove, at least by principal or resource",
        )
    [removed] = yield from decide(context, DeleteAcls((_filter(request),)), request.session)
    return json(AclChanges((yield from mapped_in_ticks(context.world, removed.acls, _entry))))


# -- decisions -----------------------------------------------------------------------------------------------

_ASKED: Final = (
    Query("operation", str, "The operation.", is_required=True, one_of=tuple(_OPERATIONS)),
    Query("resource_type", str, "The type of the resource.", is_required=True, one_of=tuple(_TYPES)),
    Query(
        "resource_name",
        str,
        "The name of the resource; not needed for the cluster.",
        default=CLUSTER_NAME,
        min=1,
        max=TEXT_CHARS_MAX,
    ),
    Query("host", str, "The client's address.", default="127.0.0.1", min=1, max=TEXT_CHARS_MAX),
)


def _asked(request: Request) -> tuple[str, Operation, AclResourceType, str]:
    query = request.query
    kind = _TYPES[query["resource_type"]]
    name = CLUSTER_NAME if kind is AclResourceType.CLUSTER else query["resource_name"]
    return query["host"], _OPERATIONS[query["operation"]], kind, name


@ROUTES.add(
    "GET",
    "/acls/explain",
    "Whether a principal may do something, and which rule decides.",
    query=(
        Query("principal", str, "Such as `User:alice`.", is_required=True, min=1, max=TEXT_CHARS_MAX),
        *_ASKED,
    ),
    answer=Explanation,
    errors=(409,),
    rule=Rule((DESCRIBE_CLUSTER,)),
)
def _explain(gateway: Any, request: Request) -> Response:
    authorizer = authorizer_of(gateway.context)
    decision = authorizer.decide(request.query["principal"], *_asked(request))
    return json(Explanation(decision.is_allowed, decision.reason, _decisive(decision)))


def _decisive(decision: "Decision") -> AclEntry | None:
    return None if decision.acl is None else _entry(decision.acl)


@ROUTES.add(
    "GET",
    "/acls/who",
    "Which principals may do something: super users, and those that ACLs name.",
    query=_ASKED,
    answer=WhoMay,
    errors=(409,),
    rule=Rule((DESCRIBE_CLUSTER,)),
)
def _who(gateway: Any, request: Request) -> Steps[Response]:
    context: Context = gateway.context
    authorizer = authorizer_of(context)
    host, operation, kind, name = _asked(request)
    applying = AclFilter(kind, name, PatternType.MATCH, None, None, Operation.ANY, Permission.ANY)
    acls = yield from chosen_in_ticks(
        context.world, (acl for _, acl in authorizer.acls.entries()), applying.matches
    )
    named = {each.principal for each in acls} - {ANY_PRINCIPAL}
    principals = yield from sorted_in_ticks(context.world, {*authorizer.super_users, *named})

    def decided(principal: str) -> "tuple[Decision, Allowed]":
        decision = authorizer.decide(principal, host, operation, kind, name)
        return decision, Allowed(principal, decision.reason, _decisive(decision))

    rows = yield from mapped_in_ticks(context.world, principals, decided)
    # Of a principal that no ACL names, the ACLs for all principals decide.
    anyone = authorizer.decide(ANY_PRINCIPAL, host, operation, kind, name)
    return json(
        WhoMay(
            anyone.is_allowed,
            anyone.reason,
            [row for decision, row in rows if decision.is_allowed],
            [
                row
                for decision, row in rows
                if decision.acl is not None and decision.acl.permission is Permission.DENY
            ],
        )
    )
