"""Changes client quotas."""

from math import inf
from typing import Final

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.outcome import Outcome
from penstock.metadata.quotas import (
    CLIENT_ID,
    CLIENT_KEYS,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    IP,
    IP_KEYS,
    PRODUCER_BYTE_RATE,
    USER,
    QuotaEntity,
    describe_entity,
    is_address,
    quota_record,
)
from penstock.metadata.records import AnyRecord

from .requests import OK, AlterClientQuotas, QuotaAlteration, Result, refused
from .view import ControllerView

CHANGES_MAX: Final = 10_000
"""Records of one request, as for ACLs."""

_INTEGER_MAX: Final = {
    PRODUCER_BYTE_RATE: 2**63 - 1,
    CONSUMER_BYTE_RATE: 2**63 - 1,
    CONNECTION_CREATION_RATE: 2**31 - 1,
}
"""Keys with whole numbers, and the largest of each, as in Kafka."""


def alter_client_quotas(view: ControllerView, request: AlterClientQuotas) -> Outcome[tuple[Result, ...]]:
    """A value that does not change makes no record, and so does the removal of a quota that does not exist."""
    records: list[AnyRecord] = []
    results = []
    seen: set[QuotaEntity] = set()
    for alteration in request.alterations:
        try:
            if alteration.entity in seen:
                raise _invalid(f"Ignoring duplicate entity {describe_entity(alteration.entity)}.")
            seen.add(alteration.entity)
            records += _decide(view, alteration)
        except KafkaError as error:
            results.append(refused(error))
        else:
            results.append(OK)
    if len(records) > CHANGES_MAX:
        raise _invalid(f"The request changes {len(records)} quotas, expected {CHANGES_MAX} at most.")
    return Outcome(tuple(results), () if request.validate_only else tuple(records))


def _decide(view: ControllerView, alteration: QuotaAlteration) -> list[AnyRecord]:
    entity = alteration.entity
    keys = _keys_of(entity)
    held = view.image.quotas.get(entity, {})
    records: dict[str, AnyRecord | None] = {}
    for key, value in alteration.changes:
        if key in records:
            raise _invalid(f"The quota {key} of {describe_entity(entity)} is given twice.")
        records[key] = None
        if value is not None:
            _check(keys, key, value)
        if held.get(key) != value:
            records[key] = quota_record(entity, key, value)
    return [record for record in records.values() if record is not None]


def _keys_of(entity: QuotaEntity) -> tuple[str, ...]:
    """The keys that an entity may have. Raises INVALID_REQUEST for an invalid entity."""
    names = dict(entity)
    if not names:
        raise _invalid("The entity of a quota is empty, expected user, client-id, both, or ip.")
    for kind, name in entity:
        if kind not in (USER, CLIENT_ID, IP):
            raise _invalid(f"{kind!r} is no type of a quota's entity, expected user, client-id or ip.")
        if name == "":
            raise _invalid(f"The name of {kind} is empty. The default has no name.")
    if IP not in names:
        return CLIENT_KEYS
    if len(names) > 1:
        raise _invalid("A quota of an ip must not name a user or client-id too.")
    address = names[IP]
    if address is not None and not is_address(address):
        raise _invalid(f"{address} is not a valid IP. Host names are not looked up.")
    return IP_KEYS


def _check(keys: tuple[str, ...], key: str, value: float) -> None:
    if key not in keys:
        raise _invalid(f"Invalid configuration key {key}, expected {', '.join(keys)}.")
    if not value > 0:
        raise _invalid(f"Quota {key} must be greater than 0, but is {value}.")
    if value == inf:
        raise _invalid(f"Quota {key} must be a finite number. Remove the quota to have no limit.")
    largest = _INTEGER_MAX.get(key)
    if largest is not None:
        if value > largest:
            raise _invalid(f"Quota {key} is {value}, expected {largest} at most.")
        if value % 1 > 1e-6:
            raise _invalid(f"Quota {key} must be a whole number, but is {value}.")


def _invalid(message: str) -> KafkaError:
    return KafkaError(message, ErrorCode.INVALID_REQUEST)
