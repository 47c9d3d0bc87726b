"""Transactions of a producer: begin, add partitions, end. Any process with the producer's id and epoch can do so.

    identity = init_transactions(cluster, "orders-7", timeout_ms)      fences the previous producer (`identity`)
    add_partitions(cluster, transaction, [...])                        before the first record; not with version 2
    end_transactions(cluster, [transaction, ...], commit=True)         in any process

A transaction belongs to (transactional id, producer id, epoch), not to a connection: a process can pass these values
to another one, which ends the transaction. The feature `transaction.version` selects the protocol (KIP-890). From 2
on, a partition joins the transaction with the first Produce, and each end raises the epoch. Below 2,
AddPartitionsToTxn comes first, and the epoch stays.

Replies to EndTxn, and what they say about the transaction:

    NONE                        it ended as requested, now or earlier
    CONCURRENT_TRANSACTIONS     markers are still being written: retry
    INVALID_TXN_STATE           it ended the other way, or was not open
    PRODUCER_FENCED, INVALID_PRODUCER_EPOCH     it was fenced, or aborted after its timeout
    INVALID_PRODUCER_ID_MAPPING                 the id has another producer, or has expired
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeVar

from penstock.base.errors import ErrorCode
from penstock.base.ids import NO_LEADER_EPOCH, Offset, TopicPartition
from penstock.wire import Api
from penstock.wire.request import Request, through_kio

from .cluster import Cluster
from .connection import Call
from .coordinators import AGAIN, Kind, ask_coordinator, find_coordinator
from .errors import NETWORK_ERRORS, ClientError, NotServed, check, code_of, refused
from .identity import ProducerIdentity
from .network import Link
from .topology import by_topic
from .transactions import Transaction, describe_request

T = TypeVar("T")

FEATURE: Final = "transaction.version"
EPOCH_BUMP_VERSION: Final = 2
"""The feature's level from which EndTxn raises the epoch."""

PRODUCE_ADDS_PARTITIONS: Final = 12
"""The version of Produce that adds the partition to the transaction."""
END_MOVES_EPOCH: Final = 5
CLIENTS_ADD_PARTITIONS: Final = 3
"""The last version of AddPartitionsToTxn that clients use; later ones are for brokers."""

COMMIT_ADDS_GROUP: Final = 5
"""The version of TxnOffsetCommit that adds the group to the transaction."""
NO_MEMBER: Final = -1
"""The generation of a commit by a client that is not a member."""

ASKED_AT_ONCE: Final = 100
"""Requests in flight to one broker: enough to hide the round trip, few enough to fit its buffers."""

GONE: Final = frozenset(
    {
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    }
)
"""Errors that say that the transaction can no longer be ended this way."""


class OpenTransaction(NamedTuple):
    """What is needed to continue a transaction, or to end it."""

    transactional_id: str
    producer_id: int
    epoch: int

    @property
    def identity(self) -> ProducerIdentity:
        return ProducerIdentity(self.producer_id, self.epoch)


def uses_epoch_bumps(cluster: Cluster) -> bool:
    """Whether the cluster uses `transaction.version` 2."""
    request = through_kio(
        Api.API_VERSIONS,
        lambda make: make.ApiVersionsRequest(client_software_name="penstock", client_software_version="0"),
    )
    reply = cluster.ask_any(request)
    features = getattr(reply, "finalized_features", ())
    return any(each.name == FEATURE and each.max_version_level >= EPOCH_BUMP_VERSION for each in features)


def add_partitions(
    cluster: Cluster, transaction: OpenTransaction, partitions: Sequence[TopicPartition]
) -> None:
    """Add partitions to a transaction, all or none. Only below `transaction.version` 2."""

    def build(make: Any) -> Any:
        return make.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transaction.transactional_id,
            v3_and_below_producer_id=transaction.producer_id,
            v3_and_below_producer_epoch=transaction.epoch,
            v3_and_below_topics=tuple(
                make.AddPartitionsToTxnTopic(name=topic, partitions=tuple(numbers))
                for topic, numbers in by_topic(partitions).items()
            ),
        )

    request = through_kio(Api.ADD_PARTITIONS_TO_TXN, build, version_max=CLIENTS_ADD_PARTITIONS)
    _, reply = ask_coordinator(
        cluster, Kind.TRANSACTION, transaction.transactional_id, request, _worst_of_partitions
    )
    code = _worst_of_partitions(reply)
    if code:
        raise refused(f"partitions for transactional id {transaction.transactional_id}", code)


