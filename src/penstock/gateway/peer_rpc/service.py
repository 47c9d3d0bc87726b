"""Handles requests of other brokers' gateways. They are never forwarded again."""

import logging
from bisect import bisect_right
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Final

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import Offset, Uuid
from penstock.base.promise import Promise
from penstock.base.steps import RunningSteps, Steps, next_tick
from penstock.coordinator.groups import requests as groups
from penstock.coordinator.transactions import requests as transactions
from penstock.gateway.peer_rpc import administration, messages
from penstock.gateway.peer_rpc.held_replicas import bounds_of, held_replicas
from penstock.gateway.shared.access import TOPIC, allow
from penstock.gateway.shared.group_lag_metrics import ITEMS_A_TICK, LAG_LOOKUPS, LOOKUP_COST
from penstock.gateway.shared.log_inspection import PartitionView, ViewLimits, view_partitions
from penstock.gateway.shared.new_records import NewRecord, RecordResult
from penstock.gateway.shared.segment_inspection import (
    BatchPage,
    IndexView,
    Lookup,
    inspect_batches,
    inspect_indexes,
    inspect_lookup,
)
from penstock.gateway.shared.topic_figures import TopicFigures
from penstock.handlers.list_offsets import LOOKUPS_A_TURN
from penstock.handlers.log_admin import new_start
from penstock.handlers.support.context import Context, Session
from penstock.metadata.acls import Operation
from penstock.metadata.image import Topic
from penstock.replica import Partition
from penstock.search.query import PartitionPlan, Portion

logger = logging.getLogger(__name__)

SUMMARIZED_A_TURN: Final = 1_000
"""Positions and members of summarized groups in one tick: a millisecond or two."""


