"""Transactions of producers.

    AddPartitionsToTxn 0 to 5        add partitions to a transaction; between brokers also verify them
    AddOffsetsToTxn 0 to 4           add a group's offsets partition
    EndTxn 0 to 5                    commit or abort
    TxnOffsetCommit 0 to 5           commit offsets within a transaction

The coordinator decides (`coordinator.transactions`). InitProducerId is in `producer_ids`. `support.txn_verification`
checks that batches of Produce and TxnOffsetCommit belong to an open transaction.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import TopicPartition
from penstock.base.internal_topics import INTERNAL_TOPICS, OFFSETS_TOPIC
from penstock.base.promise import Promise
from penstock.base.steps import Steps
from penstock.coordinator.groups.requests import CommittedPartition, PartitionsReply, TxnOffsetCommit
from penstock.coordinator.transactions.codes import for_client
from penstock.coordinator.transactions.requests import (
    AddPartitions,
    EndTxn,
    ProducerEpoch,
    ProducerReply,
    Reply,
    VerifyPartitions,
    VerifyReply,
    add_offsets,
)
from penstock.coordinator.transactions.state import EPOCH_BUMP_VERSION
from penstock.metadata.acls import CLUSTER_NAME, AclResourceType, Operation
from penstock.metadata.configs import broker_setting
from penstock.replica import Partition
from penstock.wire import Api

from .support.context import Call, Context
from .support.response_fields import NO_THROTTLE
from .support.txn_verification import Claim, verify_partitions
from .support.waiting import all_of, in_steps, settled

_BY_BROKERS = 4
"""From this version of AddPartitionsToTxn on brokers send several transactions; clients use lower ones."""
_END_BUMPS_EPOCH = 5
_KNOWS_LOADING = 2
"""The version of TxnOffsetCommit from which clients handle COORDINATOR_LOAD_IN_PROGRESS."""

Codes = dict[TopicPartition, ErrorCode]


class _Transaction(NamedTuple):
    """One transaction of an AddPartitionsToTxn."""

    transactional_id: str
    producer: ProducerEpoch
    verify_only: bool
    topics: Any

    @property
    def names(self) -> list[TopicPartition]:
        return [TopicPartition(topic.name, number) for topic in self.topics for number in topic.partitions]


@in_steps
def add_partitions_to_txn(context: Context, call: Call) -> Steps[Any]:
    """AddPartitionsToTxn 0 to 5: add partitions to a transaction; with `verify_only`, check that they were added.

    If one partition is unknown or not authorized, none is added: the others get OPERATION_NOT_ATTEMPTED. Clients may
    not add internal topics.

    Version notes: clients send 0 to 3, and need WRITE on the transactional id and the topics. From 4 on brokers send
    several transactions, and need CLUSTER_ACTION; a leader adds the partitions of a Produce this way with
    `transaction.version` 2. 2 has PRODUCER_FENCED; 3 is flexible; 5 has TRANSACTION_ABORTABLE.
    """
    message, make = call.message, call.make
    if call.version < _BY_BROKERS:
        transaction = _Transaction(
            message.v3_and_below_transactional_id,
            ProducerEpoch(message.v3_and_below_producer_id, message.v3_and_below_producer_epoch),
            False,
            message.v3_and_below_topics,
        )
        codes = yield _add(context, call, transaction)
        return make.AddPartitionsToTxnResponse(
            throttle_time=NO_THROTTLE, results_by_topic_v3_and_below=_topic_results(call, transaction, codes)
        )
    if not context.authorize(call.session, Operation.CLUSTER_ACTION, AclResourceType.CLUSTER, CLUSTER_NAME):
        return make.AddPartitionsToTxnResponse(
            throttle_time=NO_THROTTLE,
            error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            results_by_transaction=(),
        )
    call.session.state.is_exempt = True
    transactions = [
        _Transaction(
            each.transactional_id,
            ProducerEpoch(each.producer_id, each.producer_epoch),
            each.verify_only,
            each.topics,
        )
        for each in message.transactions
    ]
    added = yield all_of([_add(context, call, each) for each in transactions])
    return make.AddPartitionsToTxnResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.NONE,
        results_by_transaction=tuple(
            make.AddPartitionsToTxnResult(
                transactional_id=each.transactional_id, topic_results=_topic_results(call, each, codes)
            )
            for each, codes in zip(transactions, added, strict=True)
        ),
    )


def _add(context: Context, call: Call, wanted: _Transaction) -> Promise[Codes]:
    refused = _refused_partitions(context, call, wanted)
    if refused:
        return settled(refused)
    added: Promise[Codes] = Promise()
    transactional_id, producer, names = wanted.transactional_id, wanted.producer, frozenset(wanted.names)
    request: AddPartitions | VerifyPartitions
    if wanted.verify_only:
        request = VerifyPartitions(transactional_id, producer, names)
    else:
        version = EPOCH_BUMP_VERSION if call.version >= _BY_BROKERS else 0
        request = AddPartitions(transactional_id, producer, names, version)

    def answered(reply: Reply | VerifyReply) -> None:
        codes = reply.codes if isinstance(reply, VerifyReply) else dict.fromkeys(names, reply.code)
        api, version = Api.ADD_PARTITIONS_TO_TXN, call.version
        added.resolve({name: for_client(code, api, version) for name, code in codes.items()})

    context.transactions.handle(transactional_id, request).then(answered)
    return added


def _refused_partitions(context: Context, call: Call, wanted: _Transaction) -> Codes:
    """The errors of all partitions if one cannot be added; empty if all can."""
    is_client = call.version < _BY_BROKERS
    session, names = call.session, wanted.names
    if is_client and not context.authorize(
        session, Operation.WRITE, AclResourceType.TRANSACTIONAL_ID, wanted.transactional_id
    ):
        return dict.fromkeys(names, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    codes = dict.fromkeys(names, ErrorCode.OPERATION_NOT_ATTEMPTED)
    is_refused = False
    for name in names:
        if is_client and (
            name.topic in INTERNAL_TOPICS
            or not context.authorize(session, Operation.WRITE, AclResourceType.TOPIC, name.topic)
        ):
            codes[name] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif context.image.partition(name.topic, name.partition) is None:
            codes[name] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            continue
        is_refused = True
    return codes if is_refused else {}


def _topic_results(call: Call, wanted: _Transaction, codes: Codes) -> tuple[Any, ...]:
    make = call.make
    return tuple(
        make.AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=tuple(
                make.AddPartitionsToTxnPartitionResult(
                    partition_index=number, partition_error_code=codes[TopicPartition(topic.name, number)]
                )
                for number in topic.partitions
            ),
        )
        for topic in wanted.topics
    )


@in_steps
def add_offsets_to_txn(context: Context, call: Call) -> Steps[Any]:
    """AddOffsetsToTxn 0 to 4: add the partition of `__consumer_offsets` that stores a group's offsets. Needs WRITE on
    the transactional id and READ on the group.

    The topic need not exist yet: the client's FindCoordinator creates it next. Clients with `transaction.version` 2 do
    not send this, since TxnOffsetCommit adds the partition.

    Version notes: 2 has PRODUCER_FENCED; 3 is flexible; 4 has TRANSACTION_ABORTABLE.
    """
    message, session = call.message, call.session

    def respond(reply: Reply) -> Any:
        code = for_client(reply.code, Api.ADD_OFFSETS_TO_TXN, call.version)
        return call.make.AddOffsetsToTxnResponse(throttle_time=NO_THROTTLE, error_code=code)

    transactional_id, group = message.transactional_id, message.group_id
    if not context.authorize(session, Operation.WRITE, AclResourceType.TRANSACTIONAL_ID, transactional_id):
        return respond(Reply(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    if not context.authorize(session, Operation.READ, AclResourceType.GROUP, group):
        return respond(Reply(ErrorCode.GROUP_AUTHORIZATION_FAILED))
    partitions = context.groups.shards.count or int(
        broker_setting("offsets.topic.num.partitions", context.image, context.settings) or 1
    )
    producer = ProducerEpoch(message.producer_id, message.producer_epoch)
    request = add_offsets(transactional_id, producer, group, partitions)
    return respond((yield context.transactions.handle(transactional_id, request)))


@in_steps
def end_txn(context: Context, call: Call) -> Steps[Any]:
    """EndTxn 0 to 5: commit or abort a transaction. Needs WRITE on the transactional id.

    The reply is sent when the decision is committed; the markers are written afterwards.

    Version notes: 2 has PRODUCER_FENCED; 3 is flexible; 4 has TRANSACTION_ABORTABLE; 5 (`transaction.version` 2) bumps
    the epoch and returns it, which also distinguishes a retry from a new request.
    """
    message = call.message

    def respond(reply: ProducerReply) -> Any:
        return call.make.EndTxnResponse(
            throttle_time=NO_THROTTLE,
            error_code=for_client(reply.code, Api.END_TXN, call.version),
            producer_id=reply.producer_id,
            producer_epoch=reply.epoch,
        )

    transactional_id = message.transactional_id
    if not context.authorize(
        call.session, Operation.WRITE, AclResourceType.TRANSACTIONAL_ID, transactional_id
    ):
        return respond(ProducerReply(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    request = EndTxn(
        transactional_id,
        ProducerEpoch(message.producer_id, message.producer_epoch),
        message.committed,
        EPOCH_BUMP_VERSION if call.version >= _END_BUMPS_EPOCH else 0,
    )
    return respond((yield context.transactions.handle(transactional_id, request)))


@in_steps
def txn_offset_commit(context: Context, call: Call) -> Steps[Any]:
    """TxnOffsetCommit 0 to 5: commit offsets with a transaction. They take effect if it commits. Needs WRITE on the
    transactional id, and READ on the group and the topics.

    The group's partition of `__consumer_offsets` must be part of the transaction: AddOffsetsToTxn adds it, or from
    version 5 on this request. Then the group's coordinator checks member and generation.

    Version notes: 2 adds leader epochs; before, COORDINATOR_LOAD_IN_PROGRESS is sent as COORDINATOR_NOT_AVAILABLE; 3
    adds member and generation (KIP-447); 4 has TRANSACTION_ABORTABLE; 5 adds the partition.
    """
    message, session = call.message, call.session
    transactional_id, group = message.transactional_id, message.group_id
    if not context.authorize(session, Operation.WRITE, AclResourceType.TRANSACTIONAL_ID, transactional_id):
        return _offsets_response(call, {}, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not context.authorize(session, Operation.READ, AclResourceType.GROUP, group):
        return _offsets_response(call, {}, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    refused: Codes = {}
    offsets: list[CommittedPartition] = []
    for topic in message.topics:
        may_read = context.authorize(session, Operation.READ, AclResourceType.TOPIC, topic.name)
        for each in topic.partitions:
            name = TopicPartition(topic.name, each.partition_index)
            if not may_read:
                refused[name] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif context.image.partition(topic.name, each.partition_index) is None:
                refused[name] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                offsets.append(
                    CommittedPartition(
                        *name,
                        each.committed_offset,
                        getattr(each, "committed_leader_epoch", -1),
                        each.committed_metadata,
                    )
                )
    if not offsets:
        return _offsets_response(call, refused, ErrorCode.NONE)
    try:
        partition = _offsets_partition(context, group)
    except KafkaError as error:
        return _offsets_response(call, refused, error.code)
    producer = ProducerEpoch(message.producer_id, message.producer_epoch)
    claim = Claim(transactional_id, producer, Api.TXN_OFFSET_COMMIT, call.version)
    request = TxnOffsetCommit(
        group,
        tuple(offsets),
        *producer,
        member_id=getattr(message, "member_id", ""),
        generation=getattr(message, "generation_id", -1),
        instance_id=getattr(message, "group_instance_id", None),
    )
    errors = yield verify_partitions(context, claim, [partition])
    if partition.name in errors:
        return _offsets_response(call, refused, errors[partition.name].code)
    reply: PartitionsReply = yield context.groups.handle(group, request)
    codes = {TopicPartition(each.topic, each.partition): each.code for each in reply.partitions}
    return _offsets_response(call, {**codes, **refused}, reply.code)


def _offsets_partition(context: Context, group: str) -> Partition:
    if not group:
        raise KafkaError("The group id is empty.", ErrorCode.INVALID_GROUP_ID)
    number = context.groups.shards.number_of(group)
    partition = context.replicas.led(OFFSETS_TOPIC, number)
    if partition is None:
        raise KafkaError(
            f"This broker does not lead {OFFSETS_TOPIC}-{number}; find the coordinator and retry.",
            ErrorCode.NOT_COORDINATOR,
        )
    return partition


def _offsets_response(call: Call, codes: Codes, others: ErrorCode) -> Any:
    """The response; partitions without a code in `codes` get `others`."""
    if others is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and call.version < _KNOWS_LOADING:
        others = ErrorCode.COORDINATOR_NOT_AVAILABLE
    make = call.make
    return make.TxnOffsetCommitResponse(
        throttle_time=NO_THROTTLE,
        topics=tuple(
            make.TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=tuple(
                    make.TxnOffsetCommitResponsePartition(
                        partition_index=each.partition_index,
                        error_code=codes.get(TopicPartition(topic.name, each.partition_index), others),
                    )
                    for each in topic.partitions
                ),
            )
            for topic in call.message.topics
        ),
    )


def by_topic(names: Iterable[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    for name in names:
        found[name.topic].append(name.partition)
    return found


HANDLERS: dict[Api, Callable[[Context, Call], Any]] = {
    Api.ADD_PARTITIONS_TO_TXN: add_partitions_to_txn,
    Api.ADD_OFFSETS_TO_TXN: add_offsets_to_txn,
    Api.END_TXN: end_txn,
    Api.TXN_OFFSET_COMMIT: txn_offset_commit,
}
