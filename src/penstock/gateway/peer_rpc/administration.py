"""What brokers tell each other's gateways about themselves: producers of partitions, disks, configs, the audit.

    answer(context, asked)                         of this broker
    ask_broker(context, broker_id, asked)          of any broker: called here, or sent
    ask_brokers(context, asked)                    of all brokers that are not fenced, at the same time

The client's rights are checked before, by the broker that the client is connected to.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import TopicPartition
from penstock.base.promise import Promise
from penstock.base.steps import Steps, next_tick, sleep
from penstock.coordinator.transactions import requests as transactions
from penstock.coordinator.transactions.hanging import PartitionProducer, producers_of
from penstock.gateway.peer_rpc import messages
from penstock.gateway.shared.config_entries import ConfigEntry, config_entries
from penstock.handlers.log_admin import LOGS_A_TURN
from penstock.handlers.support.context import Context
from penstock.metadata.image import Resource, ResourceType
from penstock.replica import Partition

ANSWER_MS_MAX: Final = 5_000
"""A broker that does not answer in this time is shown without what it would have said."""

CATCH_UP_MS, CATCH_UP_MS_MAX = 20, 3_000
"""A broker reads a change from the metadata log within milliseconds after the one that made it."""


def answer(context: Context, asked: Any) -> Steps[Any]:
    return (yield from ANSWERS[type(asked)](context, asked))


def ask_broker(context: Context, broker_id: int, asked: Any) -> Steps[Any]:
    """The answer of a broker. Raises BROKER_NOT_AVAILABLE if it is fenced or does not answer."""
    if broker_id == context.node_id:
        return (yield from answer(context, asked))
    broker = context.image.brokers.get(broker_id)
    if broker is None or broker.fenced:
        raise KafkaError(f"broker {broker_id} is not available: it is fenced", ErrorCode.BROKER_NOT_AVAILABLE)
    return (yield _send(context, broker_id, asked))


def ask_brokers(context: Context, asked: Any) -> Steps[dict[int, Any]]:
    """The answers of all brokers that are not fenced: a value, or the `KafkaError` of a broker that did not answer."""
    others = [
        each
        for each, broker in sorted(context.image.brokers.items())
        if not broker.fenced and each != context.node_id
    ]
    sent = {each: settled(_send(context, each, asked)) for each in others}
    try:
        answers: dict[int, Any] = {context.node_id: (yield from answer(context, asked))}
    except KafkaError as error:
        answers = {context.node_id: error}
    for each, reply in sent.items():
        answers[each] = yield reply
    return answers


def _send(context: Context, broker_id: int, asked: Any) -> Promise[Any]:
    from penstock.gateway.peer_rpc.client import peer_rpc_of  # noqa: PLC0415  # which imports the service

    return peer_rpc_of(context).send(broker_id, asked, timeout_ms=ANSWER_MS_MAX)


def settled(promise: Promise[Any]) -> Promise[Any]:
    """Resolved with the value or the error."""
    found: Promise[Any] = Promise()
    promise.then(found.resolve, found.resolve)
    return found


# -- transactions --------------------------------------------------------------------------------------------


def _list_transactions(
    context: Context, asked: messages.ListTransactions
) -> Steps[list[transactions.Listed]]:
    if context.transactions.is_loading():
        raise KafkaError(
            f"broker {context.node_id} still loads its transactions. Retry.",
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        )
    wanted = transactions.ListTransactions(
        frozenset(asked.states), frozenset(asked.producer_ids), asked.age_ms_min
    )
    return list(context.transactions.list_transactions(wanted).transactions)
    yield  # makes this a generator; it never waits


def _get_producers(context: Context, asked: messages.GetProducers) -> Steps[list[PartitionProducer]]:
    return producers_of(context.replicas.find(asked.topic_id, asked.partition).log)
    yield


def _find_open(
    context: Context, asked: messages.FindOpenTransactions
) -> Steps[list[messages.OpenTransaction]]:
    now_ms = context.world.now_ms()
    found: list[messages.OpenTransaction] = []
    for count, (name, partition) in enumerate(sorted(context.replicas.partitions.items()), 1):
        if count % LOGS_A_TURN == 0:
            yield next_tick(context.world)
        if not partition.is_leader or partition.log.producers.first_undecided is None:
            continue
        found += [
            messages.OpenTransaction(*name, each)
            for each in producers_of(partition.log)
            if each.may_hang(now_ms, asked.age_ms_min)
        ]
        if len(found) >= asked.limit:
            break
    return found[: asked.limit]


def _abort_open(context: Context, asked: messages.AbortOpenTransaction) -> Steps[PartitionProducer]:
    partition: Partition = context.replicas.find(asked.topic_id, asked.partition)
    name = TopicPartition(partition.topic, asked.partition)
    opened = [each for each in producers_of(partition.log) if each.start_offset >= 0]
    for each in opened:
        if each.start_offset == asked.start_offset:
            yield context.markers.append(name, each.producer_id, each.epoch, each.abort_epoch, False)
            return each
    offsets = ", ".join(map(str, sorted(each.start_offset for each in opened)[:10]))
    others = f"they begin at {offsets}" if opened else "none is open there"
    raise KafkaError(
        f"no open transaction begins at offset {asked.start_offset} of {name}: {others}",
        ErrorCode.INVALID_TXN_STATE,
    )


# -- brokers -------------------------------------------------------------------------------------------------


def _get_log_directory(context: Context, asked: messages.GetLogDirectory) -> Steps[messages.LogDirectory]:
    directory = context.replicas.directory
    logs = list(directory.logs.items())
    sizes: dict[str, list[int]] = {}
    for count, (name, log) in enumerate(logs, 1):
        if count % LOGS_A_TURN == 0:
            yield next_tick(context.world)
        sizes.setdefault(name.topic, []).append(log.size_bytes)
    try:
        total, free = directory.vfs.usage(directory.layout.logs)
    except OSError as error:
        raise KafkaError(
            f"broker {context.node_id} cannot read the space of {directory.layout.logs}: {error.strerror or error}",
            ErrorCode.KAFKA_STORAGE_ERROR,
        ) from error
    topics = tuple(messages.TopicSize(topic, len(each), sum(each)) for topic, each in sorted(sizes.items()))
    return messages.LogDirectory(
        directory.layout.logs,
        total,
        free,
        sum(each.size_bytes for each in topics),
        len(logs),
        topics if asked.with_topics else (),
    )


def _get_log_ranges(context: Context, asked: messages.GetLogRanges) -> Steps[messages.LogRanges]:
    found: messages.LogRanges = []
    for count, (topic_id, number) in enumerate(asked.partitions, 1):
        topic = context.image.topic_by_id(topic_id)
        name = None if topic is None else TopicPartition(topic.name, number)
        partition = None if name is None else context.replicas.partitions.get(name)
        found.append(None if partition is None else (partition.log.log_start, partition.log.log_end))
        if count % LOGS_A_TURN == 0:
            yield next_tick(context.world)
    return found


def _get_configs(context: Context, asked: messages.GetBrokerConfigs) -> Steps[list[ConfigEntry]]:
    until_ms = context.world.now_ms() + CATCH_UP_MS_MAX
    while context.metadata_end < asked.metadata_end and context.world.now_ms() < until_ms:
        yield sleep(context.world, CATCH_UP_MS)
    return config_entries(context, Resource(ResourceType.BROKER, str(context.node_id)))


def _get_audit(context: Context, asked: messages.GetAudit) -> Steps[messages.AuditLines]:
    if context.audit is None:
        return None
    return list(context.audit.recent)[-asked.limit :]
    yield


ANSWERS: Final[Mapping[type[Any], Callable[[Context, Any], Steps[Any]]]] = {
    messages.ListTransactions: _list_transactions,
    messages.GetProducers: _get_producers,
    messages.FindOpenTransactions: _find_open,
    messages.AbortOpenTransaction: _abort_open,
    messages.GetLogDirectory: _get_log_directory,
    messages.GetLogRanges: _get_log_ranges,
    messages.GetBrokerConfigs: _get_configs,
    messages.GetAudit: _get_audit,
}
