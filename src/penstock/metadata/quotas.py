"""Client quotas: how much a user, a client id or an address may use, and which quota applies to a client.

An entity has a name for each of its types, or None for the default of the type:

    user alice; user alice with client id x; every user (default); client id x; address 10.0.0.7; ...

The most specific quota applies, in the order of `PRECEDENCE`; each key is looked up by itself. Clients that a quota of
a user covers share it. Where the entity names a client id, or its default, each client id has its own share.
"""

from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from typing import Final, NamedTuple

from .records import ClientQuotaRecord
from .records import QuotaEntity as EntityPart

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"

CLIENT_KEYS: Final = (
    PRODUCER_BYTE_RATE,
    CONSUMER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    CONTROLLER_MUTATION_RATE,
)
"""Keys of users and client ids."""

IP_KEYS: Final = (CONNECTION_CREATION_RATE,)

QuotaEntity = tuple[tuple[str, str | None], ...]
"""Pairs of type and name, in the order of the types. The name is None for the default of the type."""

Quotas = Mapping[QuotaEntity, Mapping[str, float]]


def entity_of(names: Mapping[str, str | None]) -> QuotaEntity:
    return tuple(sorted(names.items()))


def is_address(text: str) -> bool:
    try:
        ip_address(text.partition("%")[0])
    except ValueError:
        return False
    return True


def sort_key(entity: QuotaEntity) -> tuple[tuple[str, bool, str], ...]:
    return tuple((kind, name is not None, name or "") for kind, name in entity)


def describe_entity(entity: QuotaEntity) -> str:
    """As in `user alice, default client-id`."""
    ordered = sorted(entity, key=lambda part: (part[0] != USER, part[0]))
    return ", ".join(f"default {kind}" if name is None else f"{kind} {name}" for kind, name in ordered)


def quota_record(entity: QuotaEntity, key: str, value: float | None) -> ClientQuotaRecord:
    """A new value; None removes the quota."""
    return ClientQuotaRecord(
        entity=tuple(EntityPart(type=kind, name=name) for kind, name in entity),
        key=key,
        value=0.0 if value is None else value,
        remove=value is None,
    )


class Share(NamedTuple):
    """Who shares a quota: a user, a client id, or both. An empty string stands for any."""

    user: str
    client_id: str


class AppliedQuota(NamedTuple):
    entity: QuotaEntity
    limit: float
    share: Share


def _candidates(user: str, client_id: str) -> Iterator[tuple[QuotaEntity, Share]]:
    """The entities that cover a client, the most specific first, as in Kafka."""
    own, of_user, of_client_id = Share(user, client_id), Share(user, ""), Share("", client_id)
    yield ((CLIENT_ID, client_id), (USER, user)), own
    yield ((CLIENT_ID, None), (USER, user)), own
    yield ((USER, user),), of_user
    yield ((CLIENT_ID, client_id), (USER, None)), own
    yield ((CLIENT_ID, None), (USER, None)), own
    yield ((USER, None),), of_user
    yield ((CLIENT_ID, client_id),), of_client_id
    yield ((CLIENT_ID, None),), of_client_id


def applying_quota(quotas: Quotas, key: str, user: str, client_id: str) -> AppliedQuota | None:
    """The quota that applies to a client; None if none does. `user` is the principal's name, without its type."""
    for entity, share in _candidates(user, client_id):
        limit = quotas.get(entity, {}).get(key)
        if limit is not None:
            return AppliedQuota(entity, limit, share)
    return None


def applying_ip_quota(quotas: Quotas, address: str) -> AppliedQuota | None:
    """The connection rate of an address."""
    for entity in (((IP, address),), ((IP, None),)):
        limit = quotas.get(entity, {}).get(CONNECTION_CREATION_RATE)
        if limit is not None:
            return AppliedQuota(entity, limit, Share(address, ""))
    return None


def covering_quotas(quotas: Quotas, key: str, user: str, client_id: str) -> list[AppliedQuota]:
    """Every quota that covers a client, the one that applies first."""
    return [
        AppliedQuota(entity, quotas[entity][key], share)
        for entity, share in _candidates(user, client_id)
        if key in quotas.get(entity, {})
    ]
