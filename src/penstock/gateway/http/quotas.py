"""Client quotas: listed, set and removed.

An entity is a user, a client id, both, or an address. In JSON a name of null stands for all without a quota of their
own, and a type that is left out is not part of the entity.
"""

from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, UnsetType

from penstock.base.steps import Steps
from penstock.gateway.http.protocol.messages import HttpError, Query, Request, Response, Routes, json
from penstock.gateway.shared.access import CLUSTER, Need, Rule
from penstock.gateway.shared.controller_call import check, decide
from penstock.handlers.support.context import Context
from penstock.handlers.support.ticks import mapped_in_ticks, sorted_in_ticks
from penstock.metadata.acls import Operation
from penstock.metadata.controller.requests import AlterClientQuotas, QuotaAlteration
from penstock.metadata.quotas import CLIENT_ID, IP, USER, QuotaEntity, entity_of, sort_key

NAME_CHARS_MAX: Final = 1_000

_Name = Annotated[str, Meta(min_length=1, max_length=NAME_CHARS_MAX)]
_Limit = Annotated[float, Meta(gt=0, le=2**62)]
_WholeLimit = Annotated[int, Meta(ge=1, le=2**62)]
_Rate = Annotated[int, Meta(ge=1, le=2**31 - 1)]

ROUTES = Routes("quotas")


class Entity(msgspec.Struct, forbid_unknown_fields=True):
    """A user, a client id, both, or an address. null stands for all without a quota of their own."""

    user: _Name | UnsetType | None = UNSET
    client_id: _Name | UnsetType | None = UNSET
    ip: _Name | UnsetType | None = UNSET


class Quota(msgspec.Struct):
    entity: Entity
    limits: dict[str, float]
    """By name, for each broker: `producer_byte_rate`, `consumer_byte_rate`, `request_percentage`,
    `controller_mutation_rate`, `connection_creation_rate`."""


class QuotaList(msgspec.Struct):
    quotas: list[Quota]


class Limits(msgspec.Struct, forbid_unknown_fields=True):
    """Of users and client ids the first four, of addresses the last. null removes a limit."""

    producer_byte_rate: _WholeLimit | UnsetType | None = UNSET
    """Bytes a second."""
    consumer_byte_rate: _WholeLimit | UnsetType | None = UNSET
    """Bytes a second."""
    request_percentage: _Limit | UnsetType | None = UNSET
    """Percent of one core."""
    controller_mutation_rate: _Limit | UnsetType | None = UNSET
    """Partitions created or deleted a second."""
    connection_creation_rate: _Rate | UnsetType | None = UNSET
    """Connections a second."""


class AlterQuotaRequest(msgspec.Struct, forbid_unknown_fields=True):
    entity: Entity
    limits: Limits
    """Limits that are left out stay."""


@ROUTES.add(
    "GET",
    "/quotas",
    "List quotas of users, client ids and addresses.",
    answer=QuotaList,
    rule=Rule((Need(Operation.DESCRIBE_CONFIGS, CLUSTER),)),
)
def _list(gateway: Any, _: Request) -> Steps[Response]:
    context: Context = gateway.context
    entities = yield from sorted_in_ticks(context.world, context.image.quotas, sort_key)
    rows = yield from mapped_in_ticks(context.world, entities, lambda each: _quota(context, each))
    return json(QuotaList(rows))


def _quota(context: Context, entity: QuotaEntity) -> Quota:
    names = dict(entity)
    shown = Entity(names.get(USER, UNSET), names.get(CLIENT_ID, UNSET), names.get(IP, UNSET))
    return Quota(shown, dict(sorted(context.image.quotas.get(entity, {}).items())))


@ROUTES.add(
    "POST",
    "/quotas",
    "Set and remove limits of a user, a client id, both, or an address.",
    query=(
        Query(
            "dry_run",
            bool,
            "Only validate: change nothing, and return the limits as they are.",
            default=False,
        ),
    ),
    body=AlterQuotaRequest,
    answer=Quota,
    errors=(409,),
    rule=Rule((Need(Operation.ALTER_CONFIGS, CLUSTER),)),
)
def _alter(gateway: Any, request: Request) -> Steps[Response]:
    context: Context = gateway.context
    wanted: AlterQuotaRequest = request.body
    named = {USER: wanted.entity.user, CLIENT_ID: wanted.entity.client_id, IP: wanted.entity.ip}
    entity = entity_of({kind: name for kind, name in named.items() if name is not UNSET})
    changes = {
        name: None if limit is None else float(limit)
        for name in Limits.__struct_fields__
        if (limit := getattr(wanted.limits, name)) is not UNSET
    }
    if not changes:
        raise HttpError(409, "no_limits", "no limit is given: name at least one, or null to remove it")
    alteration = QuotaAlteration(entity, tuple(changes.items()))
    [result] = yield from decide(
        context, AlterClientQuotas((alteration,), request.query["dry_run"]), request.session
    )
    if result.message is not None:  # each value is valid by itself: they do not fit each other
        raise HttpError(409, result.code.name.lower(), result.message)
    check(result, "the quota could not be changed")
    return json(_quota(context, entity))
