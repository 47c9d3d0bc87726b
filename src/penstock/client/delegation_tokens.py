"""Delegation tokens: creates, lists, renews and removes them (KIP-48, KIP-373).

Kafka's requests name a token by its key. Callers here have looked it up by its id before. Apache Kafka answers before
its brokers know of a change: each call returns once a broker shows it.
"""

from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.wire import Api
from penstock.wire.request import Request, through_kio

from .admin import await_shown
from .cluster import Cluster
from .errors import check, code_of

BROKER_DEFAULT: Final = -1
"""A period in milliseconds that the broker's settings decide; for the expiry of a token, removal."""


@dataclass(frozen=True, slots=True)
class Token:
    id: str
    owner: str
    """As User:alice."""
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    expires_ms: int
    ends_ms: int
    """After this time it cannot be renewed."""
    hmac: bytes = field(repr=False)

    @property
    def password(self) -> str:
        """The password of a log-in; the user is the token's id."""
        return b64encode(self.hmac).decode()


def create_token(
    cluster: Cluster, owner: str | None, renewers: Sequence[str], lifetime_ms: int = BROKER_DEFAULT
) -> Token:
    """A token for an owner, by default the client itself."""

    def build(make: Any) -> Any:
        kind, name = (None, None) if owner is None else _parts(owner)
        fields = {} if make.version < 3 else {"owner_principal_type": kind, "owner_principal_name": name}
        allowed = tuple(make.CreatableRenewers(**_principal(each)) for each in renewers)
        return make.CreateDelegationTokenRequest(renewers=allowed, max_lifetime=lifetime_ms, **fields)

    request = through_kio(Api.CREATE_DELEGATION_TOKEN, build, version_min=1 if owner is None else 3)
    reply = _change(cluster, "the token", request)
    made = _token(reply, tuple(renewers))
    _settle(cluster, lambda found: any(each.id == made.id for each in found))
    return made


def list_tokens(cluster: Cluster, owners: Sequence[str] | None = None) -> list[Token]:
    """The tokens that the client may see, of some owners or of all."""

    def build(make: Any) -> Any:
        wanted = None
        if owners is not None:
            wanted = tuple(make.DescribeDelegationTokenOwner(**_principal(each)) for each in owners)
        return make.DescribeDelegationTokenRequest(owners=wanted)

    reply = cluster.ask_any(through_kio(Api.DESCRIBE_DELEGATION_TOKEN, build))
    check("tokens", reply)
    return sorted(
        (_token(each, _renewers(each)) for each in reply.tokens),
        key=lambda each: (each.owner, each.issued_ms, each.id),
    )


def renew_token(cluster: Cluster, token: Token, period_ms: int = BROKER_DEFAULT) -> int:
    """Returns when it expires now, in milliseconds since 1970."""

    def build(make: Any) -> Any:
        return make.RenewDelegationTokenRequest(hmac=token.hmac, renew_period=period_ms)

    request = through_kio(Api.RENEW_DELEGATION_TOKEN, build)
    expires_ms = int(_change(cluster, f"token {token.id}", request).expiry_timestamp)
    _settle(
        cluster, lambda found: any((each.id, each.expires_ms) == (token.id, expires_ms) for each in found)
    )
    return expires_ms


def expire_token(cluster: Cluster, token: Token, period_ms: int = BROKER_DEFAULT) -> int:
    """Let it expire after a period, or remove it. Returns when it expires."""

    def build(make: Any) -> Any:
        return make.ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period=period_ms)

    request = through_kio(Api.EXPIRE_DELEGATION_TOKEN, build)
    expires_ms = int(_change(cluster, f"token {token.id}", request).expiry_timestamp)
    _settle(
        cluster, lambda found: all(each.id != token.id or each.expires_ms == expires_ms for each in found)
    )
    return expires_ms


def _settle(cluster: Cluster, is_shown: Callable[[list[Token]], bool]) -> None:
    await_shown(cluster, lambda: is_shown(list_tokens(cluster)))


def _change(cluster: Cluster, what: str, request: Request[Any]) -> Any:
    reply = cluster.ask_controller(request, code_of)
    check(what, reply)
    return reply


def _renewers(answer: Any) -> tuple[str, ...]:
    return tuple(f"{each.principal_type}:{each.principal_name}" for each in answer.renewers)


def _token(answer: Any, renewers: tuple[str, ...]) -> Token:
    owner = f"{answer.principal_type}:{answer.principal_name}"
    requester = owner
    if hasattr(answer, "token_requester_principal_name"):
        requester = f"{answer.token_requester_principal_type}:{answer.token_requester_principal_name}"
    return Token(
        answer.token_id,
        owner,
        requester,
        renewers,
        answer.issue_timestamp,
        answer.expiry_timestamp,
        answer.max_timestamp,
        answer.hmac,
    )


def _parts(principal: str) -> tuple[str, str]:
    kind, _, name = principal.partition(":")
    return kind, name


def _principal(text: str) -> dict[str, str]:
    kind, name = _parts(text)
    return {"principal_type": kind, "principal_name": name}
