"""Describes, creates and deletes ACLs."""

from collections.abc import Sequence
from typing import Any

from penstock.metadata.acls import Acl, AclFilter, acl_of, creation_fields, filter_fields
from penstock.wire import Api
from penstock.wire.request import through_kio

from .admin import error_of, worst_code
from .cluster import Cluster


def describe_acls(cluster: Cluster, acl_filter: AclFilter) -> list[Acl]:
    def build(make: Any) -> Any:
        return make.DescribeAclsRequest(**filter_fields(acl_filter))

    reply = cluster.ask_any(through_kio(Api.DESCRIBE_ACLS, build))
    _check("ACLs", reply)
    return sorted(acl_of(resource, each) for resource in reply.resources for each in resource.acls)


def create_acls(cluster: Cluster, acls: Sequence[Acl]) -> None:
    """Create ACLs. Raises the error of the first that is refused; the others are created."""

    def build(make: Any) -> Any:
        return make.CreateAclsRequest(
            creations=tuple(make.AclCreation(**creation_fields(acl)) for acl in acls)
        )

    request = through_kio(Api.CREATE_ACLS, build)
    reply = cluster.ask_controller(request, worst_code(lambda reply: reply.results))
    for acl, result in zip(acls, reply.results, strict=True):
        _check(str(acl), result)


def delete_acls(cluster: Cluster, acl_filter: AclFilter) -> list[Acl]:
    """Delete the ACLs that a filter matches, and return them."""

    def build(make: Any) -> Any:
        return make.DeleteAclsRequest(filters=(make.DeleteAclsFilter(**filter_fields(acl_filter)),))

    request = through_kio(Api.DELETE_ACLS, build)
    reply = cluster.ask_controller(request, worst_code(lambda reply: reply.filter_results))
    [result] = reply.filter_results
    _check("ACLs", result)
    return sorted(acl_of(each, each) for each in result.matching_acls)


def _check(what: str, result: Any) -> None:
    error = error_of(what, result)
    if error is not None:
        raise error
