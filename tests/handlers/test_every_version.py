"""Every administrative API in every version that is served: asked over the wire, answered so that it can be read."""

from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from tests.handlers.cluster import Cluster

from penstock.base.errors import ErrorCode as Code
from penstock.base.errors import KafkaError
from penstock.handlers.support.api_table import SERVED
from penstock.metadata.acls import AclResourceType, Operation
from penstock.metadata.versions import METADATA_VERSION_LATEST
from penstock.wire import KAFKA_RANGES, Api
from penstock.wire.catalogue import BROKER_APIS

REQUESTS: dict[Api, dict[str, Any]] = {
    Api.METADATA: {
        "topics": [{"name": "t"}, {"name": "new"}, {"name": "not a name"}],
        "allow_auto_topic_creation": True,
        "include_topic_authorized_operations": True,
        "include_cluster_authorized_operations": True,
    },
    Api.DESCRIBE_TOPIC_PARTITIONS: {
        "topics": [{"name": "t"}, {"name": "missing"}],
        "response_partition_limit": 1,
        "cursor": {"topic_name": "missing", "partition_index": 0},
    },
    Api.CREATE_TOPICS: {
        "topics": [
            {
                "name": "a",
                "num_partitions": 1,
                "replication_factor": 1,
                "configs": [{"name": "retention.ms", "value": "5"}],
            },
            {
                "name": "b",
                "num_partitions": -1,
                "replication_factor": -1,
                "assignments": [{"partition_index": 0, "broker_ids": [1]}],
            },
            {"name": "t", "num_partitions": 1, "replication_factor": 1},
        ]
    },
    Api.DELETE_TOPICS: {"topic_names": ["t", "missing"], "topics": [{"name": "t"}, {"name": "missing"}]},
    Api.CREATE_PARTITIONS: {
        "topics": [
            {"name": "t", "count": 4, "assignments": None},
            {"name": "missing", "count": 4, "assignments": []},
        ]
    },
    Api.DESCRIBE_CONFIGS: {
        "resources": [
            {"resource_type": 2, "resource_name": "t", "configuration_keys": None},
            {"resource_type": 4, "resource_name": "1", "configuration_keys": None},
            {"resource_type": 4, "resource_name": "", "configuration_keys": None},
            {"resource_type": 2, "resource_name": "missing", "configuration_keys": ["retention.ms"]},
        ],
        "include_synonyms": True,
        "include_documentation": True,
    },
    Api.ALTER_CONFIGS: {
        "resources": [
            {"resource_type": 2, "resource_name": "t", "configs": [{"name": "retention.ms", "value": "5"}]},
            {"resource_type": 2, "resource_name": "missing", "configs": []},
        ]
    },
    Api.INCREMENTAL_ALTER_CONFIGS: {
        "resources": [
            {
                "resource_type": 2,
                "resource_name": "t",
                "configs": [{"name": "retention.ms", "config_operation": 0, "value": "5"}],
            },
            {"resource_type": 2, "resource_name": "missing", "configs": []},
        ]
    },
    Api.LIST_CONFIG_RESOURCES: {"resource_types": []},
    Api.DESCRIBE_CLUSTER: {"include_cluster_authorized_operations": True, "include_fenced_brokers": True},
    Api.DESCRIBE_QUORUM: {
        "topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
    },
    Api.UPDATE_FEATURES: {
        "feature_updates": [
            {
                "feature": "metadata.version",
                "max_version_level": METADATA_VERSION_LATEST,
                "upgrade_type": 1,
                "allow_downgrade": False,
            }
        ]
    },
    Api.INIT_PRODUCER_ID: {"transactional_id": None},
    Api.ALTER_PARTITION_REASSIGNMENTS: {
        "topics": [
            {
                "name": "t",
                "partitions": [
                    {"partition_index": 0, "replicas": [1]},
                    {"partition_index": 1, "replicas": None},
                ],
            },
            {"name": "missing", "partitions": [{"partition_index": 0, "replicas": [1]}]},
        ]
    },
    Api.LIST_PARTITION_REASSIGNMENTS: {"topics": [{"name": "t", "partition_indexes": [0]}]},
    Api.ELECT_LEADERS: {
        "election_type": 0,
        "topic_partitions": [{"topic": "t", "partitions": [0]}, {"topic": "missing", "partitions": [0]}],
    },
    Api.UNREGISTER_BROKER: {"broker_id": 1},
}
"""Each with something that goes well, and mostly something that does not."""

