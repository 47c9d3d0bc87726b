"""Requests of nodes to the controller, served at the controllers' listener.

    BrokerRegistration 0 to 4        a broker registers, and gets its epoch
    BrokerHeartbeat 0 to 2           a broker is alive
    AlterPartition 2 to 3            a leader changes an ISR
    AllocateProducerIds 0            a block of producer ids
    ControllerRegistration 0         a controller's endpoints and features

The controller in this process decides. One that is not active replies NOT_CONTROLLER, and the node retries with
another. All need CLUSTER_ACTION on the cluster. UnregisterBroker is in `reassignments`. AssignReplicasToDirs is not
served, since a broker has one log directory.
"""

from collections.abc import Callable, Sequence
from typing import Any

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.steps import Steps
from penstock.metadata.acls import CLUSTER_NAME, AclResourceType, Operation
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

from .support.context import Call, Context
from .support.controller_call import default_wait_ms, submit
from .support.response_fields import DENIED_CLUSTER, NO_THROTTLE, uuid_in, uuid_out
from .support.waiting import in_steps

NO_EPOCH = -1
"""The epoch of a broker that is not registered."""


@in_steps
def broker_registration(context: Context, call: Call) -> Steps[Any]:
    """BrokerRegistration 0 to 4: a broker that has started registers, and gets its epoch.

    Errors: DUPLICATE_BROKER_REGISTRATION while another process with the same id is alive, INCONSISTENT_CLUSTER_ID for
    another cluster, UNSUPPORTED_VERSION where the broker does not support the cluster's feature levels,
    INVALID_REGISTRATION for invalid directories or ids, BROKER_ID_NOT_REGISTERED for a broker that migrates from
    ZooKeeper.

    Version notes: 1 is for migration from ZooKeeper; 2 adds log directories; 3 the epoch before the last clean
    shutdown (KIP-966); 4 allows features that start at level 0.
    """
    request = call.message

    def respond(code: ErrorCode, epoch: int = NO_EPOCH) -> Any:
        return call.make.BrokerRegistrationResponse(
            throttle_time=NO_THROTTLE, error_code=code, broker_epoch=epoch
        )

    if getattr(request, "is_migrating_zk_broker", False):
        return respond(ErrorCode.BROKER_ID_NOT_REGISTERED)
    registration = RegisterBroker(
        broker_id=request.broker_id,
        cluster_id=request.cluster_id,
        incarnation_id=uuid_in(request.incarnation_id),
        endpoints=_endpoints(request.listeners),
        features=_features(request.features),
        log_dirs=tuple(uuid_in(each) for each in getattr(request, "log_dirs", ())),
        rack=request.rack,
        previous_epoch=getattr(request, "previous_broker_epoch", NO_EPOCH),
    )
    try:
        return respond(ErrorCode.NONE, (yield from _decide(context, call, registration)))
    except KafkaError as error:
        return respond(error.code)


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


