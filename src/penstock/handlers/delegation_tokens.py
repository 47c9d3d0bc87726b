"""Delegation tokens (KIP-48, KIP-373).

    CreateDelegationToken   1 to 3      a token for the client, or for another owner
    RenewDelegationToken    1 to 2      a later expiry, by the owner or a renewer
    ExpireDelegationToken   1 to 2      another expiry, or removal
    DescribeDelegationToken 1 to 3      tokens with their keys

A client must have authenticated by other means than a token (DELEGATION_TOKEN_REQUEST_NOT_ALLOWED). The controller
decides changes; a node without `delegation.token.secret.key` answers DELEGATION_TOKEN_AUTH_DISABLED.
"""

from collections.abc import Callable
from typing import Any, Final

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.steps import Steps
from penstock.metadata.acls import AclResourceType, Operation
from penstock.metadata.controller.requests import (
    CreateDelegationToken,
    DelegationToken,
    ExpireDelegationToken,
    RenewDelegationToken,
)
from penstock.metadata.delegation_tokens import concerned
from penstock.metadata.records import DelegationTokenRecord
from penstock.wire import Api

from .support.context import ANONYMOUS, Call, Context, Session
from .support.controller_call import default_wait_ms, submit
from .support.response_fields import NO_THROTTLE
from .support.ticks import chosen_in_ticks, mapped_in_ticks, sorted_in_ticks
from .support.waiting import in_steps

RENEWERS_MAX: Final = 1000
"""Of one token: they are in one record of the metadata log. Kafka has no limit."""

DESCRIBED_IN_A_TICK: Final = 200
"""Tokens whose keys are computed at a time."""

_USER: Final = "User"
_NO_TIME: Final = -1
"""Kafka's time in an error of the broker; in one of the controller it is 0."""


def may_ask(session: Session) -> bool:
    """As in Kafka: not with a token, and not without any authentication."""
    if session.is_by_token:
        return False
    return session.is_forwarded or session.login is not None or session.principal != ANONYMOUS


