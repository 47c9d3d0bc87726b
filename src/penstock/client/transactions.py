"""Lists, describes and aborts transactions.

A transaction is open in two places: its coordinator has the transactional id and its partitions, and each of these
partitions has the producer and the first offset. A transaction that is open in a partition and unknown to every
coordinator hangs: it never ends, and read_committed consumers do not read past it. There are two ways to abort
one:

    terminate     by its transactional id: a new producer with the id makes the coordinator abort
    write_abort   in one partition, by its producer: an abort marker, without the coordinator
"""

from collections.abc import Callable, Iterable, Sequence
from struct import Struct
from struct import error as struct_error
from typing import Any, NamedTuple

from penstock.base.errors import ErrorCode
from penstock.base.ids import ProducerId, TimestampMs, TopicPartition
from penstock.coordinator.transactions.hanging import IDLE, PartitionProducer
from penstock.wire import Api, MalformedRequest, MalformedResponse, write_request
from penstock.wire.messages import request_builder
from penstock.wire.primitives import INT16, INT32, read_count, read_string, skip_tags
from penstock.wire.request import Request, through_kio

from .cluster import Cluster
from .coordinators import Kind, ask_brokers, ask_coordinator, ask_leader
from .errors import BrokerRefused, check, refused
from .identity import init_transactions
from .topology import by_topic

ANY_AGE = -1
PRODUCERS_BATCH = 500
"""Partitions in one DescribeProducers: a search in a large cluster is many small requests."""


class ListedTransaction(NamedTuple):
    transactional_id: str
    producer_id: ProducerId
    state: str
    coordinator: int


class Transaction(NamedTuple):
    transactional_id: str
    state: str
    producer_id: ProducerId
    producer_epoch: int
    timeout_ms: int
    started_ms: TimestampMs | None
    """Start time of the open or else of the last transaction; None if there was none."""
    partitions: tuple[TopicPartition, ...]
    """Partitions without a marker yet."""
    coordinator: int = -1


class Filters(NamedTuple):
    states: tuple[str, ...] = ()
    producer_ids: tuple[ProducerId, ...] = ()
    age_ms_min: int = ANY_AGE
    pattern: str | None = None
    """A regular expression that the whole transactional id matches."""


def list_transactions(cluster: Cluster, filters: Filters = Filters()) -> list[ListedTransaction]:  # noqa: B008  (a constant)
    """Transactional ids of all coordinators, with the state of their last transaction."""
    version_min = 2 if filters.pattern is not None else 1 if filters.age_ms_min >= 0 else 0
    request = through_kio(
        Api.LIST_TRANSACTIONS,
        lambda make: make.ListTransactionsRequest(
            state_filters=filters.states,
            producer_id_filters=filters.producer_ids,
            duration_filter=filters.age_ms_min,
            transactional_id_pattern=filters.pattern,
        ),
        version_min=version_min,
    )
    found = []
    for node_id, reply in ask_brokers(cluster, request, "transactions"):
        if reply.unknown_state_filters:
            raise BrokerRefused(f"{reply.unknown_state_filters[0]!r} is no state of a transaction")
        found += [
            ListedTransaction(each.transactional_id, each.producer_id, each.transaction_state, node_id)
            for each in reply.transaction_states
        ]
    if filters.age_ms_min >= 0:
        # In Kafka, a transaction that has not begun began in 1970, so idle ids pass its filter.
        found = [each for each in found if each.state not in IDLE]
    return sorted(found)


# -- the coordinator's side -------------------------------------------------------------------------------

_TIMEOUT_START = Struct(">iq")
_PRODUCER = Struct(">qh")


class _Described(NamedTuple):
    code: int
    transaction: Transaction


