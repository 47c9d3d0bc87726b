"""Client quotas (KIP-546).

    DescribeClientQuotas 0 to 1
    AlterClientQuotas    0 to 1

The controller checks and decides changes. `security.client_quotas` enforces them.
"""

from collections.abc import Callable
from typing import Any, Final

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.steps import Steps, next_tick
from penstock.metadata.acls import CLUSTER_NAME, AclResourceType, Operation
from penstock.metadata.controller.requests import AlterClientQuotas, QuotaAlteration, Result
from penstock.metadata.quotas import CLIENT_ID, IP, USER, QuotaEntity, entity_of, sort_key
from penstock.wire import Api

from .support.context import Call, Context
from .support.controller_call import default_wait_ms, submit
from .support.response_fields import DENIED_CLUSTER, NO_THROTTLE, refusal
from .support.waiting import in_steps

EXACT: Final = 0
DEFAULT: Final = 1
SPECIFIED: Final = 2
"""How a part of a filter matches: a name, the default, or anything of the type."""

SLICE_ENTITIES: Final = 500
"""Entities that are described in one tick."""


@in_steps
def describe_client_quotas(context: Context, call: Call) -> Steps[Any]:
    """DescribeClientQuotas 0 to 1: the quotas of entities that a filter matches. Needs DESCRIBE_CONFIGS on the
    cluster.

    With `strict` an entity must have no other types than the filter. INVALID_REQUEST for a filter that names a type
    twice, or ip with another type; UNSUPPORTED_VERSION for an unknown type.
    """
    make = call.make

    def respond(result: Result, entries: tuple[Any, ...] | None) -> Any:
        return make.DescribeClientQuotasResponse(
            throttle_time=NO_THROTTLE,
            error_code=result.code,
            error_message=result.message,
            entries=entries,
        )

    if not context.authorize(call.session, Operation.DESCRIBE_CONFIGS, AclResourceType.CLUSTER, CLUSTER_NAME):
        return respond(DENIED_CLUSTER, None)
    try:
        wanted = _filter(call.message.components)
    except KafkaError as error:
        return respond(refusal(error), None)
    quotas = context.image.quotas
    entries = []
    if wanted or not call.message.strict:
        for at, entity in enumerate(sorted(quotas, key=sort_key)):
            if at and not at % SLICE_ENTITIES:
                yield next_tick(context.world)
            if _matches(wanted, entity, strict=call.message.strict):
                values = sorted(quotas[entity].items())
                entries.append(
                    make.EntryData(
                        entity=_parts(make, entity),
                        values=tuple(make.ValueData(key=key, value=value) for key, value in values),
                    )
                )
    return respond(Result(), tuple(entries))


def _filter(components: tuple[Any, ...]) -> dict[str, tuple[int, str | None]]:
    wanted: dict[str, tuple[int, str | None]] = {}
    for each in components:
        kind, how, name = each.entity_type, each.match_type, each.match
        if not kind:
            raise _invalid("Invalid empty entity type.")
        if kind in wanted:
            raise _invalid(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in (USER, CLIENT_ID, IP):
            raise KafkaError(f"Unsupported entity type {kind}", ErrorCode.UNSUPPORTED_VERSION)
        if how not in (EXACT, DEFAULT, SPECIFIED):
            raise _invalid(f"Unknown match type {how}")
        if (name is None) is (how == EXACT):
            raise _invalid(f"Match type {how} of {kind} must have {'a' if how == EXACT else 'no'} name.")
        wanted[kind] = how, name
    if IP in wanted and len(wanted) > 1:
        raise _invalid("A filter with ip must not have user or client-id too.")
    return wanted


def _matches(wanted: dict[str, tuple[int, str | None]], entity: QuotaEntity, *, strict: bool) -> bool:
    names = dict(entity)
    if strict and len(names) != len(wanted):
        return False
    return all(
        kind in names and (how == SPECIFIED or names[kind] == name) for kind, (how, name) in wanted.items()
    )


@in_steps
def alter_client_quotas(context: Context, call: Call) -> Steps[Any]:
    """AlterClientQuotas 0 to 1: set and remove quotas of entities. Needs ALTER_CONFIGS on the cluster.

    Each entity has its own result, and is changed as a whole or not at all: INVALID_REQUEST for an entity that is
    empty, has an unknown type, or ip with another type; for an unknown key, one that is given twice or does not fit
    the entity; for a value that is not positive. `validate_only` changes nothing.
    """
    make, message = call.make, call.message
    alterations: dict[QuotaEntity, list[QuotaAlteration]] = {}
    for entry in message.entries:
        entity = entity_of({each.entity_type: each.entity_name for each in entry.entity})
        changes = tuple((op.key, None if op.remove else op.value) for op in entry.ops)
        alterations.setdefault(entity, []).append(QuotaAlteration(entity, changes))

    def respond(results: dict[QuotaEntity, Result]) -> Any:
        return make.AlterClientQuotasResponse(
            throttle_time=NO_THROTTLE,
            entries=tuple(
                make.EntryData(
                    error_code=result.code, error_message=result.message, entity=_parts(make, entity)
                )
                for entity, result in results.items()
            ),
        )

    if not context.authorize(call.session, Operation.ALTER_CONFIGS, AclResourceType.CLUSTER, CLUSTER_NAME):
        return respond(dict.fromkeys(alterations, DENIED_CLUSTER))
    if not alterations:
        return respond({})
    flat = tuple(each for of_entity in alterations.values() for each in of_entity)
    try:
        results = yield submit(
            context,
            AlterClientQuotas(flat, message.validate_only),
            default_wait_ms(context),
            call.session,
        )
    except KafkaError as error:
        return respond(dict.fromkeys(alterations, refusal(error)))
    # The last result of an entity that is named twice, as in Kafka: the first is changed, the answer is an error.
    return respond({each.entity: result for each, result in zip(flat, results, strict=True)})


def _parts(make: Any, entity: QuotaEntity) -> tuple[Any, ...]:
    return tuple(make.EntityData(entity_type=kind, entity_name=name) for kind, name in entity)


def _invalid(message: str) -> KafkaError:
    return KafkaError(message, ErrorCode.INVALID_REQUEST)


HANDLERS: dict[Api, Callable[[Context, Call], Any]] = {
    Api.DESCRIBE_CLIENT_QUOTAS: describe_client_quotas,
    Api.ALTER_CLIENT_QUOTAS: alter_client_quotas,
}
