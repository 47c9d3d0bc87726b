"""Converts the controller's requests to Kafka's wire requests, for a controller on another node.

    to_wire(CreateTopics(...), wait_ms) -> wire.request.Request, which parses the response into the controller's reply

Both ends run the same handlers, so each request is sent in one version. A reply has a row for each item of the
request, in the request's order; an item that the response leaves out gets `MISSING_RESULT`.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, Final

from penstock.controlplane import broker_requests as brokers
from penstock.controlplane import forwarding
from penstock.controlplane.wire_conversion import (
    MISSING_RESULT,
    check_is_controller,
    check_response,
    result_of,
    timeout_of,
    uuid_from_wire,
    uuid_to_wire,
    wire_request,
)
from penstock.metadata.acls import acl_of, creation_fields, filter_fields
from penstock.metadata.controller import requests as r
from penstock.metadata.controller.requests import Result
from penstock.metadata.image import Resource
from penstock.metadata.quotas import entity_of
from penstock.records.structs import NO_UUID
from penstock.wire import Api
from penstock.wire.request import Request


def to_wire(request: Any, wait_ms: float) -> Request[Any] | None:
    """The wire form of a request; None for a request that only the controller's own process may submit."""
    kind = type(request)
    if kind in _WITHOUT_TIMEOUT:
        return _WITHOUT_TIMEOUT[kind](request)
    return _WITH_TIMEOUT[kind](request, wait_ms) if kind in _WITH_TIMEOUT else None


# -- topics --------------------------------------------------------------------------------------------


def _create_topics(request: r.CreateTopics, wait_ms: float) -> Request[Any]:
    def build(make: Any) -> Any:
        return make.CreateTopicsRequest(
            topics=tuple(
                make.CreatableTopic(
                    name=topic.name,
                    num_partitions=topic.partitions,
                    replication_factor=topic.replication_factor,
                    assignments=tuple(
                        make.CreatableReplicaAssignment(partition_index=number, broker_ids=tuple(replicas))
                        for number, replicas in topic.assignments
                    ),
                    configs=tuple(
                        make.CreatableTopicConfig(name=name, value=value)
                        for name, value in topic.configs.items()
                    ),
                )
                for topic in request.topics
            ),
            timeout=timeout_of(wait_ms),
            validate_only=request.validate_only,
        )

    def parse(response: Any) -> tuple[r.CreatedTopic, ...]:
        rows = {row.name: row for row in response.topics}
        check_is_controller(result_of(row) for row in rows.values())
        return tuple(_created(topic.name, rows.get(topic.name)) for topic in request.topics)

    # Version 7 returns the topic id, which `image_wait` looks up in the image.
    return wire_request(Api.CREATE_TOPICS, 7, build, parse)


def _created(name: str, row: Any | None) -> r.CreatedTopic:
    if row is None:
        return r.CreatedTopic(name, MISSING_RESULT)
    return r.CreatedTopic(
        name, result_of(row), uuid_from_wire(row.topic_id), row.num_partitions, row.replication_factor
    )


def _delete_topics(request: r.DeleteTopics, wait_ms: float) -> Request[Any]:
    def build(make: Any) -> Any:
        named = [make.DeleteTopicState(name=name, topic_id=None) for name in request.names]
        by_id = [make.DeleteTopicState(name=None, topic_id=uuid_to_wire(each)) for each in request.ids]
        return make.DeleteTopicsRequest(topics=(*named, *by_id), timeout=timeout_of(wait_ms))

    def parse(response: Any) -> tuple[r.DeletedTopic, ...]:
        rows = [
            r.DeletedTopic(row.name, uuid_from_wire(row.topic_id), result_of(row))
            for row in response.responses
        ]
        check_is_controller(row.result for row in rows)
        named = {row.name: row for row in rows}
        by_id = {row.topic_id: row for row in rows}
        return (
            *(named.get(name, r.DeletedTopic(name, NO_UUID, MISSING_RESULT)) for name in request.names),
            *(by_id.get(each, r.DeletedTopic(None, each, MISSING_RESULT)) for each in request.ids),
        )

    # Version 6 has topic ids.
    return wire_request(Api.DELETE_TOPICS, 6, build, parse)


