"""Describes, creates and deletes ACLs."""

from collections.abc import Sequence
from typing import Any

from penstock.metadata.acls import Acl, AclFilter, AclResourceType, Operation, PatternType, Permission
from penstock.wire import Api
from penstock.wire.request import through_kio

from .admin import error_of, worst_code
from .cluster import Cluster


def describe_acls(cluster: Cluster, acl_filter: AclFilter) -> list[Acl]:
    def build(make: Any) -> Any:
        return make.DescribeAclsRequest(**_fields(acl_filter))

    reply = cluster.ask_any(through_kio(Api.DESCRIBE_ACLS, build))
    _check("ACLs", reply)
    return sorted(
        Acl(
            AclResourceType(resource.resource_type),
            resource.resource_name,
            PatternType(resource.pattern_type),
            each.principal,
            each.host,
            Operation(each.operation),
            Permission(each.permission_type),
        )
        for resource in reply.resources
        for each in resource.acls
    )


def create_acls(cluster: Cluster, acls: Sequence[Acl]) -> None:
    """Create ACLs. Raises the error of the first that is refused; the others are created."""

    def build(make: Any) -> Any:
        return make.CreateAclsRequest(
            creations=tuple(
                make.AclCreation(
                    resource_type=acl.resource_type,
                    resource_name=acl.resource_name,
                    resource_pattern_type=acl.pattern_type,
                    principal=acl.principal,
                    host=acl.host,
                    operation=acl.operation,
                    permission_type=acl.permission,
                )
                for acl in acls
            )
        )

    request = through_kio(Api.CREATE_ACLS, build)
    reply = cluster.ask_controller(request, worst_code(lambda reply: reply.results))
    for acl, result in zip(acls, reply.results, strict=True):
        _check(str(acl), result)


def delete_acls(cluster: Cluster, acl_filter: AclFilter) -> list[Acl]:
    """Delete the ACLs that a filter matches, and return them."""

    def build(make: Any) -> Any:
        return make.DeleteAclsRequest(filters=(make.DeleteAclsFilter(**_fields(acl_filter)),))

    request = through_kio(Api.DELETE_ACLS, build)
    reply = cluster.ask_controller(request, worst_code(lambda reply: reply.filter_results))
    [result] = reply.filter_results
    _check("ACLs", result)
    return sorted(
        Acl(
            AclResourceType(each.resource_type),
            each.resource_name,
            PatternType(each.pattern_type),
            each.principal,
            each.host,
            Operation(each.operation),
            Permission(each.permission_type),
        )
        for each in result.matching_acls
    )


def _fields(acl_filter: AclFilter) -> dict[str, Any]:
    return {
        "resource_type_filter": acl_filter.resource_type,
        "resource_name_filter": acl_filter.resource_name,
        "pattern_type_filter": acl_filter.pattern_type,
        "principal_filter": acl_filter.principal,
        "host_filter": acl_filter.host,
        "operation": acl_filter.operation,
        "permission_type": acl_filter.permission,
    }


def _check(what: str, result: Any) -> None:
    error = error_of(what, result)
    if error is not None:
        raise error