def _worst_of_partitions(reply: Any) -> int:
    codes = [
        int(each.partition_error_code)
        for topic in reply.results_by_topic_v3_and_below
        for each in topic.results_by_partition
    ]
    failed = [code for code in codes if code and code != ErrorCode.OPERATION_NOT_ATTEMPTED]
    return failed[0] if failed else max(codes, default=0)


def end_transactions(
    cluster: Cluster, transactions: Iterable[OpenTransaction], *, commit: bool, epoch_bumps: bool
) -> dict[OpenTransaction, ErrorCode]:
    """End transactions, those of one coordinator in parallel. Returns those whose error is in GONE, with the error.

    A coordinator answers when the decision is durable; it writes the markers afterwards.
    """
    wanted = {each.transactional_id: each for each in transactions}

    def request(transaction: OpenTransaction) -> Request[Any]:
        return through_kio(
            Api.END_TXN,
            lambda make: make.EndTxnRequest(
                transactional_id=transaction.transactional_id,
                producer_id=transaction.producer_id,
                producer_epoch=transaction.epoch,
                committed=commit,
            ),
            version_min=END_MOVES_EPOCH if epoch_bumps else 0,
            version_max=END_MOVES_EPOCH if epoch_bumps else END_MOVES_EPOCH - 1,
        )

    replies = ask_coordinators(cluster, {name: request(each) for name, each in wanted.items()}, code_of)
    gone: dict[OpenTransaction, ErrorCode] = {}
    for name, reply in replies.items():
        code = int(reply.error_code)
        if code in GONE:
            gone[wanted[name]] = ErrorCode(code)
        elif code:
            raise refused(f"the end of transactional id {name}", code)
    return gone


def describe_transactions(cluster: Cluster, transactional_ids: Iterable[str]) -> dict[str, Transaction]:
    """The state of several ids. Unknown ids are left out."""
    replies = ask_coordinators(
        cluster,
        {name: describe_request(name) for name in transactional_ids},
        lambda answer: answer[0].code if answer else int(ErrorCode.UNKNOWN_SERVER_ERROR),
    )
    found = {}
    for name, answer in replies.items():
        code = answer[0].code if answer else int(ErrorCode.UNKNOWN_SERVER_ERROR)
        if not code:
            found[name] = answer[0].transaction
        elif code not in GONE:
            raise refused(f"transactional id {name}", code)
    return found


# -- offsets of a group ------------------------------------------------------------------------------------


def commit_in_transaction(
    cluster: Cluster,
    transaction: OpenTransaction,
    group_id: str,
    offsets: Mapping[TopicPartition, Offset],
    *,
    metadata: str = "",
    epoch_bumps: bool,
) -> None:
    """Commit offsets of a group without members in the transaction.

    From `transaction.version` 2 on, the request adds the group to the transaction; below, AddOffsetsToTxn does so
    first.
    """
    if not epoch_bumps:
        _add_group(cluster, transaction, group_id)

    def build(make: Any) -> Any:
        return make.TxnOffsetCommitRequest(
            transactional_id=transaction.transactional_id,
            group_id=group_id,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.epoch,
            generation_id=NO_MEMBER,
            member_id="",
            group_instance_id=None,
            topics=tuple(
                make.TxnOffsetCommitRequestTopic(
                    name=topic,
                    partitions=tuple(
                        make.TxnOffsetCommitRequestPartition(
                            partition_index=number,
                            committed_offset=offsets[TopicPartition(topic, number)],
                            committed_leader_epoch=NO_LEADER_EPOCH,
                            committed_metadata=metadata,
                        )
                        for number in numbers
                    ),
                )
                for topic, numbers in by_topic(offsets).items()
            ),
        )

    request = through_kio(
        Api.TXN_OFFSET_COMMIT,
        build,
        version_min=COMMIT_ADDS_GROUP if epoch_bumps else 3,
        version_max=COMMIT_ADDS_GROUP if epoch_bumps else COMMIT_ADDS_GROUP - 1,
    )
    _, reply = ask_coordinator(cluster, Kind.GROUP, group_id, request, _first_error)
    code = _first_error(reply)
    if code:
        raise refused(f"offsets of group {group_id}", code)