def describe_transaction(cluster: Cluster, transactional_id: str) -> Transaction:
    request = describe_request(transactional_id)
    node_id, answer = ask_coordinator(
        cluster, Kind.TRANSACTION, transactional_id, request, lambda reply: reply[0].code if reply else 0
    )
    what = f"transactional id {transactional_id}"
    if not answer:
        raise refused(what, ErrorCode.UNKNOWN_SERVER_ERROR, "the broker left it out of its reply")
    if answer[0].code:
        raise refused(what, answer[0].code)
    return answer[0].transaction._replace(coordinator=node_id)


def describe_request(transactional_id: str) -> Request[list[_Described]]:
    """DescribeTransactions of one id, parsed here: kio rejects times before 1970, and -1 means that no transaction is
    open."""
    api, version = Api.DESCRIBE_TRANSACTIONS, 0
    make = request_builder(api, version)
    entity = make.DescribeTransactionsRequest(transactional_ids=(transactional_id,))
    body = write_request(api, version, entity)
    return Request(api, version, version, lambda _: body, read_described)


def read_described(body: memoryview, version: int) -> list[_Described]:
    try:
        return _read_states(body)
    except (IndexError, struct_error, UnicodeDecodeError, MalformedRequest) as error:
        raise MalformedResponse(f"DescribeTransactions {version}: {error}") from error


def _read_states(body: memoryview) -> list[_Described]:
    count, at = read_count(body, INT32.size, True, 2)
    states = []
    for _ in range(count):
        (code,) = INT16.unpack_from(body, at)
        name, at = read_string(body, at + INT16.size, True)
        state, at = read_string(body, at, True)
        timeout_ms, started_ms = _TIMEOUT_START.unpack_from(body, at)
        at += _TIMEOUT_START.size
        producer_id, epoch = _PRODUCER.unpack_from(body, at)
        partitions, at = _read_partitions(body, at + _PRODUCER.size)
        at = skip_tags(body, at)
        started = started_ms if started_ms >= 0 else None
        states.append(
            _Described(code, Transaction(name, state, producer_id, epoch, timeout_ms, started, partitions))
        )
    if skip_tags(body, at) != len(body):
        raise MalformedRequest("there are bytes after the response")
    return states


def _read_partitions(body: memoryview, at: int) -> tuple[tuple[TopicPartition, ...], int]:
    partitions = []
    topics, at = read_count(body, at, True, 3)
    for _ in range(topics):
        topic, at = read_string(body, at, True)
        count, at = read_count(body, at, True, INT32.size)
        for _ in range(count):
            partitions.append(TopicPartition(topic, INT32.unpack_from(body, at)[0]))
            at += INT32.size
        at = skip_tags(body, at)
    return tuple(sorted(partitions)), at


def terminate(cluster: Cluster, transaction: Transaction) -> None:
    """Abort an open transaction by a new producer with its id, and with the same transaction timeout."""
    init_transactions(cluster, transaction.transactional_id, transaction.timeout_ms)


# -- the partitions' side ---------------------------------------------------------------------------------


def describe_producers(cluster: Cluster, partition: TopicPartition) -> list[PartitionProducer]:
    """The producers of a partition, by id."""
    request = _producers_request([partition])

    def code_of(reply: Any) -> int:
        return int(_partition_of(reply, partition).error_code)

    answer = _partition_of(ask_leader(cluster, partition, request, code_of), partition)
    check(f"producers of {partition}", answer)
    return _producers(answer)


def _producers_request(partitions: Sequence[TopicPartition]) -> Request[Any]:
    return through_kio(
        Api.DESCRIBE_PRODUCERS,
        lambda make: make.DescribeProducersRequest(
            topics=tuple(
                make.TopicRequest(name=topic, partition_indexes=tuple(indexes))
                for topic, indexes in by_topic(partitions).items()
            )
        ),
    )


def _producers(answer: Any) -> list[PartitionProducer]:
    return sorted(
        PartitionProducer(
            each.producer_id,
            each.producer_epoch,
            each.last_sequence,
            each.last_timestamp,
            each.coordinator_epoch,
            each.current_txn_start_offset,
        )
        for each in answer.active_producers
    )