@in_steps
def broker_heartbeat(context: Context, call: Call) -> Steps[Any]:
    """BrokerHeartbeat 0 to 2: a broker is alive, has read the metadata log up to an offset, and may ask to be fenced
    or to shut down.

    A broker that is not registered with this epoch gets STALE_BROKER_EPOCH, and registers again. The controller
    extends the broker's session at once; if it decides nothing within half the heartbeat interval, the reply is
    REQUEST_TIMED_OUT.

    Version notes: 1 adds failed log directories (KIP-858); 2 cordoned ones (KIP-1066).
    """
    request = call.message
    cordoned = getattr(request, "cordoned_log_dirs", None)
    heartbeat = BrokerHeartbeat(
        request.broker_id,
        request.broker_epoch,
        request.current_metadata_offset,
        want_fence=request.want_fence,
        want_shutdown=request.want_shut_down,
        offline_dirs=tuple(uuid_in(each) for each in getattr(request, "offline_log_dirs", ())),
        cordoned_dirs=None if cordoned is None else tuple(uuid_in(each) for each in cordoned),
    )

    interval_ms = int(broker_setting("broker.heartbeat.interval.ms", context.image, context.settings) or 0)
    code, reply = ErrorCode.NONE, HeartbeatReply(False, True, False)
    try:
        reply = yield from _decide(context, call, heartbeat, wait_ms=interval_ms // 2)
    except KafkaError as error:
        code = error.code
    else:
        if context.liveness is not None:
            context.liveness.heard(call.session, heartbeat.broker_id, heartbeat.broker_epoch)
    return call.make.BrokerHeartbeatResponse(
        throttle_time=NO_THROTTLE,
        error_code=code,
        is_caught_up=reply.is_caught_up,
        is_fenced=reply.is_fenced,
        should_shut_down=reply.should_shut_down,
    )


@in_steps
def alter_partition(context: Context, call: Call) -> Steps[Any]:
    """AlterPartition 2 to 3: a leader changes the ISR of its partitions.

    The whole request gets STALE_BROKER_EPOCH where the leader is not registered with this epoch. Errors of a
    partition: UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION; FENCED_LEADER_EPOCH and INVALID_UPDATE_VERSION where the
    leader's view is stale, NOT_CONTROLLER where it is newer than this controller's; INVALID_REQUEST for brokers that
    are not replicas, or from a broker that does not lead the partition; INELIGIBLE_REPLICA for brokers that are
    fenced, shutting down, or of another epoch; NEW_LEADER_ELECTED where the change completed a reassignment that moves
    the leader.

    Version notes: 3 adds the epochs of the brokers in the ISR (KIP-903).
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

    code, changed = ErrorCode.NONE, tuple[IsrChanged, ...]()
    try:
        request = AlterPartition(request.broker_id, request.broker_epoch, changes)
        changed = yield from _decide(context, call, request)
    except KafkaError as error:
        code = error.code
    by_topic: dict[bytes, list[Any]] = {}
    for each in changed:
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
        error_code=code,
        topics=tuple(
            make.TopicData(topic_id=uuid_out(topic_id), partitions=tuple(rows))
            for topic_id, rows in by_topic.items()
        ),
    )


def _isr(partition: Any) -> tuple[IsrMember, ...]:
    if hasattr(partition, "new_isr"):
        return tuple(IsrMember(each) for each in partition.new_isr)
    return tuple(IsrMember(each.broker_id, each.broker_epoch) for each in partition.new_isr_with_epochs)


@in_steps
def allocate_producer_ids(context: Context, call: Call) -> Steps[Any]:
    """AllocateProducerIds 0: a block of producer ids that no other broker gets.

    A broker that is not registered with this epoch gets STALE_BROKER_EPOCH.
    """
    code, block = ErrorCode.NONE, ProducerIdBlock(-1, 0)
    try:
        request = AllocateProducerIds(call.message.broker_id, call.message.broker_epoch)
        block = yield from _decide(context, call, request)
    except KafkaError as error:
        code = error.code
    return call.make.AllocateProducerIdsResponse(
        throttle_time=NO_THROTTLE,
        error_code=code,
        producer_id_start=block.first,
        producer_id_len=block.size,
    )


@in_steps
def controller_registration(context: Context, call: Call) -> Steps[Any]:
    """ControllerRegistration 0: a controller registers its endpoints and features (KIP-919).

    UNSUPPORTED_VERSION where it does not support the cluster's feature levels.
    """
    request = call.message
    registration = RegisterController(
        request.controller_id,
        uuid_in(request.incarnation_id),
        _endpoints(request.listeners),
        _features(request.features),
    )
    code, message = ErrorCode.NONE, None
    try:
        yield from _decide(context, call, registration)
    except KafkaError as error:
        code, message = error.code, str(error)
    return call.make.ControllerRegistrationResponse(
        throttle_time=NO_THROTTLE, error_code=code, error_message=message
    )


def _decide(context: Context, call: Call, request: Any, *, wait_ms: int | None = None) -> Steps[Any]:
    """The controller's reply to a request of a node."""
    if not context.authorize(call.session, Operation.CLUSTER_ACTION, AclResourceType.CLUSTER, CLUSTER_NAME):
        raise KafkaError(DENIED_CLUSTER.message or "", DENIED_CLUSTER.code)
    return (yield submit(context, request, default_wait_ms(context) if wait_ms is None else wait_ms))


HANDLERS: dict[Api, Callable[[Context, Call], Any]] = {
    Api.BROKER_REGISTRATION: broker_registration,
    Api.BROKER_HEARTBEAT: broker_heartbeat,
    Api.ALTER_PARTITION: alter_partition,
    Api.ALLOCATE_PRODUCER_IDS: allocate_producer_ids,
    Api.CONTROLLER_REGISTRATION: controller_registration,
}