class PeerService:
    def __init__(self, context: Context, gateway: Any) -> None:
        self._context = context
        self._gateway = gateway
        self._answers: dict[type[Any], Callable[[Session, Any], Steps[Any]]] = {
            messages.Write: self._write,
            messages.WriteAudit: self._write_audit,
            messages.FindKeys: self._find_keys,
            messages.GetBounds: self._get_bounds,
            messages.GetLagTimes: self._get_lag_times,
            messages.GetOffsetBack: self._get_offset_back,
            messages.View: self._view,
            messages.GetTopicFigures: self._get_topic_figures,
            messages.GetReplicas: self._get_replicas,
            messages.InspectBatches: self._inspect_batches,
            messages.InspectIndexes: self._inspect_indexes,
            messages.InspectLookup: self._inspect_lookup,
            messages.DeleteRecords: self._delete_records,
            messages.PlanSearch: self._plan_search,
            messages.SearchChunks: self._search_chunks,
            messages.GetHistory: lambda _, asked: gateway.history.history(asked),
            messages.GetLagHistory: lambda _, asked: gateway.lag_history.history(asked),
            messages.GetLags: lambda _, asked: lags_here(context, asked.offsets),
            messages.GetEvents: lambda _, asked: gateway.events.since(asked),
            messages.GetNodeStatus: lambda _, __: gateway.status.status(),
            messages.ChangeSchemas: self._change_schemas,
            messages.Join: gateway.members.join,
            messages.Leave: gateway.members.leave,
            messages.Consume: self._consume,
            messages.Commit: gateway.members.commit,
            messages.SummarizeGroups: self._summarize_groups,
            groups.ListGroups: self._list_groups,
            groups.LeaveGroup: self._of_group,
            groups.OffsetCommit: self._of_group,
            groups.OffsetDelete: self._of_group,
            groups.OffsetFetch: self._of_group,
            groups.DescribeGroups: self._of_groups,
            groups.DeleteGroups: self._of_groups,
            groups.ConsumerGroupDescribe: self._of_groups,
            transactions.DescribeTransaction: self._of_transaction,
            transactions.InitProducerId: self._of_transaction,
            **dict.fromkeys(administration.ANSWERS, self._administration),
        }

    def answer(self, session: Session, data: bytes) -> Promise[bytes]:
        answer: Promise[bytes] = Promise()
        try:
            asked = messages.read(data)
        except KafkaError as error:
            answer.fail(error)
            return answer

        def failed(error: Exception) -> None:
            if not isinstance(error, KafkaError):
                logger.error("a request of another broker failed", exc_info=error)
                error = KafkaError(f"{type(error).__name__}: {error}")
            answer.resolve(messages.write_error(error))

        RunningSteps(
            self._answers[type(asked)](session, asked),
            lambda reply: answer.resolve(messages.write_reply(reply)),
            failed,
        )
        return answer

    # -- partitions ------------------------------------------------------------------------------------

    def _write(self, session: Session, asked: messages.Write) -> Steps[list[messages.WriteResult]]:
        topic = self._context.image.topics.get(asked.topic)
        if topic is None or topic.id != asked.topic_id:
            raise KafkaError(
                f"this broker does not know topic {asked.topic!r} yet", ErrorCode.UNKNOWN_TOPIC_ID
            )
        records = [
            NewRecord(
                asked.topic,
                each.key,
                each.value,
                each.headers,
                each.partition,
                each.idempotency_key,
                each.timestamp,
            )
            for each in asked.lines
        ]
        results: list[RecordResult] = yield self._gateway.producer.write_passed_on(session, records)
        return [
            messages.WriteResult(each.partition, each.offset)
            if each.error is None
            else messages.WriteResult(-1, -1, int(each.error.code), str(each.error), each.may_be_written)
            for each in results
        ]

    def _write_audit(self, _: Session, asked: messages.WriteAudit) -> Steps[None]:
        from penstock.gateway.shared.audit_topic import write_lines  # noqa: PLC0415  # few clusters have one

        if asked.topic != self._context.audit_topic or self._topic(asked.topic_id).name != asked.topic:
            raise KafkaError(
                f"{asked.topic!r} is not this broker's audit.topic, which is {self._context.audit_topic!r}",
                ErrorCode.INVALID_REQUEST,
            )
        yield from write_lines(
            self._context, self._context.replicas.find(asked.topic_id, asked.partition), asked.lines
        )

    def _topic(self, topic_id: Uuid) -> Topic:
        topic: Topic | None = self._context.image.topic_by_id(topic_id)
        if topic is None:
            raise KafkaError("this broker does not know the topic yet", ErrorCode.UNKNOWN_TOPIC_ID)
        return topic

    def _find_keys(self, _: Session, asked: messages.FindKeys) -> Steps[messages.KeyPlaces]:
        topic = self._topic(asked.topic_id)
        found: messages.KeyPlaces = yield from self._gateway.producer.find_keys(topic, asked.digests)
        return found

    def _get_bounds(self, _: Session, asked: messages.GetBounds) -> Steps[list[messages.BoundsResult]]:
        looked = []
        for count, (topic_id, number) in enumerate(asked.partitions, 1):
            try:
                partition = self._context.replicas.find(topic_id, number)
                looked.append(messages.BoundsResult(0, "", bounds_of(partition, asked.times)))
            except KafkaError as error:
                looked.append(messages.BoundsResult(int(error.code), str(error)))
            if count % LOOKUPS_A_TURN == 0:
                yield next_tick(self._context.world)
        return looked

    def _get_lag_times(self, _: Session, asked: messages.GetLagTimes) -> Steps[messages.LagTimes]:
        return (yield from lag_times(self._context, asked.offsets))

    def _get_offset_back(self, _: Session, asked: messages.GetOffsetBack) -> Steps[int]:
        partition = self._context.replicas.find(asked.topic_id, asked.partition)
        return partition.log.reader.offset_back(asked.stop, asked.size_bytes)
        yield  # makes this a generator; it never waits

    def _view(self, session: Session, asked: messages.View) -> Steps[list[PartitionView]]:
        wanted = ViewLimits(asked.segments_max, asked.entries_max)
        topic = self._topic(asked.topic_id)
        allow(self._context, session, Operation.DESCRIBE, TOPIC, topic.name)
        return (yield from view_partitions(self._context, topic, wanted, asked.numbers))

    def _get_topic_figures(self, _: Session, asked: messages.GetTopicFigures) -> Steps[list[TopicFigures]]:
        """Sizes of topics by their ids, between brokers: the sender shows a client those that it may see."""
        figures: list[TopicFigures] = yield self._gateway.topic_sampler.figures()
        first = 0 if asked.after is None else bisect_right(figures, asked.after, key=attrgetter("topic_id"))
        return figures[first : first + messages.FIGURES_A_REPLY]

    def _get_replicas(self, _: Session, asked: messages.GetReplicas) -> Steps[list[messages.HeldReplica]]:
        return (yield from held_replicas(self._context, self._topic(asked.topic_id), asked.partitions))

    def _led_to_inspect(self, session: Session, asked: messages.Inspect) -> Partition:
        partition = self._context.replicas.find(asked.topic_id, asked.partition)
        allow(self._context, session, Operation.DESCRIBE, TOPIC, partition.topic)
        return partition

    def _inspect_batches(self, session: Session, asked: messages.InspectBatches) -> Steps[BatchPage]:
        partition = self._led_to_inspect(session, asked)
        return (yield from inspect_batches(self._context, partition, asked.offset, asked.limit))

    def _inspect_indexes(self, session: Session, asked: messages.InspectIndexes) -> Steps[IndexView]:
        partition = self._led_to_inspect(session, asked)
        return (yield from inspect_indexes(self._context, partition, asked.offset, asked.limit))

    def _inspect_lookup(self, session: Session, asked: messages.InspectLookup) -> Steps[Lookup]:
        partition = self._led_to_inspect(session, asked)
        return (yield from inspect_lookup(self._context, partition, asked.offset, asked.time))

    def _delete_records(self, session: Session, asked: messages.DeleteRecords) -> Steps[int]:
        partition = self._context.replicas.find(asked.topic_id, asked.partition)
        allow(self._context, session, Operation.DELETE, TOPIC, partition.topic)
        return delete_records(self._context, partition, asked.before)
        yield  # makes this a generator; it never waits

    def _plan_search(self, session: Session, asked: messages.PlanSearch) -> Steps[list[PartitionPlan]]:
        allow(self._context, session, Operation.READ, TOPIC, self._topic(asked.topic_id).name)
        plans: list[PartitionPlan] = yield from self._gateway.searches.plan_here(asked)
        return plans

    def _search_chunks(self, session: Session, asked: messages.SearchChunks) -> Steps[Portion]:
        allow(self._context, session, Operation.READ, TOPIC, self._topic(asked.topic_id).name)
        portion: Portion = yield self._gateway.searches.search_here(asked)
        return portion

    def _change_schemas(
        self, session: Session, asked: messages.ChangeSchemas
    ) -> Steps[messages.SchemasChanged]:
        changed: messages.SchemasChanged = yield from self._gateway.schemas.change_here(session, asked.change)
        return changed

    # -- groups ----------------------------------------------------------------------------------------

    def _consume(self, session: Session, asked: messages.Consume) -> Steps[messages.ConsumedRecords]:
        consumed = yield from self._gateway.members.consume(session, asked)
        records = tuple(
            messages.ConsumedRecord(
                each.offset,
                each.timestamp,
                each.key,
                each.value,
                tuple((name.encode(errors="surrogateescape"), value) for name, value in each.headers),
            )
            for each in consumed.records
        )
        return messages.ConsumedRecords(records, consumed.next_offset)

    def _list_groups(self, _: Session, asked: groups.ListGroups) -> Steps[Any]:
        return (yield self._context.groups.list_groups(asked))

    def _summarize_groups(
        self, _: Session, asked: messages.SummarizeGroups
    ) -> Steps[messages.GroupSummaries]:
        return (yield from summarize_groups(self._context, asked.groups, asked.positions_max))

    def _of_group(
        self,
        _: Session,
        asked: groups.LeaveGroup | groups.OffsetCommit | groups.OffsetDelete | groups.OffsetFetch,
    ) -> Steps[Any]:
        return (yield self._context.groups.handle(asked.group, asked))

    def _of_groups(
        self, _: Session, asked: groups.DescribeGroups | groups.DeleteGroups | groups.ConsumerGroupDescribe
    ) -> Steps[Any]:
        """For one group, which this broker coordinates: gateways send one request for each group."""
        if len(asked.groups) != 1:
            raise KafkaError(f"{len(asked.groups)} groups, expected one", ErrorCode.INVALID_REQUEST)
        return (yield self._context.groups.handle(asked.groups[0], asked))

    # -- administration --------------------------------------------------------------------------------

    def _of_transaction(
        self, _: Session, asked: transactions.DescribeTransaction | transactions.InitProducerId
    ) -> Steps[Any]:
        return (yield self._context.transactions.handle(asked.transactional_id, asked))

    def _administration(self, _: Session, asked: Any) -> Steps[Any]:
        """The sender has checked that the client is authorized."""
        return (yield from administration.answer(self._context, asked))


