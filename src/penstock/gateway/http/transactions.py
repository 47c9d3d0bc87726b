"""Transactions: listed, described, found where they hang, aborted.

A transaction is open in two places: its coordinator has the transactional id and its partitions, and each of these
partitions has the producer and the first offset. What hangs is decided by `coordinator.transactions.hanging`, with the
knowledge of all coordinators: ids that the client may not see count, and are not shown.
"""

from heapq import nsmallest
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import INT64_MAX, TimestampMs, TopicPartition
from penstock.base.steps import Steps
from penstock.coordinator.transactions.hanging import IDLE, OPEN, PartitionProducer
from penstock.coordinator.transactions.state import State
from penstock.gateway.http.protocol.messages import HttpError, Query, Request, Response, Routes, json
from penstock.gateway.http.protocol.parameters import GROUP_CHARS_MAX, partition_in
from penstock.gateway.peer_rpc import messages
from penstock.gateway.peer_rpc.administration import ask_broker, ask_brokers
from penstock.gateway.peer_rpc.retry import retry_while_moving
from penstock.gateway.peer_rpc.routed_partition import RoutedPartition
from penstock.gateway.peer_rpc.transaction_coordinators import (
    coordinator_of,
    describe_transaction,
    fence,
    list_transactions,
)
from penstock.gateway.shared.access import ALTER_CLUSTER, TOPIC, TRANSACTIONAL_ID, Need, Rule
from penstock.handlers.support.context import Context
from penstock.handlers.support.ticks import chosen_in_ticks
from penstock.metadata.acls import Operation

LISTED: Final = 1_000
LISTED_MAX: Final = 10_000
HANGING_MAX: Final = 1_000
"""Open transactions of a broker that are examined."""

HANGING_AGE_MS: Final = 15 * 60_000
"""As in kafka-transactions: the largest timeout that brokers allow by default."""

_STATES: Final = tuple(each.title for each in State)
_DESCRIBE: Final = Need(Operation.DESCRIBE, TRANSACTIONAL_ID, "transactional_id")
_READ_TOPIC: Final = Need(Operation.READ, TOPIC, "topic")

ROUTES = Routes("transactions")


class TransactionListing(msgspec.Struct):
    transactional_id: str
    state: str
    """`Ongoing` while a transaction is open; `PrepareCommit` and `PrepareAbort` while markers are written."""
    producer_id: int
    coordinator: int
    """The broker that coordinates it."""
    started_ms: int | None
    """Start time of the open or else of the last transaction; null if there was none."""


class TransactionList(msgspec.Struct):
    transactions: list[TransactionListing]
    """In order of transactional id."""
    next: str | None
    """The `after` of the next page; null on the last page."""


class PartitionName(msgspec.Struct):
    topic: str
    partition: int


class TransactionDescription(msgspec.Struct):
    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    coordinator: int
    timeout_ms: int
    """After this time the coordinator aborts an open transaction."""
    started_ms: int | None
    partitions: list[PartitionName]
    """Partitions without a marker yet."""
    is_open: bool
    """Whether it can be aborted."""


class AbortResponse(msgspec.Struct):
    transactional_id: str
    producer_epoch: int
    """The epoch that fences the former producer."""
    partitions: list[PartitionName]
    """The partitions that got abort markers."""
    status: str = "aborted"


class ProducerDescription(msgspec.Struct):
    producer_id: int
    producer_epoch: int
    last_sequence: int | None
    last_timestamp_ms: int | None
    coordinator_epoch: int | None
    """Epoch of the coordinator that ended its last transaction."""
    start_offset: int | None
    """First offset of its open transaction; null if it has none."""
    is_in_doubt: bool
    """The end of the transaction may be lost with a damaged part of the log. To abort it accepts the loss."""


class ProducerList(msgspec.Struct):
    topic: str
    partition: int
    producers: list[ProducerDescription]


class HangingTransaction(msgspec.Struct):
    topic: str
    partition: int
    start_offset: int
    producer_id: int
    producer_epoch: int
    last_timestamp_ms: int
    """When its last record was written."""
    transactional_id: str | None
    """Of the producer id, if a coordinator knows it and the client may see it."""
    is_in_doubt: bool


class HangingTransactions(msgspec.Struct):
    transactions: list[HangingTransaction]
    unavailable: list[int]
    """Brokers that did not answer: transactions of partitions that they lead are missing."""


class AbortInPartitionRequest(msgspec.Struct, forbid_unknown_fields=True):
    start_offset: Annotated[int, Meta(ge=0, le=INT64_MAX)]
    """First offset of the open transaction."""


