"""The controller's plain requests in Kafka's words, for a controller that is on another node.

    in_words(CreateTopics(...), wait_ms) -> wire.request.Request, whose reader gives the plain reply

What handlers made of a client's request is said again here in one version, and handled there by the same handlers:
the plain form is what both ends have in common. Replies have a row for each thing that was asked for, in the order in
which it was asked for; an answer that leaves one out is taken as an error of that row.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, Final

from penstock.base.errors import KafkaError
from penstock.controlplane import broker_requests as brokers
from penstock.controlplane.controller_answers import (
    UNANSWERED,
    deposed,
    refusal_of,
    result_of,
    said,
    uuid_heard,
    uuid_said,
    wait_of,
)
from penstock.metadata import NO_UUID, Resource, Result
from penstock.metadata.controller import requests as r
from penstock.wire import Api
from penstock.wire.request import Request


def in_words(request: Any, wait_ms: float) -> Request[Any] | None:
    """The request as another node hears it; None for one that is for the controller's own process alone."""
    kind = type(request)
    if kind in _SAY:
        return _SAY[kind](request)
    return _SAY_WITH_TIME[kind](request, wait_ms) if kind in _SAY_WITH_TIME else None


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
            timeout=wait_of(wait_ms),
            validate_only=request.validate_only,
        )

    def understand(response: Any) -> tuple[r.CreatedTopic, ...] | KafkaError:
        rows = {row.name: row for row in response.topics}
        refusal = deposed(result_of(row) for row in rows.values())
        return refusal or tuple(_created(topic.name, rows.get(topic.name)) for topic in request.topics)

    # 7 tells the topic's id, by which it is known when the image has it.
    return said(Api.CREATE_TOPICS, 7, build, understand)


def _created(name: str, row: Any | None) -> r.CreatedTopic:
    if row is None:
        return r.CreatedTopic(name, UNANSWERED)
    return r.CreatedTopic(
        name, result_of(row), uuid_heard(row.topic_id), row.num_partitions, row.replication_factor
    )


def _delete_topics(request: r.DeleteTopics, wait_ms: float) -> Request[Any]:
    def build(make: Any) -> Any:
        named = [make.DeleteTopicState(name=name, topic_id=None) for name in request.names]
        by_id = [make.DeleteTopicState(name=None, topic_id=uuid_said(each)) for each in request.ids]
        return make.DeleteTopicsRequest(topics=(*named, *by_id), timeout=wait_of(wait_ms))

    def understand(response: Any) -> tuple[r.DeletedTopic, ...] | KafkaError:
        rows = [
            r.DeletedTopic(row.name, uuid_heard(row.topic_id), result_of(row)) for row in response.responses
        ]
        refusal = deposed(row.result for row in rows)
        if refusal is not None:
            return refusal
        named = {row.name: row for row in rows}
        by_id = {row.topic_id: row for row in rows}
        return (
            *(named.get(name, r.DeletedTopic(name, NO_UUID, UNANSWERED)) for name in request.names),
            *(by_id.get(each, r.DeletedTopic(None, each, UNANSWERED)) for each in request.ids),
        )

    # 6 has ids.
    return said(Api.DELETE_TOPICS, 6, build, understand)


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
            timeout=wait_of(wait_ms),
            validate_only=request.validate_only,
        )

    def understand(response: Any) -> tuple[r.TopicResult, ...] | KafkaError:
        results = {row.name: result_of(row) for row in response.results}
        return deposed(results.values()) or tuple(
            r.TopicResult(each.topic, results.get(each.topic, UNANSWERED)) for each in request.topics
        )

    return said(Api.CREATE_PARTITIONS, 0, build, understand)


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
            timeout=wait_of(wait_ms),
        )

    def understand(response: Any) -> tuple[r.ElectionResult, ...] | KafkaError:
        return refusal_of(response) or tuple(
            r.ElectionResult(topic.topic, row.partition_id, result_of(row))
            for topic in response.replica_election_results
            for row in topic.partition_result
        )

    # 1 has kinds of elections, and an error of the whole.
    return said(Api.ELECT_LEADERS, 1, build, understand)


