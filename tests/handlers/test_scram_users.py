"""AlterUserScramCredentials and DescribeUserScramCredentials."""

from typing import Any

from kio.schema.errors import ErrorCode
from tests.handlers.cluster import Cluster

from penstock.metadata.acls import AclResourceType, Operation
from penstock.wire import Api


def upsertion(name: str, mechanism: int = 1, iterations: int = 4096) -> dict[str, Any]:
    return {
        "name": name,
        "mechanism": mechanism,
        "iterations": iterations,
        "salt": b"salt",
        "salted_password": b"salted",
    }


def alter(cluster: Cluster, *upsertions: dict[str, Any], deletions: Any = ()) -> dict[str, Any]:
    reply = cluster.call(
        Api.ALTER_USER_SCRAM_CREDENTIALS, 0, deletions=list(deletions), upsertions=list(upsertions)
    )
    return {each.user: (each.error_code, each.error_message) for each in reply.results}


def describe(cluster: Cluster, *names: str) -> Any:
    users = [{"name": name} for name in names] or None
    return cluster.call(Api.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=users)


def rows(reply: Any) -> dict[str, list[tuple[int, int]]]:
    return {
        each.user: [(info.mechanism, info.iterations) for info in each.credential_infos]
        for each in reply.results
    }


def test_users_are_set_described_and_removed(cluster: Cluster) -> None:
    done = (ErrorCode.none, None)
    assert alter(cluster, upsertion("alice"), upsertion("bob", 2, 8192)) == {"alice": done, "bob": done}
    alter(cluster, upsertion("alice", 2))
    everyone = {"alice": [(1, 4096), (2, 4096)], "bob": [(2, 8192)]}
    assert rows(describe(cluster)) == everyone
    assert rows(describe(cluster, "bob")) == {"bob": [(2, 8192)]}
    assert alter(cluster, deletions=[{"name": "bob", "mechanism": 2}]) == {"bob": done}
    assert rows(describe(cluster)) == {"alice": [(1, 4096), (2, 4096)]}


def test_unknown_and_repeated_users_have_kafkas_codes_and_words(cluster: Cluster) -> None:
    alter(cluster, upsertion("alice"))
    reply = describe(cluster, "alice", "bob", "alice")
    assert reply.error_code is ErrorCode.none
    assert [(each.user, each.error_code, each.error_message) for each in reply.results] == [
        (
            "alice",
            ErrorCode.duplicate_resource,
            "Cannot describe SCRAM credentials for the same user twice in a single request: alice",
        ),
        (
            "bob",
            ErrorCode.resource_not_found,
            "Attempt to describe a user credential that does not exist: bob",
        ),
    ]
    assert alter(cluster, upsertion("carol", 9))["carol"][0] is ErrorCode.unsupported_sasl_mechanism


def test_users_are_described_and_changed_only_with_the_permission(cluster: Cluster) -> None:
    alter(cluster, upsertion("alice"))
    cluster.deny(Operation.ALTER, AclResourceType.CLUSTER)
    cluster.deny(Operation.DESCRIBE, AclResourceType.CLUSTER)
    assert (
        alter(cluster, upsertion("alice", iterations=1))["alice"][0] is ErrorCode.cluster_authorization_failed
    )
    reply = describe(cluster)
    assert reply.error_code is ErrorCode.cluster_authorization_failed
    assert reply.results == ()


def test_no_changes_need_no_controller(cluster: Cluster) -> None:
    assert alter(cluster) == {}
    assert cluster.port.asked == []
