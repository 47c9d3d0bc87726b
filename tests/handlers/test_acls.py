"""ACLs created, described and deleted through a broker."""

from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from tests.handlers.cluster import Cluster

from penstock.base.errors import KafkaError
from penstock.metadata.acls import AclResourceType, Operation
from penstock.security.authorizer import Authorizer
from penstock.wire import Api

READS = {
    "resource_type": 2,
    "resource_name": "orders",
    "resource_pattern_type": 3,
    "principal": "User:alice",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}
FILTER = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}


@pytest.fixture
def guarded(cluster: Cluster) -> Cluster:
    cluster.context.authorizer = Authorizer(())
    return cluster


def described(cluster: Cluster, version: int = 3, **changes: Any) -> list[tuple[Any, ...]]:
    reply = cluster.call(Api.DESCRIBE_ACLS, version, **(FILTER | changes))
    assert reply.error_code is ErrorCode.none, reply
    return [
        (
            resource.resource_type,
            resource.resource_name,
            resource.pattern_type,
            acl.principal,
            acl.host,
            acl.operation,
            acl.permission_type,
        )
        for resource in reply.resources
        for acl in resource.acls
    ]


@pytest.mark.parametrize("version", [1, 2, 3])
def test_acls_come_and_go(guarded: Cluster, version: int) -> None:
    prefix = READS | {"resource_name": "ord", "resource_pattern_type": 4, "operation": 4}
    created = guarded.call(Api.CREATE_ACLS, version, creations=[READS, prefix])
    assert [each.error_code for each in created.results] == [ErrorCode.none, ErrorCode.none]
    of_reads = (2, "orders", 3, "User:alice", "*", 3, 3)
    of_prefix = (2, "ord", 4, "User:alice", "*", 4, 3)
    assert sorted(described(guarded, version)) == [of_prefix, of_reads]
    assert described(guarded, version, operation=4) == [of_prefix]
    deleted = guarded.call(Api.DELETE_ACLS, version, filters=[FILTER | {"operation": 3}, FILTER])
    first, second = deleted.filter_results
    assert [each.resource_name for each in first.matching_acls] == ["orders"]
    assert sorted(each.resource_name for each in second.matching_acls) == ["ord", "orders"]
    assert described(guarded, version) == []


def test_acls_of_one_resource_are_one_row(guarded: Cluster) -> None:
    writes = READS | {"operation": 4}
    guarded.call(Api.CREATE_ACLS, 3, creations=[READS, writes])
    reply = guarded.call(Api.DESCRIBE_ACLS, 3, **FILTER)
    [resource] = reply.resources
    assert [each.operation for each in resource.acls] == [3, 4]


def test_an_invalid_acl_is_named_and_the_others_are_created(guarded: Cluster) -> None:
    reply = guarded.call(Api.CREATE_ACLS, 3, creations=[READS | {"resource_name": ""}, READS])
    assert [each.error_code for each in reply.results] == [ErrorCode.invalid_request, ErrorCode.none]
    assert reply.results[0].error_message == "Invalid empty resource name"
    assert len(described(guarded)) == 1


@pytest.mark.parametrize("part", ["resource_type", "resource_pattern_type", "operation", "permission_type"])
def test_an_unknown_number_closes_the_connection(guarded: Cluster, part: str) -> None:
    with pytest.raises(KafkaError, match="unknown element"):
        guarded.call(Api.CREATE_ACLS, 3, creations=[READS | {part: 99}])
    name = {"resource_type": "resource_type_filter", "resource_pattern_type": "pattern_type_filter"}.get(
        part, part
    )
    with pytest.raises(KafkaError, match="unknown element"):
        guarded.call(Api.DESCRIBE_ACLS, 3, **(FILTER | {name: 99}))
    with pytest.raises(KafkaError, match="unknown element"):
        guarded.call(Api.DELETE_ACLS, 3, filters=[FILTER | {name: 99}])


def codes(cluster: Cluster) -> set[ErrorCode]:
    described = cluster.call(Api.DESCRIBE_ACLS, 3, **FILTER)
    [created] = cluster.call(Api.CREATE_ACLS, 3, creations=[READS]).results
    [deleted] = cluster.call(Api.DELETE_ACLS, 3, filters=[FILTER]).filter_results
    return {described.error_code, created.error_code, deleted.error_code}


def test_without_an_authorizer_security_is_disabled(cluster: Cluster) -> None:
    assert codes(cluster) == {ErrorCode.security_disabled}


def test_who_may_not_alter_or_describe_the_cluster_is_denied(guarded: Cluster) -> None:
    guarded.deny(Operation.ALTER, AclResourceType.CLUSTER)
    guarded.deny(Operation.DESCRIBE, AclResourceType.CLUSTER)
    assert codes(guarded) == {ErrorCode.cluster_authorization_failed}
    assert not guarded.image.acls