def lag_times(context: Context, offsets: Sequence[tuple[Uuid, int, Offset]]) -> Steps[messages.LagTimes]:
    """The age of the first record at or after offsets of partitions that this broker leads, in seconds."""
    ages: messages.LagTimes = []
    for count, (topic_id, number, offset) in enumerate(offsets, 1):
        partition = context.replicas.led(topic_id, number)
        try:
            ages.append(
                None
                if partition is None
                else context.replicas.record_times.lag_seconds(partition, offset, context.world.now_ms())
            )
        except KafkaError:
            ages.append(None)  # damaged there; those who read it are told
        if count % LOOKUPS_A_TURN == 0:
            yield next_tick(context.world)
    return ages


def summarize_groups(
    context: Context, names: Sequence[str], positions_max: int
) -> Steps[messages.GroupSummaries]:
    """Summaries of groups that this broker coordinates, up to a number of positions."""
    found: list[groups.GroupSummary] = []
    handled = positions = in_slice = 0
    for name in names:
        if positions >= positions_max:
            break
        handled += 1
        summary = _summary(context, name)
        if summary is not None:
            found.append(summary)
            positions += len(summary.positions)
            in_slice += len(summary.positions) + summary.members
        in_slice += 1
        if in_slice >= SUMMARIZED_A_TURN:
            in_slice = 0
            yield next_tick(context.world)
    return messages.GroupSummaries(tuple(found), handled)


