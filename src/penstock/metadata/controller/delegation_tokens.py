"""Delegation tokens: made, renewed, expired, and removed once they have expired.

A token is valid until its expiry, which its owner and its renewers may move, up to the end of its longest lifetime.
The principals are those of the clients at their brokers; brokers have checked ACLs.
"""

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import TimestampMs, random_uuid, uuid_text
from penstock.base.outcome import Outcome
from penstock.metadata.configs import broker_setting
from penstock.metadata.delegation_tokens import TokenKeys, is_expired
from penstock.metadata.records import AnyRecord, DelegationTokenRecord, RemoveDelegationTokenRecord
from penstock.metadata.versions import has_delegation_tokens

from .requests import (
    CreateDelegationToken,
    DelegationToken,
    ExpireDelegationToken,
    RenewDelegationToken,
)
from .view import ControllerView

LAST_MS = 253_402_300_799_000
"""The end of the year 9999: no token is valid longer, whatever the settings say."""


def create_delegation_token(
    view: ControllerView, keys: TokenKeys | None, request: CreateDelegationToken, now_ms: TimestampMs
) -> Outcome[DelegationToken]:
    keys = _enabled(view, keys)
    lifetime_ms = _setting(view, "delegation.token.max.lifetime.ms")
    if request.max_lifetime_ms > 0:
        lifetime_ms = min(lifetime_ms, request.max_lifetime_ms)
    max_ms = min(now_ms + lifetime_ms, LAST_MS)
    record = DelegationTokenRecord(
        owner=request.owner,
        requester=request.requester,
        renewers=request.renewers,
        issue_timestamp=now_ms,
        max_timestamp=max_ms,
        expiration_timestamp=min(max_ms, now_ms + _setting(view, "delegation.token.expiry.time.ms")),
        token_id=uuid_text(random_uuid(view.rng)),
    )
    return Outcome(DelegationToken(record, keys.key(record.token_id)), (record,))


def renew_delegation_token(
    view: ControllerView, keys: TokenKeys | None, request: RenewDelegationToken, now_ms: TimestampMs
) -> Outcome[TimestampMs]:
    """The reply is the new expiry."""
    token = _token(view, keys, request)
    _check_valid(token, now_ms)
    _check_may_renew(token, request.requester)
    period_ms = _setting(view, "delegation.token.expiry.time.ms")
    if request.period_ms > 0:
        period_ms = min(period_ms, request.period_ms)
    return _moved(token, now_ms + period_ms)


def expire_delegation_token(
    view: ControllerView, keys: TokenKeys | None, request: ExpireDelegationToken, now_ms: TimestampMs
) -> Outcome[TimestampMs]:
    """The reply is the new expiry. A negative period removes the token at once, also if it has expired."""
    token = _token(view, keys, request)
    _check_may_renew(token, request.requester)
    if request.period_ms < 0:
        return Outcome(now_ms, (RemoveDelegationTokenRecord(token_id=token.token_id),))
    _check_valid(token, now_ms)
    return _moved(token, now_ms + request.period_ms)


def remove_expired(view: ControllerView, now_ms: TimestampMs) -> list[AnyRecord]:
    return [
        RemoveDelegationTokenRecord(token_id=token.token_id)
        for token in view.image.tokens.values()
        if is_expired(token, now_ms)
    ]


def check_interval_ms(view: ControllerView) -> int:
    return _setting(view, "delegation.token.expiry.check.interval.ms")


def _setting(view: ControllerView, name: str) -> int:
    return int(broker_setting(name, view.image, view.settings) or 0)


def _enabled(view: ControllerView, keys: TokenKeys | None) -> TokenKeys:
    if keys is None:
        raise KafkaError(
            "delegation tokens are off: delegation.token.secret.key is not set at the controller",
            ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED,
        )
    if not has_delegation_tokens(view.image.metadata_version):
        raise KafkaError(
            "The current metadata.version does not support delegation tokens", ErrorCode.UNSUPPORTED_VERSION
        )
    return keys


def _token(
    view: ControllerView, keys: TokenKeys | None, request: RenewDelegationToken | ExpireDelegationToken
) -> DelegationTokenRecord:
    token = _enabled(view, keys).find(request.key, view.image.tokens)
    if token is None:
        raise KafkaError("no token has this key", ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
    return token


def _check_valid(token: DelegationTokenRecord, now_ms: TimestampMs) -> None:
    if is_expired(token, now_ms):
        raise KafkaError("the token has expired", ErrorCode.DELEGATION_TOKEN_EXPIRED)


def _check_may_renew(token: DelegationTokenRecord, principal: str) -> None:
    if principal != token.owner and principal not in token.renewers:
        raise KafkaError(
            f"{principal} neither owns nor may renew the token", ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        )


def _moved(token: DelegationTokenRecord, expiry_ms: TimestampMs) -> Outcome[TimestampMs]:
    expiry_ms = min(token.max_timestamp, expiry_ms)
    return Outcome(expiry_ms, (DelegationTokenRecord(**{**vars(token), "expiration_timestamp": expiry_ms}),))