def _partition_of(reply: Any, partition: TopicPartition) -> Any:
    for topic in reply.topics:
        for each in topic.partitions:
            if (topic.name, each.partition_index) == partition:
                return each
    raise refused(
        f"partition {partition}", ErrorCode.UNKNOWN_SERVER_ERROR, "the broker left it out of its reply"
    )


def write_abort(cluster: Cluster, partition: TopicPartition, producer: PartitionProducer) -> None:
    """Write an abort marker for a producer to a partition, in the name of its coordinator."""

    def build(make: Any) -> Any:
        topic = make.WritableTxnMarkerTopic(name=partition.topic, partition_indexes=(partition.partition,))
        marker = make.WritableTxnMarker(
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            transaction_result=False,
            topics=(topic,),
            coordinator_epoch=producer.abort_epoch,
            transaction_version=0,
        )
        return make.WriteTxnMarkersRequest(markers=(marker,))

    def code_of(reply: Any) -> int:
        if not reply.markers:
            return int(ErrorCode.UNKNOWN_SERVER_ERROR)
        return int(_partition_of(reply.markers[0], partition).error_code)

    code = code_of(ask_leader(cluster, partition, through_kio(Api.WRITE_TXN_MARKERS, build), code_of))
    if code:
        raise refused(f"abort marker for {partition}", code)


class Hanging(NamedTuple):
    partition: TopicPartition
    producer: PartitionProducer
    transactional_id: str | None
    """The transactional id of the producer id, if a coordinator knows it."""


def find_hanging(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    age_ms_min: int,
    on_error: Callable[[Exception], None] = lambda _: None,
) -> list[Hanging]:
    """Transactions that are open in a partition, and that no coordinator will end.

    Only those whose producer has written nothing for age_ms_min: a partition may be written a moment before its
    coordinator has it, or after.
    """
    now_ms = cluster.clock.wall_ms()
    candidates = [
        (partition, producer)
        for partition, producers in _all_producers(cluster, partitions, on_error).items()
        for producer in producers
        if producer.may_hang(now_ms, age_ms_min)
    ]
    if not candidates:
        return []
    ids = tuple(sorted({producer.producer_id for _, producer in candidates}))
    names = {
        each.producer_id: each.transactional_id
        for each in list_transactions(cluster, Filters(producer_ids=ids))
    }
    covered: dict[str, frozenset[TopicPartition]] = {}
    for name in names.values():
        try:
            covered[name] = frozenset(describe_transaction(cluster, name).partitions)
        except BrokerRefused as error:
            if error.code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise
    found = []
    for partition, producer in candidates:
        owner = names.get(producer.producer_id)
        if producer.hangs(partition, None if owner is None else covered.get(owner, frozenset())):
            found.append(Hanging(partition, producer, owner))
    return sorted(found)


def _all_producers(
    cluster: Cluster, partitions: Iterable[TopicPartition], on_error: Callable[[Exception], None]
) -> dict[TopicPartition, list[PartitionProducer]]:
    """Producers of partitions that have a leader. An error of one leader is reported, and the rest continues."""
    by_leader: dict[int, list[TopicPartition]] = {}
    for partition in partitions:
        leader = cluster.leader(partition)
        if leader is None:
            on_error(refused(f"partition {partition}", ErrorCode.LEADER_NOT_AVAILABLE))
        else:
            by_leader.setdefault(leader.leader, []).append(partition)
    found = {}
    for node_id, led in by_leader.items():
        for start in range(0, len(led), PRODUCERS_BATCH):
            batch = led[start : start + PRODUCERS_BATCH]
            reply = cluster.ask_node(node_id, _producers_request(batch))
            for partition in batch:
                answer = _partition_of(reply, partition)
                if int(answer.error_code):
                    on_error(
                        refused(f"producers of {partition}", int(answer.error_code), answer.error_message)
                    )
                else:
                    found[partition] = _producers(answer)
    return found
