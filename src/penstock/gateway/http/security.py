"""How the cluster is secured, and what the audit saw last.

The audit keeps its last lines in memory at each broker (`security.audit`). They are merged here, newest first. A line
has the names of users, topics and addresses, so only clients that may alter the cluster see it.
"""

from typing import Any, Final

import msgspec

from penstock.base.errors import KafkaError
from penstock.base.steps import Steps
from penstock.gateway.http.protocol.messages import Query, Request, Response, Routes, json
from penstock.gateway.peer_rpc.administration import ask_brokers
from penstock.gateway.peer_rpc.messages import GetAudit
from penstock.gateway.shared.access import ALTER_CLUSTER, ANY_USER, Rule
from penstock.handlers.support.context import Context
from penstock.metadata.configs import broker_setting
from penstock.security.audit import (
    ALLOWED,
    AUDIT,
    CHANGE,
    DENIED,
    DONE,
    DROPPED,
    FAILED,
    LOGIN,
    OPERATION,
    RECENT_MAX,
)

LISTED: Final = 100

ROUTES = Routes("security")


class SecurityStatus(msgspec.Struct):
    principal: str
    """The client that asks."""
    authorizer: bool
    """Whether ACLs are enforced. If not, every client may do everything."""
    allow_without_acl: bool
    """`allow.everyone.if.no.acl.found`: a resource without ACLs is open to everyone."""
    login: list[str]
    """How HTTP clients log in: `basic`, `bearer`; empty if they need not."""
    mechanisms: list[str]
    """`sasl.enabled.mechanisms`: how Kafka clients log in at SASL listeners."""
    tokens: bool
    """Whether delegation tokens can be created."""
    audit: bool
    audit_topic: str | None


class AuditLine(msgspec.Struct):
    time: str
    node: int
    """The broker that recorded it."""
    event: str
    """`operation`, `login`, `change`, or `audit` for lines that were dropped."""
    result: str
    """`allowed`, `denied`, `done`, `failed` or `dropped`."""
    count: int
    """Number of events alike."""
    principal: str | None = None
    client: str | None = None
    """The client's address."""
    client_id: str | None = None
    listener: str | None = None
    request: str | None = None
    """The API, route or command."""
    operation: str | None = None
    resource_type: str | None = None
    resource_name: str | None = None
    reason: str | None = None
    change: dict[str, Any] | None = None
    """Old and new values, without secrets."""


class AuditFeed(msgspec.Struct):
    is_on: bool
    lines: list[AuditLine]
    """Newest first."""
    unavailable: list[int]
    """Brokers that did not answer: their lines are missing."""


_line = msgspec.json.Decoder(AuditLine).decode


@ROUTES.add(
    "GET",
    "/security",
    "How the cluster is secured: log-ins, ACLs, delegation tokens and the audit.",
    answer=SecurityStatus,
    rule=ANY_USER,
)
def _status(gateway: Any, request: Request) -> Response:
    context: Context = gateway.context
    authorizer = context.authorizer

    def listed(name: str) -> list[str]:
        text = broker_setting(name, context.image, context.settings) or ""
        return [each.strip() for each in text.split(",") if each.strip()]

    allow = broker_setting("allow.everyone.if.no.acl.found", context.image, context.settings)
    return json(
        SecurityStatus(
            request.session.principal,
            authorizer is not None,
            (allow or "").strip().lower() == "true",
            list(gateway.http_schemes),
            listed("sasl.enabled.mechanisms"),
            context.token_keys is not None,
            context.audit is not None,
            context.audit_topic or None,
        )
    )


@ROUTES.add(
    "GET",
    "/audit",
    "What the audit of all brokers saw last: denied operations, log-ins, changes of users, ACLs, quotas and configs.",
    query=(
        Query("limit", int, "Maximum number of lines.", default=LISTED, min=1, max=RECENT_MAX),
        Query(
            "event", list[str], "Only these events.", one_of=(OPERATION, LOGIN, CHANGE, AUDIT), is_unique=True
        ),
        Query(
            "result",
            list[str],
            "Only these results.",
            one_of=(ALLOWED, DENIED, DONE, FAILED, DROPPED),
            is_unique=True,
        ),
        Query("principal", str, "Only lines of this principal.", min=1, max=1_000),
    ),
    answer=AuditFeed,
    rule=Rule((ALTER_CLUSTER,)),
)
def _audit(gateway: Any, request: Request) -> Steps[Response]:
    context: Context = gateway.context
    query = request.query
    answers = yield from ask_brokers(context, GetAudit(RECENT_MAX))
    unavailable = sorted(each for each, lines in answers.items() if isinstance(lines, KafkaError))
    lines: list[AuditLine] = []
    is_on = False
    for answer in answers.values():
        if answer is None or isinstance(answer, KafkaError):
            continue
        is_on = True
        for text in answer:
            line = _line(text)
            if (
                (query["event"] is None or line.event in query["event"])
                and (query["result"] is None or line.result in query["result"])
                and (query["principal"] is None or line.principal == query["principal"])
            ):
                lines.append(line)
    lines.sort(key=lambda each: each.time, reverse=True)
    return json(AuditFeed(is_on, lines[: query["limit"]], unavailable))