def _first_error(reply: Any) -> int:
    codes = [int(each.error_code) for topic in reply.topics for each in topic.partitions]
    return next((code for code in codes if code), int(ErrorCode.NONE))


def _add_group(cluster: Cluster, transaction: OpenTransaction, group_id: str) -> None:
    request = through_kio(
        Api.ADD_OFFSETS_TO_TXN,
        lambda make: make.AddOffsetsToTxnRequest(
            transactional_id=transaction.transactional_id,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.epoch,
            group_id=group_id,
        ),
    )
    _, reply = ask_coordinator(cluster, Kind.TRANSACTION, transaction.transactional_id, request)
    check(f"group {group_id} for transactional id {transaction.transactional_id}", reply)


# -- many coordinators at once ----------------------------------------------------------------------------


def ask_coordinators(
    cluster: Cluster, requests: Mapping[str, Request[T]], code_of: Callable[[T], int]
) -> dict[str, T]:
    """Send a request for each of several transactional ids to its coordinator. Raises unless all are answered."""
    backoff = cluster.backoff()
    answers: dict[str, T] = {}
    while True:
        left = [name for name in requests if name not in answers]
        if not left:
            return answers
        problem: ClientError | None = None
        for node_id, names in _by_coordinator(cluster, left, backoff.left_ms).items():
            for start in range(0, len(names), ASKED_AT_ONCE):
                some = names[start : start + ASKED_AT_ONCE]
                try:
                    replies = _ask_all(cluster, node_id, [requests[name] for name in some])
                except NETWORK_ERRORS as error:
                    problem = error
                    break
                for name, reply in zip(some, replies, strict=True):
                    code = code_of(reply)
                    if code in AGAIN:
                        problem = refused(f"transactional id {name}", code)
                    else:
                        answers[name] = reply
        if problem is not None:
            backoff.pause(problem)


def _by_coordinator(cluster: Cluster, names: Sequence[str], timeout_ms: float) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    try:
        where = _find_all(cluster, names, timeout_ms)
    except NotServed:  # before Kafka 3.0 a request has one key
        where = {name: find_coordinator(cluster, Kind.TRANSACTION, name, timeout_ms) for name in names}
    for name, node_id in where.items():
        found.setdefault(node_id, []).append(name)
    return found


def _find_all(cluster: Cluster, names: Sequence[str], timeout_ms: float) -> dict[str, int]:
    backoff = cluster.backoff(timeout_ms)
    found: dict[str, int] = {}
    while True:
        left = tuple(name for name in names if name not in found)[:ASKED_AT_ONCE]
        if not left:
            return found
        reply = cluster.ask_any(_find_request(left), backoff.left_ms)
        problem: ClientError | None = None
        for answer in reply.coordinators:
            code = int(answer.error_code)
            if not code:
                found[answer.key] = answer.node_id
                continue
            problem = refused(f"coordinator of transactional id {answer.key}", code, answer.error_message)
            if code not in AGAIN:
                raise problem
        if problem is None and not reply.coordinators:
            problem = refused("coordinators", ErrorCode.UNKNOWN_SERVER_ERROR, "the broker left them all out")
        if problem is not None:
            backoff.pause(problem)


def _find_request(names: tuple[str, ...]) -> Request[Any]:
    return through_kio(
        Api.FIND_COORDINATOR,
        lambda make: make.FindCoordinatorRequest(key_type=int(Kind.TRANSACTION), coordinator_keys=names),
        version_min=4,
    )


def _ask_all(cluster: Cluster, node_id: int, requests: Sequence[Request[T]]) -> list[T]:
    if node_id not in cluster.info.brokers:
        cluster.refresh([])
    link = cluster.link(node_id)
    calls = [link.start(each) for each in requests]
    await_calls(cluster, [link], calls)
    return [call.result() for call in calls]


def await_calls(cluster: Cluster, links: Sequence[Link], calls: Sequence[Call[Any]]) -> None:
    """Wait until every call is answered or its connection has ended; calls have the error."""
    limit_ms = cluster.settings.request_timeout_ms
    deadline_ms = cluster.clock.now_ms() + limit_ms
    while not all(call.is_done for call in calls):
        left_ms = deadline_ms - cluster.clock.now_ms()
        if left_ms <= 0:
            for link in links:
                link.close()  # which ends its calls
            return
        for link in cluster.network.wait([each for each in links if each.is_open], left_ms):
            with suppress(*NETWORK_ERRORS):
                link.read()
