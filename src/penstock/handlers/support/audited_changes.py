"""Records changes of users, ACLs, quotas, tokens and settings in the audit, whichever door they came through.

A change is recorded when the controller has decided it, by the request that was submitted. One that the controller did
not answer in time is recorded as failed, since it may still be made. What the controller refused is no change.
"""

from __future__ import annotations  # those of nested functions would be evaluated in each call

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.promise import Promise
from penstock.base.steps import RunningSteps, Steps, next_tick
from penstock.metadata.config_table import BROKER_SETTINGS, TOPIC_SETTINGS
from penstock.metadata.controller.requests import (
    AlterClientQuotas,
    AlterConfigs,
    AlterScramUsers,
    CreateAcls,
    CreateDelegationToken,
    DeleteAcls,
    ExpireDelegationToken,
    IncrementalAlterConfigs,
    RenewDelegationToken,
)
from penstock.metadata.image import ClusterImage, Resource, ResourceType
from penstock.metadata.quotas import describe_entity
from penstock.metadata.scram import ScramMechanism
from penstock.security.audit import AuditLog, title

from .context import Context, Session

CHANGES_A_TICK: Final = 100
"""A request may have 10,000 ACLs."""

HIDDEN: Final = "(hidden)"


class Change(NamedTuple):
    operation: str
    resource_type: str
    resource_name: str
    fields: dict[str, Any]
    code: ErrorCode = ErrorCode.NONE


class Decided(NamedTuple):
    """A request, its reply (None if it is not known), and the metadata before and after."""

    request: Any
    reply: Any
    old: ClusterImage
    new: ClusterImage


def recorded(
    context: Context, audit: AuditLog, by: Session, request: Any, reply: Promise[Any]
) -> Promise[Any]:
    """The same reply. The change is recorded when it is there."""
    describe = DESCRIBED.get(type(request))
    if describe is None or by.is_forwarded or getattr(request, "validate_only", False):
        return reply  # the broker that forwarded it records it
    old = context.image
    passed_on: Promise[Any] = Promise()

    def known(value: Any) -> None:
        passed_on.resolve(value)
        _record(context, audit, by, describe(Decided(request, value, old, context.image)))

    def failed(error: KafkaError) -> None:
        passed_on.fail(error)
        if error.code is ErrorCode.REQUEST_TIMED_OUT:
            _record(context, audit, by, describe(Decided(request, None, old, old)), str(error))

    reply.then(known, failed)
    return passed_on


def _record(
    context: Context, audit: AuditLog, by: Session, changes: Iterator[Change], why: str | None = None
) -> None:
    def steps() -> Steps[None]:
        for count, each in enumerate(changes, 1):
            if each.code is ErrorCode.NONE:
                audit.changed(by, each.operation, each.resource_type, each.resource_name, each.fields, why)
            if count % CHANGES_A_TICK == 0:
                yield next_tick(context.world)

    def failed(error: Exception) -> None:
        raise error

    RunningSteps(steps(), lambda _: None, failed)


# -- what each request changes -------------------------------------------------------------------------


def _created_acls(decided: Decided) -> Iterator[Change]:
    for at, acl in enumerate(decided.request.acls):
        code = ErrorCode.NONE if decided.reply is None else decided.reply[at].code
        yield Change("CreateAcl", title(acl.resource_type), acl.resource_name, {"new": str(acl)}, code)


def _deleted_acls(decided: Decided) -> Iterator[Change]:
    if decided.reply is None:
        for each in decided.request.filters:
            yield Change("DeleteAcl", title(each.resource_type), each.resource_name or "", {"old": str(each)})
        return
    for row in decided.reply:
        for acl in row.acls:
            yield Change("DeleteAcl", title(acl.resource_type), acl.resource_name, {"old": str(acl)})


