"""Wire forms of the requests nodes send on their own behalf: registrations, heartbeats, ISR changes, producer ids."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from penstock.base.errors import ErrorCode
from penstock.controlplane.wire_conversion import (
    MISSING_RESULT,
    check_response,
    error_code_of,
    uuid_from_wire,
    uuid_to_wire,
    wire_request,
)
from penstock.metadata.controller.requests import (
    AllocateProducerIds,
    AlterPartition,
    BrokerHeartbeat,
    HeartbeatReply,
    IsrChange,
    IsrChanged,
    ProducerIdBlock,
    RegisterBroker,
    RegisterController,
    Result,
    UnregisterBroker,
)
from penstock.metadata.records import Endpoint, SupportedFeature
from penstock.wire import Api, RequestRejected
from penstock.wire.request import Request


def register_broker(request: RegisterBroker) -> Request[Any]:
    def build(make: Any) -> Any:
        return make.BrokerRegistrationRequest(
            broker_id=request.broker_id,
            cluster_id=request.cluster_id,
            incarnation_id=uuid_to_wire(request.incarnation_id),
            listeners=_listeners(make, request.endpoints),
            features=_features(make, request.features),
            rack=request.rack,
            is_migrating_zk_broker=False,
            log_dirs=tuple(uuid_to_wire(each) for each in request.log_dirs),
            previous_broker_epoch=request.previous_epoch,
        )

    def parse(response: Any) -> int:
        if error_code_of(response) is ErrorCode.INCONSISTENT_CLUSTER_ID:
            raise RequestRejected(
                f"the data directory belongs to cluster {request.cluster_id}, but the configured controllers belong "
                "to another cluster"
                if request.cluster_id
                else "the data directory is new, and the cluster's metadata does not contain its id: set cluster.id "
                "to the controllers' value",
                ErrorCode.INCONSISTENT_CLUSTER_ID,
            )
        check_response(response)
        return int(response.broker_epoch)

    # Version 3 has the previous broker epoch, without which every restart counts as unclean.
    return wire_request(Api.BROKER_REGISTRATION, 3, build, parse)


def _listeners(make: Any, endpoints: Sequence[Endpoint]) -> tuple[Any, ...]:
    return tuple(
        make.Listener(
            name=each.name, host=each.host, port=each.port, security_protocol=each.security_protocol
        )
        for each in endpoints
    )


def _features(make: Any, features: Sequence[SupportedFeature]) -> tuple[Any, ...]:
    return tuple(
        make.Feature(
            name=each.name, min_supported_version=each.min_level, max_supported_version=each.max_level
        )
        for each in features
    )


def broker_heartbeat(request: BrokerHeartbeat) -> Request[Any]:
    def build(make: Any) -> Any:
        cordoned = request.cordoned_dirs
        return make.BrokerHeartbeatRequest(
            broker_id=request.broker_id,
            broker_epoch=request.broker_epoch,
            current_metadata_offset=request.metadata_offset,
            want_fence=request.want_fence,
            want_shut_down=request.want_shutdown,
            offline_log_dirs=tuple(uuid_to_wire(each) for each in request.offline_dirs),
            cordoned_log_dirs=None if cordoned is None else tuple(uuid_to_wire(each) for each in cordoned),
        )

    def parse(response: Any) -> HeartbeatReply:
        check_response(response)
        return HeartbeatReply(response.is_caught_up, response.is_fenced, response.should_shut_down)

    # Version 1 has offline directories, version 2 cordoned ones.
    return wire_request(Api.BROKER_HEARTBEAT, 1 if request.cordoned_dirs is None else 2, build, parse)


def alter_partition(request: AlterPartition) -> Request[Any]:
    topics: dict[bytes, list[IsrChange]] = defaultdict(list)
    for change in request.changes:
        topics[change.topic_id].append(change)

    def build(make: Any) -> Any:
        def partition(change: IsrChange) -> Any:
            return make.PartitionData(
                partition_index=change.partition,
                leader_epoch=change.leader_epoch,
                new_isr_with_epochs=tuple(
                    make.BrokerState(broker_id=each.broker_id, broker_epoch=each.broker_epoch)
                    for each in change.isr
                ),
                leader_recovery_state=change.recovery_state,
                partition_epoch=change.partition_epoch,
            )

        return make.AlterPartitionRequest(
            broker_id=request.broker_id,
            broker_epoch=request.broker_epoch,
            topics=tuple(
                make.TopicData(topic_id=uuid_to_wire(topic_id), partitions=tuple(map(partition, changes)))
                for topic_id, changes in topics.items()
            ),
        )

    def parse(response: Any) -> tuple[IsrChanged, ...]:
        check_response(response)
        found = {
            (uuid_from_wire(topic.topic_id), row.partition_index): row
            for topic in response.topics
            for row in topic.partitions
        }
        return tuple(
            _isr_changed(each, found.get((each.topic_id, each.partition))) for each in request.changes
        )

    # Version 3 has the broker epochs of the ISR, so that a restarted broker is not mistaken for its previous
    # incarnation (KIP-903).
    return wire_request(Api.ALTER_PARTITION, 3, build, parse)


def _isr_changed(change: IsrChange, row: Any | None) -> IsrChanged:
    if row is None:
        return IsrChanged(change.topic_id, change.partition, MISSING_RESULT)
    code = error_code_of(row)
    if code:
        return IsrChanged(
            change.topic_id, change.partition, Result(code, f"the controller returned {code.name}")
        )
    return IsrChanged(
        change.topic_id,
        change.partition,
        Result(),
        row.leader_id,
        row.leader_epoch,
        tuple(row.isr),
        row.leader_recovery_state,
        row.partition_epoch,
    )


def allocate_producer_ids(request: AllocateProducerIds) -> Request[Any]:
    def build(make: Any) -> Any:
        return make.AllocateProducerIdsRequest(broker_id=request.broker_id, broker_epoch=request.broker_epoch)

    def parse(response: Any) -> ProducerIdBlock:
        check_response(response)
        return ProducerIdBlock(response.producer_id_start, response.producer_id_len)

    return wire_request(Api.ALLOCATE_PRODUCER_IDS, 0, build, parse)


def register_controller(request: RegisterController) -> Request[Any]:
    def build(make: Any) -> Any:
        return make.ControllerRegistrationRequest(
            controller_id=request.controller_id,
            incarnation_id=uuid_to_wire(request.incarnation_id),
            zk_migration_ready=False,
            listeners=_listeners(make, request.endpoints),
            features=_features(make, request.features),
        )

    return wire_request(Api.CONTROLLER_REGISTRATION, 0, build, check_response)


def unregister_broker(request: UnregisterBroker) -> Request[Any]:
    return wire_request(
        Api.UNREGISTER_BROKER,
        0,
        lambda make: make.UnregisterBrokerRequest(broker_id=request.broker_id),
        check_response,
    )