EVERY_VERSION = [
    (api, version) for api in REQUESTS for version in range(KAFKA_RANGES[api].min, KAFKA_RANGES[api].max + 1)
]


TESTED_IN = {
    "handlers/test_acls.py": {Api.DESCRIBE_ACLS, Api.CREATE_ACLS, Api.DELETE_ACLS},
    "handlers/test_client_quotas.py": {Api.DESCRIBE_CLIENT_QUOTAS, Api.ALTER_CLIENT_QUOTAS},
    "handlers/test_find_coordinator.py": {Api.FIND_COORDINATOR},
    "handlers/test_group_versions.py": {
        Api.JOIN_GROUP,
        Api.SYNC_GROUP,
        Api.HEARTBEAT,
        Api.LEAVE_GROUP,
        Api.OFFSET_COMMIT,
        Api.OFFSET_FETCH,
        Api.OFFSET_DELETE,
        Api.LIST_GROUPS,
        Api.DESCRIBE_GROUPS,
        Api.DELETE_GROUPS,
        Api.CONSUMER_GROUP_HEARTBEAT,
        Api.CONSUMER_GROUP_DESCRIBE,
    },
    "handlers/test_list_offsets.py": {Api.LIST_OFFSETS, Api.OFFSET_FOR_LEADER_EPOCH},
    "handlers/test_log_admin.py": {Api.DELETE_RECORDS, Api.DESCRIBE_LOG_DIRS, Api.DESCRIBE_PRODUCERS},
    "handlers/test_raft.py": {Api.ADD_RAFT_VOTER, Api.REMOVE_RAFT_VOTER},
    "handlers/test_scram_users.py": {Api.DESCRIBE_USER_SCRAM_CREDENTIALS, Api.ALTER_USER_SCRAM_CREDENTIALS},
    "handlers/test_transactions.py": {
        Api.ADD_PARTITIONS_TO_TXN,
        Api.ADD_OFFSETS_TO_TXN,
        Api.TXN_OFFSET_COMMIT,
        Api.END_TXN,
        Api.WRITE_TXN_MARKERS,
        Api.LIST_TRANSACTIONS,
        Api.DESCRIBE_TRANSACTIONS,
    },
    "gateway/peer_rpc/test_service.py": {Api.ENVELOPE},
    "server/test_delegation_tokens.py": {
        Api.CREATE_DELEGATION_TOKEN,
        Api.RENEW_DELEGATION_TOKEN,
        Api.EXPIRE_DELEGATION_TOKEN,
        Api.DESCRIBE_DELEGATION_TOKEN,
    },
    "server/test_sasl.py": {Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE},
}
"""APIs that other modules test, because they need coordinators, records or log-ins."""


def test_every_api_has_a_request_here_or_is_tested_elsewhere() -> None:
    elsewhere = [api for apis in TESTED_IN.values() for api in apis]
    assert sorted([*REQUESTS, *elsewhere]) == sorted(SERVED)
    assert all(SERVED[api][0] == KAFKA_RANGES[api] for api in SERVED)
    assert set(SERVED) - BROKER_APIS == {Api.ENVELOPE}  # between the gateways of brokers
    for path, apis in TESTED_IN.items():
        source = (Path(__file__).parents[1] / path).read_text()
        assert not [api.name for api in apis if f"Api.{api.name}" not in source]


