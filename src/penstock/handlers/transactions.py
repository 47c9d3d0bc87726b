"""Transactions as producers have them: partitions and offsets join one, and it ends.

The state is the coordinator's (`penstock.coordinator.transactions`); these handlers put questions into its words and
answers into a client's. InitProducerId is with the other ids, in `producer_ids`. How a Produce or TxnOffsetCommit
takes part in a transaction is in `taking_part`.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import TopicPartition
from penstock.base.promise import Promise
from penstock.coordinator.groups.requests import CommittedPartition, PartitionsReply, TxnOffsetCommit
from penstock.coordinator.transactions import (
    AddPartitions,
    EndTxn,
    ProducerEpoch,
    ProducerReply,
    Reply,
    VerifyPartitions,
    VerifyReply,
    add_offsets,
)
from penstock.coordinator.transactions.codes import for_client
from penstock.coordinator.transactions.state import EPOCH_BUMP_VERSION
from penstock.metadata.configs import broker_setting
from penstock.replica import Partition
from penstock.wire import Api

from .support.context import CLUSTER_NAME, AclResourceType, Call, Context, Operation
from .support.internal_topics import INTERNAL_TOPICS, OFFSETS_TOPIC
from .support.response_fields import NO_THROTTLE
from .support.txn_verification import Claim, VerificationErrors, verify_partitions
from .support.waiting import after, after_all

_BY_BROKERS = 4
"""The version of AddPartitionsToTxn from which brokers ask for several transactions; clients stay below."""
_END_MOVES_EPOCH = 5
_KNOWS_LOADING = 2
"""The version of TxnOffsetCommit from which a client takes COORDINATOR_LOAD_IN_PROGRESS for what it is."""

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


def add_partitions_to_txn(context: Context, call: Call) -> Any | Promise[Any]:
    """AddPartitionsToTxn 0 to 5: partitions join a transaction; with `verify_only` it is told whether they have.

    Where one of the partitions may not be written to, or is not there, none joins: the others get
    OPERATION_NOT_ATTEMPTED. No client may write to an internal topic.

    Versions to 3 come from clients, which need WRITE on the transactional id and the topics. From 4 on brokers ask,
    for several transactions at once, and need CLUSTER_ACTION; this is also how a leader elsewhere adds the partitions
    of a Produce with `transaction.version` 2. Version 2 knows PRODUCER_FENCED, 3 is flexible, 5 knows
    TRANSACTION_ABORTABLE.
    """
    message, make = call.message, call.make
    if call.version < _BY_BROKERS:
        wanted = _Transaction(
            message.v3_and_below_transactional_id,
            ProducerEpoch(message.v3_and_below_producer_id, message.v3_and_below_producer_epoch),
            False,
            message.v3_and_below_topics,
        )
        return after(
            _add(context, call, wanted),
            lambda codes: make.AddPartitionsToTxnResponse(
                throttle_time=NO_THROTTLE, results_by_topic_v3_and_below=_topic_results(call, wanted, codes)
            ),
        )
    if not context.authorize(call.session, Operation.CLUSTER_ACTION, AclResourceType.CLUSTER, CLUSTER_NAME):
        return make.AddPartitionsToTxnResponse(
            throttle_time=NO_THROTTLE,
            error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            results_by_transaction=(),
        )
    asked = [
        _Transaction(
            each.transactional_id,
            ProducerEpoch(each.producer_id, each.producer_epoch),
            each.verify_only,
            each.topics,
        )
        for each in message.transactions
    ]
    return after_all(
        [_add(context, call, each) for each in asked],
        lambda answers: make.AddPartitionsToTxnResponse(
            throttle_time=NO_THROTTLE,
            error_code=ErrorCode.NONE,
            results_by_transaction=tuple(
                make.AddPartitionsToTxnResult(
                    transactional_id=each.transactional_id, topic_results=_topic_results(call, each, codes)
                )
                for each, codes in zip(asked, answers, strict=True)
            ),
        ),
    )


def _add(context: Context, call: Call, wanted: _Transaction) -> Promise[Codes]:
    answer: Promise[Codes] = Promise()
    refused = _refused_partitions(context, call, wanted)
    if refused:
        answer.resolve(refused)
        return answer
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
        answer.resolve({name: for_client(code, api, version) for name, code in codes.items()})

    context.transactions.handle(transactional_id, request).then(answered)
    return answer


def _refused_partitions(context: Context, call: Call, wanted: _Transaction) -> Codes:
    """What each partition is told where they cannot all be added; empty where they can."""
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


def add_offsets_to_txn(context: Context, call: Call) -> Any | Promise[Any]:
    """AddOffsetsToTxn 0 to 4: the partition that keeps a group's offsets joins a transaction.

    The topic of offsets need not be there yet: the client looks for the group's coordinator next, which creates it.

    Version 2 knows PRODUCER_FENCED, 3 is flexible, 4 knows TRANSACTION_ABORTABLE. A client that speaks
    `transaction.version` 2 does not ask: TxnOffsetCommit adds the partition.
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
    return after(context.transactions.handle(transactional_id, request), respond)


def end_txn(context: Context, call: Call) -> Any | Promise[Any]:
    """EndTxn 0 to 5: commit or abort. The answer leaves when the decision is committed; markers follow by themselves.

    Version 2 knows PRODUCER_FENCED, 3 is flexible, 4 knows TRANSACTION_ABORTABLE. From 5 on (`transaction.version` 2)
    the end moves the epoch, and the answer tells the producer what it is now; a request that is repeated is told
    from a new one by its epoch.
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
        EPOCH_BUMP_VERSION if call.version >= _END_MOVES_EPOCH else 0,
    )
    return after(context.transactions.handle(transactional_id, request), respond)


def txn_offset_commit(context: Context, call: Call) -> Any | Promise[Any]:
    """TxnOffsetCommit 0 to 5: offsets that count when the transaction commits, and never if it aborts.

    The group's partition of `__consumer_offsets` takes part in the transaction as any other does: before version 5
    AddOffsetsToTxn has added it, from 5 on this request does. Then the group decides: who names a member and its
    generation is fenced by them (version 3, KIP-447).

    Version 2 has leader epochs, 4 knows TRANSACTION_ABORTABLE. Before 2 COORDINATOR_LOAD_IN_PROGRESS is told as
    COORDINATOR_NOT_AVAILABLE, which those clients know.
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
        kept_by = _keeper_of(context, group)
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
    decided: Promise[PartitionsReply] = Promise()

    def asked(fates: VerificationErrors) -> None:
        fate = fates.get(kept_by.name)
        if fate is not None:
            decided.resolve(PartitionsReply(fate.code))
        else:
            context.groups.handle(group, request).then(decided.resolve)

    verify_partitions(context, claim, [kept_by]).then(asked)

    def respond(reply: PartitionsReply) -> Any:
        codes = {TopicPartition(each.topic, each.partition): each.code for each in reply.partitions}
        return _offsets_response(call, {**codes, **refused}, reply.code)

    return after(decided, respond)


def _keeper_of(context: Context, group: str) -> Partition:
    if not group:
        raise KafkaError("a group needs a name", ErrorCode.INVALID_GROUP_ID)
    number = context.groups.shards.number_of(group)
    partition = context.replicas.led(OFFSETS_TOPIC, number)
    if partition is None:
        raise KafkaError(f"{OFFSETS_TOPIC}-{number} is not led here", ErrorCode.NOT_COORDINATOR)
    return partition


def _offsets_response(call: Call, codes: Codes, others: ErrorCode) -> Any:
    """What each partition is told; those without a code of their own are told what the others are."""
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