class AbortInPartitionResponse(msgspec.Struct):
    topic: str
    partition: int
    producer_id: int
    start_offset: int
    status: str = "aborted"


def _time(at_ms: TimestampMs) -> int | None:
    return at_ms if at_ms >= 0 else None


# -- of coordinators -----------------------------------------------------------------------------------------


@ROUTES.add(
    "GET",
    "/transactions",
    "List transactional ids of all coordinators, in order.",
    query=(
        Query("after", str, "Only ids after this one, in order.", max=GROUP_CHARS_MAX),
        Query("limit", int, "Maximum number of ids.", default=LISTED, min=1, max=LISTED_MAX),
        Query("state", list[str], "Only ids in one of these states.", one_of=_STATES, is_unique=True),
        Query(
            "older_than_ms",
            int,
            "Only transactions that are open for longer than this.",
            min=0,
            max=INT64_MAX,
        ),
    ),
    answer=TransactionList,
    rule=Rule(shows=(_DESCRIBE,)),
)
def _list(gateway: Any, request: Request) -> Steps[Response]:
    context: Context = gateway.context
    after, limit, age_ms = (request.query[each] for each in ("after", "limit", "older_than_ms"))
    wanted = messages.ListTransactions(
        tuple(request.query["state"] or ()), age_ms_min=-1 if age_ms is None else age_ms
    )
    listed = yield from list_transactions(context, wanted)
    shown = yield from chosen_in_ticks(
        context.world,
        listed,
        lambda name: (
            (after is None or name > after)
            # As in Kafka, an id whose transaction has not begun passes the filter by age.
            and (age_ms is None or listed[name][1].state not in IDLE)
            and context.permits(request.session, Operation.DESCRIBE, TRANSACTIONAL_ID, name)
        ),
    )
    found = nsmallest(limit + 1, shown)
    rows = [
        TransactionListing(name, each.state, each.producer_id, broker_id, _time(each.started_ms))
        for name, (broker_id, each) in ((name, listed[name]) for name in found[:limit])
    ]
    return json(TransactionList(rows, found[limit - 1] if len(found) > limit else None))


@ROUTES.add(
    "GET",
    "/transactions/{transactional_id}",
    "Describe a transactional id and its transaction.",
    answer=TransactionDescription,
    errors=(404,),
    rule=Rule((_DESCRIBE,), shows=(Need(Operation.DESCRIBE, TOPIC, "topic"),)),
)
def _describe(gateway: Any, request: Request) -> Steps[Response]:
    context: Context = gateway.context
    name = _id_in(request)
    described = yield from describe_transaction(context, name)
    return json(
        TransactionDescription(
            name,
            described.state,
            described.producer_id,
            described.epoch,
            coordinator_of(context, name),
            described.timeout_ms,
            _time(described.started_ms),
            _shown_partitions(context, request, described.partitions),
            described.state in OPEN,
        )
    )


def _shown_partitions(
    context: Context, request: Request, partitions: tuple[TopicPartition, ...]
) -> list[PartitionName]:
    return [
        PartitionName(*each)
        for each in partitions
        if context.permits(request.session, Operation.DESCRIBE, TOPIC, each.topic)
    ]


def _id_in(request: Request) -> str:
    name = request.path["transactional_id"]
    if not 0 < len(name) <= GROUP_CHARS_MAX:
        raise HttpError(
            400, "bad_parameter", f"the transactional id has more than {GROUP_CHARS_MAX} characters"
        )
    return name


@ROUTES.add(
    "POST",
    "/transactions/{transactional_id}/abort",
    "Abort the open transaction of a transactional id, and fence its producer.",
    answer=AbortResponse,
    errors=(404, 409),
    rule=Rule((Need(Operation.WRITE, TRANSACTIONAL_ID, "transactional_id"),)),
)
def _abort(gateway: Any, request: Request) -> Steps[Response]:
    context: Context = gateway.context
    name = _id_in(request)
    described = yield from describe_transaction(context, name)
    if described.state not in OPEN:
        raise HttpError(
            409,
            "no_open_transaction",
            f"{name!r} has no transaction to abort, it is in state {described.state}",
        )
    fenced = yield from fence(context, name, described.timeout_ms)
    partitions = _shown_partitions(context, request, described.partitions)
    return json(AbortResponse(name, fenced.epoch, partitions))


# -- in partitions -------------------------------------------------------------------------------------------


def _ask_leader(context: Context, partition: RoutedPartition, asked: Any) -> Steps[Any]:
    def attempt() -> Steps[Any]:
        leader = context.node_id if partition.here is not None else partition.leader
        return (yield from ask_broker(context, leader, asked))

    return retry_while_moving(context, attempt)