def _alter_reassignments(request: r.AlterReassignments, wait_ms: float) -> Request[Any]:
    targets: dict[str, list[r.PartitionTarget]] = defaultdict(list)
    for target in request.targets:
        targets[target.topic].append(target)

    def build(make: Any) -> Any:
        return make.AlterPartitionReassignmentsRequest(
            timeout=wait_of(wait_ms),
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

    def understand(response: Any) -> tuple[r.ReassignmentResult, ...] | KafkaError:
        refusal = refusal_of(response)
        if refusal is not None:
            return refusal
        results = {
            (topic.name, row.partition_index): result_of(row)
            for topic in response.responses
            for row in topic.partitions
        }
        return tuple(
            r.ReassignmentResult(
                each.topic, each.partition, results.get((each.topic, each.partition), UNANSWERED)
            )
            for each in request.targets
        )

    # 1 can forbid another replication factor.
    version_min = 0 if request.allow_factor_change else 1
    return said(Api.ALTER_PARTITION_REASSIGNMENTS, version_min, build, understand)


def _list_reassignments(request: r.ListReassignments, wait_ms: float) -> Request[Any]:
    def build(make: Any) -> Any:
        wanted = None if request.partitions is None else _by_topic(request.partitions)
        return make.ListPartitionReassignmentsRequest(
            timeout=wait_of(wait_ms),
            topics=None
            if wanted is None
            else tuple(
                make.ListPartitionReassignmentsTopics(name=topic, partition_indexes=tuple(numbers))
                for topic, numbers in wanted.items()
            ),
        )

    def understand(response: Any) -> tuple[r.Reassignment, ...] | KafkaError:
        return refusal_of(response) or tuple(
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

    return said(Api.LIST_PARTITION_REASSIGNMENTS, 0, build, understand)


# -- settings and features -----------------------------------------------------------------------------


def _alter_configs(request: r.AlterConfigs) -> Request[Any]:
    def build(make: Any) -> Any:
        return make.AlterConfigsRequest(
            resources=tuple(
                make.AlterConfigsResource(
                    resource_type=resource.type,
                    resource_name=resource.name,
                    configs=tuple(
                        make.AlterableConfig(name=name, value=value) for name, value in values.items()
                    ),
                )
                for resource, values in request.resources.items()
            ),
            validate_only=request.validate_only,
        )

    return said(Api.ALTER_CONFIGS, 0, build, lambda response: _altered(request.resources, response))


def _incremental_alter_configs(request: r.IncrementalAlterConfigs) -> Request[Any]:
    def build(make: Any) -> Any:
        return make.IncrementalAlterConfigsRequest(
            resources=tuple(
                make.AlterConfigsResource(
                    resource_type=resource.type,
                    resource_name=resource.name,
                    configs=tuple(
                        make.AlterableConfig(name=each.name, config_operation=each.op, value=each.value)
                        for each in changes
                    ),
                )
                for resource, changes in request.resources.items()
            ),
            validate_only=request.validate_only,
        )

    return said(
        Api.INCREMENTAL_ALTER_CONFIGS, 0, build, lambda response: _altered(request.resources, response)
    )


def _altered(resources: Iterable[Resource], response: Any) -> dict[Resource, Result] | KafkaError:
    results = {Resource(row.resource_type, row.resource_name): result_of(row) for row in response.responses}
    return deposed(results.values()) or {each: results.get(each, UNANSWERED) for each in resources}


def _update_features(request: r.UpdateFeatures, wait_ms: float) -> Request[Any]:
    def build(make: Any) -> Any:
        return make.UpdateFeaturesRequest(
            timeout=wait_of(wait_ms),
            feature_updates=tuple(
                make.FeatureUpdateKey(
                    feature=each.name, max_version_level=each.level, upgrade_type=each.upgrade_type
                )
                for each in request.updates
            ),
            validate_only=request.validate_only,
        )

    def understand(response: Any) -> dict[str, Result] | KafkaError:
        return refusal_of(response) or {each.name: r.OK for each in request.updates}

    # 1 has the kinds of downgrades; what is refused, is refused as a whole.
    return said(Api.UPDATE_FEATURES, 1, build, understand)


_SAY_WITH_TIME: Final[dict[type, Callable[[Any, float], Request[Any]]]] = {
    r.CreateTopics: _create_topics,
    r.DeleteTopics: _delete_topics,
    r.CreatePartitions: _create_partitions,
    r.ElectLeaders: _elect_leaders,
    r.AlterReassignments: _alter_reassignments,
    r.ListReassignments: _list_reassignments,
    r.UpdateFeatures: _update_features,
}
"""Requests that say how long they wait."""

_SAY: Final[dict[type, Callable[[Any], Request[Any]]]] = {
    r.AlterConfigs: _alter_configs,
    r.IncrementalAlterConfigs: _incremental_alter_configs,
    r.RegisterBroker: brokers.register_broker,
    r.BrokerHeartbeat: brokers.broker_heartbeat,
    r.AlterPartition: brokers.alter_partition,
    r.AllocateProducerIds: brokers.allocate_producer_ids,
    r.RegisterController: brokers.register_controller,
    r.UnregisterBroker: brokers.unregister_broker,
}