def _scram_users(decided: Decided) -> Iterator[Change]:
    request, results = decided.request, decided.reply

    def change(user: str, mechanism: int, operation: str, fields: dict[str, Any]) -> Change:
        is_known = mechanism in list(ScramMechanism)
        fields["mechanism"] = ScramMechanism(mechanism).label if is_known else str(mechanism)
        code = ErrorCode.NONE if results is None else results[user].code
        return Change(operation, "User", user, fields, code)

    for each in request.deletions:
        yield change(each.user, each.mechanism, "DeleteUserCredential", {})
    for each in request.upsertions:
        is_known = decided.old.scram_users.get((each.mechanism, each.user)) is not None
        operation = "ChangeUserCredential" if is_known else "CreateUserCredential"
        yield change(each.user, each.mechanism, operation, {"iterations": each.iterations})


def _quotas(decided: Decided) -> Iterator[Change]:
    request: AlterClientQuotas = decided.request
    for at, (entity, changes) in enumerate(request.alterations):
        code = ErrorCode.NONE if decided.reply is None else decided.reply[at].code
        old = decided.old.quotas.get(entity, {})
        for key, value in changes:
            if old.get(key) != value:
                fields = {"name": key, "old": old.get(key), "new": value}
                yield Change("AlterQuota", "Quota", describe_entity(entity), fields, code)


def _created_token(decided: Decided) -> Iterator[Change]:
    request: CreateDelegationToken = decided.request
    record = None if decided.reply is None else decided.reply.record
    fields = {
        "owner": request.owner,
        "renewers": ",".join(request.renewers),
        "expires_ms": None if record is None else record.expiration_timestamp,
    }
    yield Change("CreateToken", "DelegationToken", "" if record is None else record.token_id, fields)


def _token_expiry(operation: str) -> Callable[[Decided], Iterator[Change]]:
    def describe(decided: Decided) -> Iterator[Change]:
        token_id = decided.request.token_id
        old = None if token_id is None else decided.old.tokens.get(token_id)
        fields = {
            "owner": None if old is None else old.owner,
            "old": None if old is None else old.expiration_timestamp,
            "new": decided.reply,
        }
        yield Change(operation, "DelegationToken", token_id or "", fields)

    return describe


def _configs(decided: Decided) -> Iterator[Change]:
    request: AlterConfigs | IncrementalAlterConfigs = decided.request
    for resource, wanted in request.resources.items():
        if decided.reply is not None and decided.reply[resource].code is not ErrorCode.NONE:
            continue
        old, new = decided.old.config(resource), decided.new.config(resource)
        if isinstance(request, IncrementalAlterConfigs):
            names = [each.name for each in request.resources[resource]]
        else:
            names = sorted({*wanted, *old})
        for name in names:
            fields: dict[str, Any] = {"name": name}
            if _is_shown(name):
                fields["old"] = old.get(name)
                if decided.reply is not None:
                    fields["new"] = new.get(name)
            else:
                fields["new"] = HIDDEN
            if decided.reply is None or old.get(name) != new.get(name):
                yield Change("AlterConfig", _config_type(resource), resource.name, fields)


def _is_shown(name: str) -> bool:
    setting = TOPIC_SETTINGS.get(name) or BROKER_SETTINGS.get(name)
    return setting is not None and not setting.is_secret


def _config_type(resource: Resource) -> str:
    return title(ResourceType(resource.type)) if resource.type in list(ResourceType) else str(resource.type)


DESCRIBED: Final[dict[type[Any], Callable[[Decided], Iterator[Change]]]] = {
    CreateAcls: _created_acls,
    DeleteAcls: _deleted_acls,
    AlterScramUsers: _scram_users,
    AlterClientQuotas: _quotas,
    CreateDelegationToken: _created_token,
    RenewDelegationToken: _token_expiry("RenewToken"),
    ExpireDelegationToken: _token_expiry("ExpireToken"),
    AlterConfigs: _configs,
    IncrementalAlterConfigs: _configs,
}