@ROUTES.add(
    "GET",
    "/topics/{topic}/partitions/{partition}/producers",
    "Idempotent and transactional producers of a partition, with their open transactions.",
    answer=ProducerList,
    errors=(404,),
    rule=Rule((_READ_TOPIC,)),
)
def _producers(gateway: Any, request: Request) -> Steps[Response]:
    context: Context = gateway.context
    partition = partition_in(context, request)
    found = yield from _ask_leader(context, partition, messages.GetProducers(*partition.key))
    return json(ProducerList(partition.topic, partition.number, [_producer(each) for each in found]))


def _producer(each: PartitionProducer) -> ProducerDescription:
    return ProducerDescription(
        each.producer_id,
        each.epoch,
        each.last_sequence if each.last_sequence >= 0 else None,
        _time(each.last_timestamp),
        each.coordinator_epoch if each.coordinator_epoch >= 0 and not each.is_in_doubt else None,
        each.start_offset if each.start_offset >= 0 else None,
        each.is_in_doubt,
    )


@ROUTES.add(
    "GET",
    "/hanging-transactions",
    "Find transactions that are open in a partition and that no coordinator will end.",
    query=(
        Query(
            "older_than_ms",
            int,
            "Only transactions that got no record for this long.",
            default=HANGING_AGE_MS,
            min=0,
            max=INT64_MAX,
        ),
    ),
    answer=HangingTransactions,
    rule=Rule(shows=(_READ_TOPIC,)),
)
def _hanging(gateway: Any, request: Request) -> Steps[Response]:
    context: Context = gateway.context
    asked = messages.FindOpenTransactions(request.query["older_than_ms"], HANGING_MAX)
    answers = yield from ask_brokers(context, asked)
    fenced = [each for each, broker in context.image.brokers.items() if broker.fenced]
    missing = [each for each, answer in answers.items() if isinstance(answer, KafkaError)]
    candidates: list[messages.OpenTransaction] = [
        each for answer in answers.values() if not isinstance(answer, KafkaError) for each in answer
    ]
    owners, covered = yield from _coordinated(context, {each.producer.producer_id for each in candidates})
    found = []
    for each in candidates:
        name, producer = TopicPartition(each.topic, each.partition), each.producer
        owner = owners.get(producer.producer_id)
        if producer.hangs(name, None if owner is None else covered[owner]) and context.permits(
            request.session, Operation.READ, TOPIC, name.topic
        ):
            is_shown = owner is not None and context.permits(
                request.session, Operation.DESCRIBE, TRANSACTIONAL_ID, owner
            )
            found.append(
                HangingTransaction(
                    *name,
                    producer.start_offset,
                    producer.producer_id,
                    producer.epoch,
                    producer.last_timestamp,
                    owner if is_shown else None,
                    producer.is_in_doubt,
                )
            )
    found.sort(key=lambda each: (each.topic, each.partition, each.start_offset))
    return json(HangingTransactions(found, sorted({*missing, *fenced})))


def _coordinated(
    context: Context, producer_ids: set[int]
) -> Steps[tuple[dict[int, str], dict[str, frozenset[TopicPartition]]]]:
    """The transactional ids of producer ids, and the partitions that their coordinators will still end."""
    if not producer_ids:
        return {}, {}
    listed = yield from list_transactions(
        context, messages.ListTransactions(producer_ids=tuple(sorted(producer_ids)))
    )
    owners = {each.producer_id: name for name, (_, each) in listed.items()}
    covered: dict[str, frozenset[TopicPartition]] = {}
    for name in owners.values():
        try:
            described = yield from describe_transaction(context, name)
            covered[name] = frozenset(described.partitions)
        except KafkaError as error:
            if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise
            covered[name] = frozenset()
    return owners, covered


@ROUTES.add(
    "POST",
    "/topics/{topic}/partitions/{partition}/producers/abort",
    "Abort a hanging transaction in one partition: write an abort marker without its coordinator. Only for a "
    "transaction of `/hanging-transactions`: one that its coordinator still commits would be committed in part.",
    body=AbortInPartitionRequest,
    answer=AbortInPartitionResponse,
    errors=(404, 409),
    rule=Rule((ALTER_CLUSTER,)),
)
def _abort_in_partition(gateway: Any, request: Request) -> Steps[Response]:
    context: Context = gateway.context
    partition = partition_in(context, request)
    start_offset = request.body.start_offset
    asked = messages.AbortOpenTransaction(*partition.key, start_offset)
    ended = yield from _ask_leader(context, partition, asked)
    return json(AbortInPartitionResponse(partition.topic, partition.number, ended.producer_id, start_offset))
