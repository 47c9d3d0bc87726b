"""Describes and changes client quotas."""

from collections.abc import Mapping
from typing import Any

from penstock.metadata.quotas import QuotaEntity, describe_entity, entity_of
from penstock.wire import Api
from penstock.wire.request import through_kio

from .admin import error_of, worst_code
from .cluster import Cluster


def describe_quotas(cluster: Cluster) -> dict[QuotaEntity, dict[str, float]]:
    """All quotas, by entity."""

    def build(make: Any) -> Any:
        return make.DescribeClientQuotasRequest(components=(), strict=False)

    reply = cluster.ask_any(through_kio(Api.DESCRIBE_CLIENT_QUOTAS, build))
    error = error_of("quotas", reply)
    if error is not None:
        raise error
    return {
        entity_of({part.entity_type: part.entity_name for part in each.entity}): {
            value.key: value.value for value in each.values
        }
        for each in reply.entries or ()
    }


def alter_quotas(cluster: Cluster, entity: QuotaEntity, changes: Mapping[str, float | None]) -> None:
    """Change the quotas of an entity; None removes one."""

    def build(make: Any) -> Any:
        return make.AlterClientQuotasRequest(
            entries=(
                make.EntryData(
                    entity=tuple(
                        make.EntityData(entity_type=kind, entity_name=name) for kind, name in entity
                    ),
                    ops=tuple(
                        make.OpData(key=key, value=0.0 if value is None else value, remove=value is None)
                        for key, value in changes.items()
                    ),
                ),
            ),
            validate_only=False,
        )

    request = through_kio(Api.ALTER_CLIENT_QUOTAS, build)
    reply = cluster.ask_controller(request, worst_code(lambda reply: reply.entries))
    for each in reply.entries:
        error = error_of(f"quotas of {describe_entity(entity)}", each)
        if error is not None:
            raise error