@pytest.mark.parametrize(
    ("api", "version"), EVERY_VERSION, ids=lambda each: str(getattr(each, "label", each))
)
def test_it_is_answered_in_every_version(api: Api, version: int, cluster: Cluster) -> None:
    cluster.create("t", (1,), (1,))
    reply = cluster.call(api, version, **REQUESTS[api])
    fine = ErrorCode.election_not_needed if api is Api.ELECT_LEADERS else ErrorCode.none
    assert fine in codes_in(reply) or not codes_in(reply)
    assert ErrorCode.unknown_server_error not in codes_in(reply)


@pytest.mark.parametrize(
    ("api", "version"), EVERY_VERSION, ids=lambda each: str(getattr(each, "label", each))
)
def test_it_is_answered_where_the_controller_refuses_everything(
    api: Api, version: int, cluster: Cluster
) -> None:
    cluster.create("t", (1,), (1,))
    cluster.port.refusal = KafkaError("this is not the controller", Code.NOT_CONTROLLER)
    reply = cluster.call(api, version, **REQUESTS[api])
    expected = {
        Api.METADATA: ErrorCode.unknown_topic_or_partition,
        Api.INIT_PRODUCER_ID: ErrorCode.coordinator_load_in_progress,
    }.get(api, ErrorCode.not_controller)
    assert expected in codes_in(reply) or not cluster.port.asked


@pytest.mark.parametrize(
    ("api", "version"), EVERY_VERSION, ids=lambda each: str(getattr(each, "label", each))
)
def test_it_is_answered_once_where_the_controller_is_too_late(
    api: Api, version: int, cluster: Cluster
) -> None:
    cluster.create("t", (1,), (1,))
    cluster.port.hold()
    later = cluster.ask(api, version, **REQUESTS[api])
    if not cluster.port.asked:
        assert later.is_settled
        return
    assert not later.is_settled
    cluster.world.run_until_idle()
    expected = {
        Api.METADATA: ErrorCode.unknown_topic_or_partition,
        Api.INIT_PRODUCER_ID: ErrorCode.coordinator_load_in_progress,
    }.get(api, ErrorCode.request_timed_out)
    assert expected in codes_in(later.value)
    cluster.port.release()
    cluster.world.run_until_idle()


@pytest.mark.parametrize(
    ("api", "version"), EVERY_VERSION, ids=lambda each: str(getattr(each, "label", each))
)
def test_it_is_answered_in_time_where_the_controller_takes_a_while(
    api: Api, version: int, cluster: Cluster
) -> None:
    cluster.create("t", (1,), (1,))
    cluster.port.hold()
    later = cluster.ask(api, version, **REQUESTS[api])
    cluster.port.release()
    assert later.is_settled
    assert ErrorCode.request_timed_out not in codes_in(later.value)
    assert cluster.world.is_idle, "the timer of an answered request is gone"


@pytest.mark.parametrize(
    ("api", "version"), EVERY_VERSION, ids=lambda each: str(getattr(each, "label", each))
)
def test_a_client_without_permissions_gets_an_error_and_changes_nothing(
    api: Api, version: int, cluster: Cluster
) -> None:
    cluster.create("t", (1,), (1,))
    before = cluster.image
    for operation in Operation:
        for on in AclResourceType:
            cluster.deny(operation, on)
    reply = cluster.call(api, version, **REQUESTS[api])
    open_to_all = (Api.DESCRIBE_CLUSTER,)
    found = codes_in(reply)
    if api not in open_to_all:
        denials = {ErrorCode.topic_authorization_failed, ErrorCode.cluster_authorization_failed}
        assert found & denials
        assert found <= denials | {ErrorCode.none, ErrorCode.invalid_topic_exception}
    assert not cluster.port.asked
    assert cluster.image is before


def codes_in(entity: Any) -> set[ErrorCode]:
    """Every error code anywhere in a response."""
    if isinstance(entity, ErrorCode):
        return {entity}
    if isinstance(entity, tuple):
        return set().union(*(codes_in(each) for each in entity))
    names = getattr(entity, "__dataclass_fields__", ())
    return set().union(*(codes_in(getattr(entity, name)) for name in names))
