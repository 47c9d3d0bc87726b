"""Delegation tokens: listed, created, renewed, expired.

A token's key is its password. It is in the response that creates the token, and in no other. Tokens are named by their
ids; the node computes the key, which the controller wants of a client that renews or removes a token.
"""

from base64 import b64encode
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import INT64_MAX
from penstock.base.steps import Steps
from penstock.gateway.http.protocol.messages import Request, Response, Routes, json
from penstock.gateway.shared.access import ANY_USER, TOKEN, USER, Need, Rule, allow
from penstock.gateway.shared.controller_call import decide
from penstock.handlers.delegation_tokens import RENEWERS_MAX, is_visible, may_ask
from penstock.handlers.support.context import Context, Session
from penstock.handlers.support.ticks import chosen_in_ticks, mapped_in_ticks, sorted_in_ticks
from penstock.metadata.acls import Operation
from penstock.metadata.controller.requests import (
    CreateDelegationToken,
    DelegationToken,
    ExpireDelegationToken,
    RenewDelegationToken,
)
from penstock.metadata.delegation_tokens import TokenKeys
from penstock.metadata.records import DelegationTokenRecord

DEFAULT_MS: Final = -1
"""In a request to the controller: as long as the settings say; of an expiry, at once."""

_User = Annotated[str, Meta(min_length=6, max_length=1_000, pattern="^User:.+$", examples=["User:alice"])]
_Period = Annotated[int, Meta(ge=1, le=INT64_MAX)]

ROUTES = Routes("tokens")


class Token(msgspec.Struct):
    token_id: str
    owner: str
    requester: str
    renewers: list[str]
    issued_ms: int
    expires_ms: int
    renewable_until_ms: int


class TokenList(msgspec.Struct):
    tokens: list[Token]
    """Those that the client owns, requested or may renew, and those that ACLs let it describe."""


class CreateTokenRequest(msgspec.Struct, forbid_unknown_fields=True):
    owner: _User | None = None
    """Default: the client. For another owner it needs CreateTokens on that user."""
    renewers: Annotated[list[_User], Meta(max_length=RENEWERS_MAX)] = []
    max_lifetime_ms: _Period | None = None
    """Until when it can be renewed. Default: `delegation.token.max.lifetime.ms`."""


class NewToken(msgspec.Struct):
    token: Token
    password: str
    """The user name for a log-in with SCRAM is the token's id. This is the only time that the password is shown."""


class PeriodRequest(msgspec.Struct, forbid_unknown_fields=True):
    period_ms: _Period | None = None
    """From now on. Default: `delegation.token.expiry.time.ms`."""


class TokenExpiry(msgspec.Struct):
    token_id: str
    expires_ms: int


class DeleteTokenResponse(msgspec.Struct):
    status: str = "deleted"


def _keys(context: Context, session: Session) -> TokenKeys:
    if not may_ask(session):
        raise KafkaError(
            "delegation tokens are for clients that have logged in, and not with a token",
            ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
        )
    if context.token_keys is None:
        raise KafkaError(
            "delegation tokens are off: set delegation.token.secret.key, the same at all nodes",
            ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED,
        )
    return context.token_keys


def _token(record: DelegationTokenRecord) -> Token:
    return Token(
        record.token_id,
        record.owner,
        record.requester,
        list(record.renewers),
        record.issue_timestamp,
        record.expiration_timestamp,
        record.max_timestamp,
    )


@ROUTES.add(
    "GET",
    "/tokens",
    "List delegation tokens, without their keys.",
    answer=TokenList,
    errors=(409,),
    rule=Rule(shows=(Need(Operation.DESCRIBE, TOKEN, "token"),)),
)
def _list(gateway: Any, request: Request) -> Steps[Response]:
    context: Context = gateway.context
    _keys(context, request.session)
    tokens = yield from chosen_in_ticks(
        context.world,
        (token for _, token in context.image.tokens.entries()),
        is_visible(context, request.session),
    )
    tokens = yield from sorted_in_ticks(context.world, tokens, lambda each: each.token_id)
    return json(TokenList((yield from mapped_in_ticks(context.world, tokens, _token))))


@ROUTES.add(
    "POST",
    "/tokens",
    "Create a delegation token, which stands for its owner until it expires.",
    body=CreateTokenRequest,
    answer=NewToken,
    status=201,
    errors=(409,),
    rule=ANY_USER,
)
def _create(gateway: Any, request: Request) -> Steps[Response]:
    context: Context = gateway.context
    wanted: CreateTokenRequest = request.body
    session = request.session
    _keys(context, session)
    owner = wanted.owner or session.principal
    if owner != session.principal:
        allow(context, session, Operation.CREATE_TOKENS, USER, owner)
    asked = CreateDelegationToken(
        owner,
        session.principal,
        tuple(dict.fromkeys(wanted.renewers)),
        wanted.max_lifetime_ms or DEFAULT_MS,
        session.client_address,
    )
    made: DelegationToken = yield from decide(context, asked, session)
    return json(NewToken(_token(made.record), b64encode(made.key).decode()), 201)


@ROUTES.add(
    "POST",
    "/tokens/{token}/renew",
    "Renew a delegation token, as its owner or a renewer.",
    body=PeriodRequest,
    answer=TokenExpiry,
    errors=(404, 409),
    rule=ANY_USER,
)
def _renew(gateway: Any, request: Request) -> Steps[Response]:
    asked = _change(gateway.context, request, RenewDelegationToken, request.body.period_ms)
    return json(TokenExpiry(request.path["token"], (yield from asked)))


@ROUTES.add(
    "POST",
    "/tokens/{token}/expire",
    "Let a delegation token expire after a time, as its owner or a renewer.",
    body=PeriodRequest,
    answer=TokenExpiry,
    errors=(404, 409),
    rule=ANY_USER,
)
def _expire(gateway: Any, request: Request) -> Steps[Response]:
    period_ms = request.body.period_ms
    asked = _change(gateway.context, request, ExpireDelegationToken, 0 if period_ms is None else period_ms)
    return json(TokenExpiry(request.path["token"], (yield from asked)))


@ROUTES.add(
    "DELETE",
    "/tokens/{token}",
    "Remove a delegation token at once, as its owner or a renewer.",
    answer=DeleteTokenResponse,
    errors=(404, 409),
    rule=ANY_USER,
)
def _delete(gateway: Any, request: Request) -> Steps[Response]:
    yield from _change(gateway.context, request, ExpireDelegationToken, None)
    return json(DeleteTokenResponse())


def _change(
    context: Context,
    request: Request,
    kind: type[RenewDelegationToken] | type[ExpireDelegationToken],
    period_ms: int | None,
) -> Steps[int]:
    session, token_id = request.session, request.path["token"]
    keys = _keys(context, session)
    record = context.image.tokens.get(token_id)
    # A token that the client may not see does not exist for it.
    if record is None or not is_visible(context, session)(record):
        raise KafkaError(f"no such token: {token_id[:64]!r}", ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
    asked = kind(
        session.principal,
        session.client_address,
        keys.key(token_id),
        DEFAULT_MS if period_ms is None else period_ms,
        token_id,
    )
    expires_ms: int = yield from decide(context, asked, session)
    return expires_ms