@in_steps
def create_delegation_token(context: Context, call: Call) -> Steps[Any]:
    """CreateDelegationToken 1 to 3. For another owner it needs CREATE_TOKENS on that user.

    INVALID_PRINCIPAL_TYPE for a renewer that is no User, INVALID_REQUEST for more than 1000 renewers.

    Version notes: 3 has the owner (KIP-373).
    """
    message, session = call.message, call.session
    requester = session.principal
    name = getattr(message, "owner_principal_name", None)
    owner = f"{message.owner_principal_type}:{name}" if name else requester

    def respond(code: ErrorCode, made: DelegationToken | None = None, no_time: int = _NO_TIME) -> Any:
        record = None if made is None else made.record
        return call.make.CreateDelegationTokenResponse(
            error_code=code,
            **_principals(owner, requester),
            issue_timestamp=no_time if record is None else record.issue_timestamp,
            expiry_timestamp=no_time if record is None else record.expiration_timestamp,
            max_timestamp=no_time if record is None else record.max_timestamp,
            token_id="" if record is None else record.token_id,
            hmac=b"" if made is None else made.key,
            throttle_time=NO_THROTTLE,
        )

    if not may_ask(session):
        return respond(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    if owner != requester and not context.authorize(
        session, Operation.CREATE_TOKENS, AclResourceType.USER, owner
    ):
        return respond(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
    if any(each.principal_type != _USER for each in message.renewers):
        return respond(ErrorCode.INVALID_PRINCIPAL_TYPE)
    if len(message.renewers) > RENEWERS_MAX:
        return respond(ErrorCode.INVALID_REQUEST)
    request = CreateDelegationToken(
        owner,
        requester,
        tuple(f"{_USER}:{each.principal_name}" for each in message.renewers),
        message.max_lifetime,
        session.client_address,
    )
    try:
        made = yield submit(context, request, default_wait_ms(context), session)
    except KafkaError as error:
        return respond(error.code, no_time=0)
    return respond(ErrorCode.NONE, made)


def _principals(owner: str, requester: str) -> dict[str, str]:
    owner_type, _, owner_name = owner.partition(":")
    requester_type, _, requester_name = requester.partition(":")
    return {
        "principal_type": owner_type,
        "principal_name": owner_name,
        "token_requester_principal_type": requester_type,
        "token_requester_principal_name": requester_name,
    }


@in_steps
def renew_delegation_token(context: Context, call: Call) -> Steps[Any]:
    """RenewDelegationToken 1 to 2, by the token's owner or a renewer.

    DELEGATION_TOKEN_NOT_FOUND, DELEGATION_TOKEN_EXPIRED, DELEGATION_TOKEN_OWNER_MISMATCH.
    """
    make, message, session = call.make.RenewDelegationTokenResponse, call.message, call.session
    if not may_ask(session):
        return _expiry(make, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, _NO_TIME)
    request = RenewDelegationToken(
        session.principal,
        session.client_address,
        message.hmac,
        message.renew_period,
        _token_id(context, message.hmac),
    )
    return (yield from _change_expiry(context, make, request, session))


@in_steps
def expire_delegation_token(context: Context, call: Call) -> Steps[Any]:
    """ExpireDelegationToken 1 to 2, by the token's owner or a renewer. A negative period removes the token at once.

    DELEGATION_TOKEN_NOT_FOUND, DELEGATION_TOKEN_EXPIRED, DELEGATION_TOKEN_OWNER_MISMATCH.
    """
    make, message, session = call.make.ExpireDelegationTokenResponse, call.message, call.session
    if not may_ask(session):
        return _expiry(make, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, _NO_TIME)
    request = ExpireDelegationToken(
        session.principal,
        session.client_address,
        message.hmac,
        message.expiry_time_period,
        _token_id(context, message.hmac),
    )
    return (yield from _change_expiry(context, make, request, session))


def _token_id(context: Context, key: bytes) -> str | None:
    keys = context.token_keys
    found = None if keys is None else keys.find(key, context.image.tokens)
    return None if found is None else found.token_id


def _change_expiry(
    context: Context,
    make: Callable[..., Any],
    request: RenewDelegationToken | ExpireDelegationToken,
    session: Session,
) -> Steps[Any]:
    try:
        expiry_ms = yield submit(context, request, default_wait_ms(context), session)
    except KafkaError as error:
        return _expiry(make, error.code, 0)
    return _expiry(make, ErrorCode.NONE, expiry_ms)


def _expiry(make: Callable[..., Any], code: ErrorCode, at_ms: int) -> Any:
    return make(error_code=code, expiry_timestamp=at_ms, throttle_time=NO_THROTTLE)


@in_steps
def describe_delegation_token(context: Context, call: Call) -> Steps[Any]:
    """DescribeDelegationToken 1 to 3: the tokens of some owners, or all, with their keys.

    A client sees tokens that it owns, requested or may renew. Others need DESCRIBE on the token, or DESCRIBE_TOKENS on
    its owner.

    Version notes: 3 has the requester (KIP-373).
    """
    make = call.make

    def respond(code: ErrorCode, tokens: list[Any] | None = None) -> Any:
        return make.DescribeDelegationTokenResponse(
            error_code=code, tokens=tuple(tokens or ()), throttle_time=NO_THROTTLE
        )

    if not may_ask(call.session):
        return respond(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    keys = context.token_keys
    if keys is None:
        return respond(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    world, owners = context.world, call.message.owners
    wanted = None if owners is None else {f"{each.principal_type}:{each.principal_name}" for each in owners}
    tokens = yield from chosen_in_ticks(
        world,
        (token for _, token in context.image.tokens.entries()),
        is_visible(context, call.session, wanted),
    )
    tokens = yield from sorted_in_ticks(world, tokens, lambda token: token.token_id)
    found = yield from mapped_in_ticks(
        world, tokens, lambda token: _described(call, token, keys.key(token.token_id)), DESCRIBED_IN_A_TICK
    )
    return respond(ErrorCode.NONE, found)


def is_visible(
    context: Context, session: Session, wanted: set[str] | None = None
) -> Callable[[DelegationTokenRecord], bool]:
    """Whether the client sees a token; with `wanted`, only if it concerns one of these principals."""

    def sees(token: DelegationTokenRecord) -> bool:
        if wanted is not None and wanted.isdisjoint(concerned(token)):
            return False
        return (
            session.principal in concerned(token)
            or context.permits(session, Operation.DESCRIBE, AclResourceType.DELEGATION_TOKEN, token.token_id)
            or context.permits(session, Operation.DESCRIBE_TOKENS, AclResourceType.USER, token.owner)
        )

    return sees


def _described(call: Call, token: DelegationTokenRecord, key: bytes) -> Any:
    make = call.make
    return make.DescribedDelegationToken(
        **_principals(token.owner, token.requester),
        issue_timestamp=token.issue_timestamp,
        expiry_timestamp=token.expiration_timestamp,
        max_timestamp=token.max_timestamp,
        token_id=token.token_id,
        hmac=key,
        renewers=tuple(
            make.DescribedDelegationTokenRenewer(principal_type=kind, principal_name=name)
            for kind, _, name in (each.partition(":") for each in token.renewers)
        ),
    )


HANDLERS: dict[Api, Callable[[Context, Call], Any]] = {
    Api.CREATE_DELEGATION_TOKEN: create_delegation_token,
    Api.RENEW_DELEGATION_TOKEN: renew_delegation_token,
    Api.EXPIRE_DELEGATION_TOKEN: expire_delegation_token,
    Api.DESCRIBE_DELEGATION_TOKEN: describe_delegation_token,
}