def _create_partitions(request: r.CreatePartitions, wait_ms: float) -> Request[Any]:
    def build(make: Any) -> Any:
        def assignments(topic: r.MorePartitions) -> tuple[Any, ...] | None:
            if topic.assignments is None:
                return None
            return tuple(
                make.CreatePartitionsAssignment(broker_ids=tuple(each)) for each in topic.assignments
            )

        return make.CreatePartitionsRequest(
            topics=tuple(
                make.CreatePartitionsTopic(name=each.topic, count=each.total, assignments=assignments(each))
                for each in request.topics
            ),
            timeout=timeout_of(wait_ms),
            validate_only=request.validate_only,
        )

    def parse(response: Any) -> tuple[r.TopicResult, ...]:
        results = {row.name: result_of(row) for row in response.results}
        check_is_controller(results.values())
        return tuple(
            r.TopicResult(each.topic, results.get(each.topic, MISSING_RESULT)) for each in request.topics
        )

    return wire_request(Api.CREATE_PARTITIONS, 0, build, parse)


# -- elections and reassignments -----------------------------------------------------------------------


def _by_topic(partitions: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    for topic, number in partitions:
        found[topic].append(number)
    return found


def _elect_leaders(request: r.ElectLeaders, wait_ms: float) -> Request[Any]:
    def build(make: Any) -> Any:
        wanted = None if request.partitions is None else _by_topic(request.partitions)
        return make.ElectLeadersRequest(
            election_type=request.election,
            topic_partitions=None
            if wanted is None
            else tuple(
                make.TopicPartitions(topic=topic, partitions=tuple(numbers))
                for topic, numbers in wanted.items()
            ),
            timeout=timeout_of(wait_ms),
        )

    def parse(response: Any) -> tuple[r.ElectionResult, ...]:
        check_response(response)
        return tuple(
            r.ElectionResult(topic.topic, row.partition_id, result_of(row))
            for topic in response.replica_election_results
            for row in topic.partition_result
        )

    # Version 1 has the election type and a top-level error.
    return wire_request(Api.ELECT_LEADERS, 1, build, parse)


def _alter_reassignments(request: r.AlterReassignments, wait_ms: float) -> Request[Any]:
    targets: dict[str, list[r.PartitionTarget]] = defaultdict(list)
    for target in request.targets:
        targets[target.topic].append(target)

    def build(make: Any) -> Any:
        return make.AlterPartitionReassignmentsRequest(
            timeout=timeout_of(wait_ms),
            allow_replication_factor_change=request.allow_factor_change,
            topics=tuple(
                make.ReassignableTopic(
                    name=topic,
                    partitions=tuple(
                        make.ReassignablePartition(partition_index=each.partition, replicas=each.replicas)
                        for each in rows
                    ),
                )
                for topic, rows in targets.items()
            ),
        )

    def parse(response: Any) -> tuple[r.ReassignmentResult, ...]:
        check_response(response)
        results = {
            (topic.name, row.partition_index): result_of(row)
            for topic in response.responses
            for row in topic.partitions
        }
        return tuple(
            r.ReassignmentResult(
                each.topic, each.partition, results.get((each.topic, each.partition), MISSING_RESULT)
            )
            for each in request.targets
        )

    # Version 1 can forbid a change of the replication factor.
    version_min = 0 if request.allow_factor_change else 1
    return wire_request(Api.ALTER_PARTITION_REASSIGNMENTS, version_min, build, parse)


def _list_reassignments(request: r.ListReassignments, wait_ms: float) -> Request[Any]:
    def build(make: Any) -> Any:
        wanted = None if request.partitions is None else _by_topic(request.partitions)
        return make.ListPartitionReassignmentsRequest(
            timeout=timeout_of(wait_ms),
            topics=None
            if wanted is None
            else tuple(
                make.ListPartitionReassignmentsTopics(name=topic, partition_indexes=tuple(numbers))
                for topic, numbers in wanted.items()
            ),
        )

    def parse(response: Any) -> tuple[r.Reassignment, ...]:
        check_response(response)
        return tuple(
            r.Reassignment(
                topic.name,
                row.partition_index,
                tuple(row.replicas),
                tuple(row.adding_replicas),
                tuple(row.removing_replicas),
            )
            for topic in response.topics
            for row in topic.partitions
        )

    return wire_request(Api.LIST_PARTITION_REASSIGNMENTS, 0, build, parse)


# -- settings and features -----------------------------------------------------------------------------


def _alter_configs(request: r.AlterConfigs) -> Request[Any]:
    def build(make: Any) -> Any:
        rows = {
            resource: [make.AlterableConfig(name=name, value=value) for name, value in values.items()]
            for resource, values in request.resources.items()
        }
        return make.AlterConfigsRequest(
            resources=_altered_resources(make, rows), validate_only=request.validate_only
        )

    return wire_request(Api.ALTER_CONFIGS, 0, build, lambda response: _altered(request.resources, response))


def _incremental_alter_configs(request: r.IncrementalAlterConfigs) -> Request[Any]:
    def build(make: Any) -> Any:
        rows = {
            resource: [
                make.AlterableConfig(name=each.name, config_operation=each.op, value=each.value)
                for each in changes
            ]
            for resource, changes in request.resources.items()
        }
        return make.IncrementalAlterConfigsRequest(
            resources=_altered_resources(make, rows), validate_only=request.validate_only
        )

    return wire_request(
        Api.INCREMENTAL_ALTER_CONFIGS, 0, build, lambda response: _altered(request.resources, response)
    )


def _altered_resources(make: Any, rows: dict[Resource, list[Any]]) -> tuple[Any, ...]:
    return tuple(
        make.AlterConfigsResource(
            resource_type=resource.type, resource_name=resource.name, configs=tuple(configs)
        )
        for resource, configs in rows.items()
    )


def _altered(resources: Iterable[Resource], response: Any) -> dict[Resource, Result]:
    results = {Resource(row.resource_type, row.resource_name): result_of(row) for row in response.responses}
    check_is_controller(results.values())
    return {each: results.get(each, MISSING_RESULT) for each in resources}


def _update_features(request: r.UpdateFeatures, wait_ms: float) -> Request[Any]:
    def build(make: Any) -> Any:
        return make.UpdateFeaturesRequest(
            timeout=timeout_of(wait_ms),
            feature_updates=tuple(
                make.FeatureUpdateKey(
                    feature=each.name, max_version_level=each.level, upgrade_type=each.upgrade_type
                )
                for each in request.updates
            ),
            validate_only=request.validate_only,
        )

    def parse(response: Any) -> dict[str, Result]:
        check_response(response)
        return {each.name: r.OK for each in request.updates}

    # Version 1 has the upgrade type. The controller applies all updates or none.
    return wire_request(Api.UPDATE_FEATURES, 1, build, parse)


# -- users ---------------------------------------------------------------------------------------------


def _alter_scram_users(request: r.AlterScramUsers) -> Request[Any]:
    def build(make: Any) -> Any:
        return make.AlterUserScramCredentialsRequest(
            deletions=tuple(
                make.ScramCredentialDeletion(name=each.user, mechanism=each.mechanism)
                for each in request.deletions
            ),
            upsertions=tuple(
                make.ScramCredentialUpsertion(
                    name=each.user,
                    mechanism=each.mechanism,
                    iterations=each.iterations,
                    salt=each.salt,
                    salted_password=each.salted_password,
                )
                for each in request.upsertions
            ),
        )

    def parse(response: Any) -> dict[str, Result]:
        results = {row.user: result_of(row) for row in response.results}
        check_is_controller(results.values())
        return {user: results.get(user, MISSING_RESULT) for user in request.users}

    return wire_request(Api.ALTER_USER_SCRAM_CREDENTIALS, 0, build, parse)


# -- ACLs ----------------------------------------------------------------------------------------------


def _create_acls(request: r.CreateAcls) -> Request[Any]:
    def build(make: Any) -> Any:
        return make.CreateAclsRequest(
            creations=tuple(make.AclCreation(**creation_fields(acl)) for acl in request.acls)
        )

    def parse(response: Any) -> tuple[Result, ...]:
        results = tuple(result_of(row) for row in response.results)
        check_is_controller(results)
        return results + (MISSING_RESULT,) * (len(request.acls) - len(results))

    return wire_request(Api.CREATE_ACLS, 3, build, parse)


def _delete_acls(request: r.DeleteAcls) -> Request[Any]:
    def build(make: Any) -> Any:
        return make.DeleteAclsRequest(
            filters=tuple(make.DeleteAclsFilter(**filter_fields(each)) for each in request.filters)
        )

    def parse(response: Any) -> tuple[r.DeletedAcls, ...]:
        check_is_controller(result_of(row) for row in response.filter_results)
        for row in response.filter_results:
            check_response(row)  # the controller deletes for all filters or for none
        return tuple(
            r.DeletedAcls(tuple(acl_of(acl, acl) for acl in row.matching_acls))
            for row in response.filter_results
        )

    return wire_request(Api.DELETE_ACLS, 3, build, parse)


# -- quotas --------------------------------------------------------------------------------------------


def _alter_client_quotas(request: r.AlterClientQuotas) -> Request[Any]:
    def build(make: Any) -> Any:
        return make.AlterClientQuotasRequest(
            entries=tuple(
                make.EntryData(
                    entity=tuple(
                        make.EntityData(entity_type=kind, entity_name=name) for kind, name in entity
                    ),
                    ops=tuple(
                        make.OpData(key=key, value=0.0 if value is None else value, remove=value is None)
                        for key, value in changes
                    ),
                )
                for entity, changes in request.alterations
            ),
            validate_only=request.validate_only,
        )

    def parse(response: Any) -> tuple[Result, ...]:
        results = {
            entity_of({each.entity_type: each.entity_name for each in row.entity}): result_of(row)
            for row in response.entries
        }
        check_is_controller(results.values())
        return tuple(results.get(each.entity, MISSING_RESULT) for each in request.alterations)

    return wire_request(Api.ALTER_CLIENT_QUOTAS, 1, build, parse)


_WITH_TIMEOUT: Final[dict[type, Callable[[Any, float], Request[Any]]]] = {
    r.CreateTopics: _create_topics,
    r.DeleteTopics: _delete_topics,
    r.CreatePartitions: _create_partitions,
    r.ElectLeaders: _elect_leaders,
    r.AlterReassignments: _alter_reassignments,
    r.ListReassignments: _list_reassignments,
    r.UpdateFeatures: _update_features,
}
"""Requests with a timeout field."""

_WITHOUT_TIMEOUT: Final[dict[type, Callable[[Any], Request[Any]]]] = {
    r.AlterConfigs: _alter_configs,
    r.CreateAcls: _create_acls,
    r.DeleteAcls: _delete_acls,
    r.AlterClientQuotas: _alter_client_quotas,
    r.CreateDelegationToken: forwarding.create_delegation_token,
    r.RenewDelegationToken: forwarding.renew_delegation_token,
    r.ExpireDelegationToken: forwarding.expire_delegation_token,
    r.IncrementalAlterConfigs: _incremental_alter_configs,
    r.AlterScramUsers: _alter_scram_users,
    r.RegisterBroker: brokers.register_broker,
    r.BrokerHeartbeat: brokers.broker_heartbeat,
    r.AlterPartition: brokers.alter_partition,
    r.AllocateProducerIds: brokers.allocate_producer_ids,
    r.RegisterController: brokers.register_controller,
    r.UnregisterBroker: brokers.unregister_broker,
}
