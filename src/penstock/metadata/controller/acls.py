"""Creates and deletes ACLs."""

from typing import Final

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import Uuid
from penstock.base.outcome import Outcome
from penstock.metadata.acls import (
    CLUSTER_NAME,
    Acl,
    AclFilter,
    AclResourceType,
    Operation,
    PatternType,
    Permission,
)
from penstock.metadata.image import ClusterImage
from penstock.metadata.records import AnyRecord, RemoveAccessControlEntryRecord
from penstock.metadata.snapshot import acl_record

from .requests import OK, CreateAcls, DeleteAcls, DeletedAcls, Result, refused
from .view import ControllerView

CHANGES_MAX: Final = 10_000
"""ACLs that one request may create or delete, as in Kafka."""

COMPARISONS_MAX: Final = 1_000_000
"""Filters of one request, times the ACLs that each has to be compared with."""


def create_acls(view: ControllerView, request: CreateAcls) -> Outcome[tuple[Result, ...]]:
    """An ACL that exists already is created without a record."""
    held = view.image.acl_ids
    records: dict[Acl, AnyRecord] = {}
    results = []
    for acl in request.acls:
        try:
            _check(acl)
        except KafkaError as error:
            results.append(refused(error))
            continue
        results.append(OK)
        if acl.key not in held and acl not in records:
            records[acl] = acl_record(view.rng.randbytes(16), acl)
    _check_count(len(records))
    return Outcome(tuple(results), tuple(records.values()))


def _check(acl: Acl) -> None:
    """The order of the checks is Kafka's."""
    if acl.resource_type is AclResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
        raise _invalid(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not acl.resource_name:
        raise _invalid("Invalid empty resource name")
    if acl.resource_type in (AclResourceType.UNKNOWN, AclResourceType.ANY):
        raise _invalid(f"Invalid resourceType {acl.resource_type.name}")
    if acl.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise _invalid(f"Invalid patternType {acl.pattern_type.name}")
    if acl.operation in (Operation.UNKNOWN, Operation.ANY):
        raise _invalid(f"Invalid operation {acl.operation.name}")
    if acl.permission not in (Permission.DENY, Permission.ALLOW):
        raise _invalid(f"Invalid permissionType {acl.permission.name}")
    if ":" not in acl.principal:
        raise _invalid(
            f"Could not parse principal from `{acl.principal}`: expected TYPE:NAME, such as User:alice"
        )


def _invalid(message: str) -> KafkaError:
    return KafkaError(message, ErrorCode.INVALID_REQUEST)


def delete_acls(view: ControllerView, request: DeleteAcls) -> Outcome[tuple[DeletedAcls, ...]]:
    """An ACL that several filters match is in the result of each."""
    held = view.image.acls
    broad = sum(each.as_acl is None for each in request.filters)
    if broad * len(held) > COMPARISONS_MAX and broad > 1:
        raise _invalid(f"{broad} filters that may match several ACLs are too many for {len(held)} ACLs")
    found = [_matching(each, view.image) for each in request.filters]
    deleted = tuple(DeletedAcls(tuple(acl for _, acl in each)) for each in found)
    ids = {acl_id: None for each in found for acl_id, _ in each}
    _check_count(len(ids))
    return Outcome(deleted, tuple(RemoveAccessControlEntryRecord(id=each) for each in ids))


def _matching(acl_filter: AclFilter, image: ClusterImage) -> list[tuple[Uuid, Acl]]:
    exact = acl_filter.as_acl
    if exact is not None:
        acl_id = image.acl_ids.get(exact.key)
        return [] if acl_id is None else [(acl_id, exact)]
    return [each for each in image.acls.entries() if acl_filter.matches(each[1])]


def _check_count(count: int) -> None:
    if count > CHANGES_MAX:
        raise _invalid(f"The request changes {count} ACLs, expected {CHANGES_MAX} at most")