def _summary(context: Context, group: str) -> groups.GroupSummary | None:
    """Raises if this broker cannot say: it does not coordinate the group, or is loading it."""
    shard = context.groups.shards.of(group)
    if shard.unavailable_error is not None:
        raise KafkaError(
            f"the coordinator of group {group!r} is not available. Retry.", shard.unavailable_error
        )
    return shard.coordinator.summary(group)


def lags_here(context: Context, offsets: Sequence[tuple[Uuid, int, Offset]]) -> Steps[messages.Lags]:
    """How far offsets are behind the high watermark of partitions that this broker leads.

    Seconds need the timestamp of a record. The number of timestamps that are looked up in logs is limited.
    """
    found: messages.Lags = []
    times = context.replicas.record_times
    lookups_left = LAG_LOOKUPS
    count = 0
    for topic_id, number, offset in offsets:
        partition = context.replicas.led(topic_id, number)
        if partition is None:
            found.append(None)
            continue
        records = max(partition.high_watermark - offset, 0)
        seconds = None
        if not times.is_known(partition, offset):
            lookups_left -= 1
            count += LOOKUP_COST if lookups_left >= 0 else 0
        if times.is_known(partition, offset) or lookups_left >= 0:
            try:
                seconds = times.lag_seconds(partition, offset, context.world.now_ms())
            except KafkaError:
                seconds = None  # damaged there; those who read it are told
        found.append((records, seconds))
        count += 1
        if count >= ITEMS_A_TICK:
            count = 0
            yield next_tick(context.world)
    return found


def delete_records(context: Context, partition: Partition, before: int) -> int:
    """Delete a partition's records before an offset; return the new log start offset."""
    name = partition.name
    start = new_start(context, name, before, is_allowed=True)
    context.replicas.directory.checkpoints.save_log_starts({name: start})
    return partition.delete_records(start)
