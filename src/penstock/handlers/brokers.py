"""What nodes ask of the controller for themselves: BrokerRegistration, BrokerHeartbeat, AlterPartition,
AllocateProducerIds, ControllerRegistration.

The controllers' listener serves these, and the controller in this process decides: one that is not active says
NOT_CONTROLLER, and whoever asked looks for the other. UnregisterBroker is an operator's, see `reassignments`.
AssignReplicasToDirs is not served: a broker here has one directory, and the controller knows it.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.promise import Promise
from penstock.metadata.configs import broker_setting
from penstock.metadata.controller.requests import (
    AllocateProducerIds,
    AlterPartition,
    BrokerHeartbeat,
    HeartbeatReply,
    IsrChange,
    IsrChanged,
    IsrMember,
    ProducerIdBlock,
    RegisterBroker,
    RegisterController,
)
from penstock.metadata.records import RECOVERED, Endpoint, SupportedFeature
from penstock.wire import Api

from .support.context import CLUSTER_NAME, AclResourceType, Call, Context, Operation
from .support.controller_call import ask, default_wait_ms
from .support.response_fields import DENIED_CLUSTER, NO_THROTTLE, uuid_in, uuid_out

T = TypeVar("T")

NO_EPOCH = -1
"""The epoch of a broker that was not registered."""


def broker_registration(context: Context, call: Call) -> Any | Promise[Any]:
    """BrokerRegistration 0 to 4: a broker that has started makes itself known, and gets its epoch.

    DUPLICATE_BROKER_REGISTRATION while another process with its id is alive, INCONSISTENT_CLUSTER_ID for a broker of
    another cluster, UNSUPPORTED_VERSION where it does not support what the cluster is at, INVALID_REGISTRATION for
    directories or an id that cannot be, BROKER_ID_NOT_REGISTERED for one that still follows ZooKeeper.

    Version 1 came with ZooKeeper's migration, 2 has directories, 3 the epoch before the last clean stop (KIP-966), 4
    takes features that start at level 0.
    """
    request = call.message

    def respond(answer: int | KafkaError) -> Any:
        return call.make.BrokerRegistrationResponse(
            throttle_time=NO_THROTTLE,
            error_code=_code(answer),
            broker_epoch=NO_EPOCH if isinstance(answer, KafkaError) else answer,
        )

    if getattr(request, "is_migrating_zk_broker", False):
        return respond(
            KafkaError("brokers that follow ZooKeeper are not taken", ErrorCode.BROKER_ID_NOT_REGISTERED)
        )
    asked = RegisterBroker(
        broker_id=request.broker_id,
        cluster_id=request.cluster_id,
        incarnation_id=uuid_in(request.incarnation_id),
        endpoints=_endpoints(request.listeners),
        features=_features(request.features),
        log_dirs=tuple(uuid_in(each) for each in getattr(request, "log_dirs", ())),
        rack=request.rack,
        previous_epoch=getattr(request, "previous_broker_epoch", NO_EPOCH),
    )
    return _ask(context, call, asked, respond)


def _endpoints(listeners: Sequence[Any]) -> tuple[Endpoint, ...]:
    return tuple(
        Endpoint(name=each.name, host=each.host, port=each.port, security_protocol=each.security_protocol)
        for each in listeners
    )


def _features(features: Sequence[Any]) -> tuple[SupportedFeature, ...]:
    return tuple(
        SupportedFeature(
            name=each.name, min_level=each.min_supported_version, max_level=each.max_supported_version
        )
        for each in features
    )


def broker_heartbeat(context: Context, call: Call) -> Any | Promise[Any]:
    """BrokerHeartbeat 0 to 2: a broker is alive, has read so much, and wants to be fenced or to stop.

    STALE_BROKER_EPOCH for one that is not registered, or not with this epoch: it has to register again. Answered
    within half the interval of heartbeats, with REQUEST_TIMED_OUT if nothing is decided by then; heard it is at once.

    Version 1 has directories that failed (KIP-858), 2 those that are cordoned (KIP-1066).
    """
    request = call.message
    cordoned = getattr(request, "cordoned_log_dirs", None)
    asked = BrokerHeartbeat(
        request.broker_id,
        request.broker_epoch,
        request.current_metadata_offset,
        want_fence=request.want_fence,
        want_shutdown=request.want_shut_down,
        offline_dirs=tuple(uuid_in(each) for each in getattr(request, "offline_log_dirs", ())),
        cordoned_dirs=None if cordoned is None else tuple(uuid_in(each) for each in cordoned),
    )

    def respond(answer: HeartbeatReply | KafkaError) -> Any:
        reply = HeartbeatReply(False, True, False) if isinstance(answer, KafkaError) else answer
        if context.liveness is not None and not isinstance(answer, KafkaError):
            context.liveness.heard(call.session, asked.broker_id, asked.broker_epoch)
        return call.make.BrokerHeartbeatResponse(
            throttle_time=NO_THROTTLE,
            error_code=_code(answer),
            is_caught_up=reply.is_caught_up,
            is_fenced=reply.is_fenced,
            should_shut_down=reply.should_shut_down,
        )

    interval_ms = int(broker_setting("broker.heartbeat.interval.ms", context.image, context.settings) or 0)
    return _ask(context, call, asked, respond, wait_ms=interval_ms // 2)


def alter_partition(context: Context, call: Call) -> Any | Promise[Any]:
    """AlterPartition 2 and 3: a leader wants another ISR.

    STALE_BROKER_EPOCH, for the whole, where the leader is not registered with this epoch. Of a partition:
    UNKNOWN_TOPIC_ID and UNKNOWN_TOPIC_OR_PARTITION; FENCED_LEADER_EPOCH and INVALID_UPDATE_VERSION where it has moved
    on since, NOT_CONTROLLER where the leader knows more than this controller; INVALID_REQUEST for replicas that are
    not its own, or from one that does not lead it; INELIGIBLE_REPLICA for brokers that are fenced, stopping, or of
    another epoch; NEW_LEADER_ELECTED where the change ended the leader's own time.

    Version 3 has the epochs of the brokers in the ISR (KIP-903).
    """
    make, request = call.make, call.message
    changes = tuple(
        IsrChange(
            uuid_in(topic.topic_id),
            each.partition_index,
            each.leader_epoch,
            each.partition_epoch,
            _isr(each),
            getattr(each, "leader_recovery_state", RECOVERED),
        )
        for topic in request.topics
        for each in topic.partitions
    )

    def respond(answer: tuple[IsrChanged, ...] | KafkaError) -> Any:
        by_topic: dict[bytes, list[Any]] = {}
        for each in () if isinstance(answer, KafkaError) else answer:
            row = make.PartitionData(
                partition_index=each.partition,
                error_code=each.result.code,
                leader_id=each.leader,
                leader_epoch=each.leader_epoch,
                isr=each.isr,
                leader_recovery_state=each.recovery_state,
                partition_epoch=each.partition_epoch,
            )
            by_topic.setdefault(each.topic_id, []).append(row)
        return make.AlterPartitionResponse(
            throttle_time=NO_THROTTLE,
            error_code=_code(answer),
            topics=tuple(
                make.TopicData(topic_id=uuid_out(topic_id), partitions=tuple(rows))
                for topic_id, rows in by_topic.items()
            ),
        )

    asked = AlterPartition(request.broker_id, request.broker_epoch, changes)
    return _ask(context, call, asked, respond)


def _isr(partition: Any) -> tuple[IsrMember, ...]:
    if hasattr(partition, "new_isr"):
        return tuple(IsrMember(each) for each in partition.new_isr)
    return tuple(IsrMember(each.broker_id, each.broker_epoch) for each in partition.new_isr_with_epochs)


def allocate_producer_ids(context: Context, call: Call) -> Any | Promise[Any]:
    """AllocateProducerIds 0: the next block of producer ids, which no other broker gets.

    STALE_BROKER_EPOCH for a broker that is not registered with this epoch.
    """

    def respond(answer: ProducerIdBlock | KafkaError) -> Any:
        block = ProducerIdBlock(-1, 0) if isinstance(answer, KafkaError) else answer
        return call.make.AllocateProducerIdsResponse(
            throttle_time=NO_THROTTLE,
            error_code=_code(answer),
            producer_id_start=block.first,
            producer_id_len=block.size,
        )

    asked = AllocateProducerIds(call.message.broker_id, call.message.broker_epoch)
    return _ask(context, call, asked, respond)


def controller_registration(context: Context, call: Call) -> Any | Promise[Any]:
    """ControllerRegistration 0: a controller says where it listens, and what it supports (KIP-919).

    UNSUPPORTED_VERSION where it does not support what the cluster is at.
    """
    request = call.message

    def respond(answer: KafkaError | None) -> Any:
        return call.make.ControllerRegistrationResponse(
            throttle_time=NO_THROTTLE,
            error_code=_code(answer),
            error_message=None if answer is None else str(answer),
        )

    asked = RegisterController(
        request.controller_id,
        uuid_in(request.incarnation_id),
        _endpoints(request.listeners),
        _features(request.features),
    )
    return _ask(context, call, asked, respond)


def _ask(
    context: Context, call: Call, asked: Any, respond: Callable[[Any], T], *, wait_ms: int | None = None
) -> T | Promise[T]:
    if not context.authorize(call.session, Operation.CLUSTER_ACTION, AclResourceType.CLUSTER, CLUSTER_NAME):
        return respond(KafkaError(DENIED_CLUSTER.message or "", DENIED_CLUSTER.code))
    return ask(context, asked, default_wait_ms(context) if wait_ms is None else wait_ms, respond)


def _code(answer: Any) -> ErrorCode:
    return answer.code if isinstance(answer, KafkaError) else ErrorCode.NONE


HANDLERS: dict[Api, Callable[[Context, Call], Any]] = {
    Api.BROKER_REGISTRATION: broker_registration,
    Api.BROKER_HEARTBEAT: broker_heartbeat,
    Api.ALTER_PARTITION: alter_partition,
    Api.ALLOCATE_PRODUCER_IDS: allocate_producer_ids,
    Api.CONTROLLER_REGISTRATION: controller_registration,
}
