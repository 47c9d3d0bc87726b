"""Transactions on `__transaction_state`: each request goes to the coordinator of its id's partition.

    handle --> coordinator decides --> records appended --> (committed) --> state moves --> the reply leaves
                                                                               |
                                                                               +--> markers, until all are written

Where a write takes long, who asked for it is told to come again, and until it is committed its id is busy. Where a
write fails and it is not known what became of it, the state in memory is thrown away and read anew: markers of
transactions that were decided are handed out again from there.
"""

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import ProducerId, TimestampMs, TopicPartition
from penstock.base.promise import Promise
from penstock.base.world import World
from penstock.coordinator.runtime.coordinator_log import CoordinatorLog
from penstock.coordinator.runtime.coordinator_shard import CoordinatorShard
from penstock.coordinator.runtime.coordinator_shards import CoordinatorShards
from penstock.coordinator.runtime.transaction_markers import MarkerWriter
from penstock.coordinator.transactions import (
    Described,
    DescribeTransaction,
    EndTxn,
    InitProducerId,
    ListReply,
    ListTransactions,
    Markers,
    MarkersWritten,
    NeedsProducerId,
    ProducerReply,
    Reply,
    Request,
    Settings,
    TransactionCoordinator,
    VerifyPartitions,
    VerifyReply,
)
from penstock.coordinator.transactions.codes import for_failed_write
from penstock.coordinator.transactions.overview import list_transactions
from penstock.metadata import BrokerSettings, ClusterImage
from penstock.metadata.configs import broker_setting
from penstock.records import RecordBatch
from penstock.replica import Replicas
from penstock.replica.deposed_leader import may_be_outdated

TRANSACTIONS_TOPIC = "__transaction_state"


class IdSource(Protocol):
    def take(self) -> Promise[ProducerId | KafkaError]: ...


def refusal(request: Request, code: ErrorCode) -> Any:
    """The reply to a request that was not done, whatever it was."""
    match request:
        case InitProducerId() | EndTxn():
            return ProducerReply(code)
        case VerifyPartitions():
            return VerifyReply(dict.fromkeys(request.partitions, code))
        case DescribeTransaction():
            return Described(code)
        case ListTransactions():
            return ListReply((), ())
    return Reply(code)


class TransactionShard(CoordinatorShard):
    """The coordinator of one partition, and its driver."""

    def __init__(
        self,
        world: World,
        log: CoordinatorLog,
        coordinator: TransactionCoordinator,
        producer_ids: IdSource,
        markers: MarkerWriter,
        reload: Callable[[], None],
    ) -> None:
        super().__init__(world, log, reload)
        self.coordinator = coordinator
        self._producer_ids = producer_ids
        self._markers = markers

    def take(self, batches: Iterable[RecordBatch]) -> None:
        for batch in batches:
            if not batch.is_control:
                for record in batch.records():
                    value = None if record.value is None else bytes(record.value)
                    self.coordinator.replay(bytes(record.key or b""), value)

    def begin(self) -> None:
        self.coordinator.start(self.log.epoch, self._world.now_ms())
        self._follow_up()

    def forget(self) -> None:
        self.coordinator.unload()

    # -- requests --------------------------------------------------------------------------------------

    def handle(self, request: Request) -> Promise[Any]:
        later: Promise[Any] = Promise()
        trouble = self.trouble
        if trouble is not None:
            later.resolve(refusal(request, trouble))
        else:
            self._decide(request, later, None)
        return later

    def _decide(self, request: Request, later: Promise[Any], producer_id: ProducerId | None) -> None:
        if not self.is_loaded:
            later.resolve(refusal(request, ErrorCode.NOT_COORDINATOR))
            return
        now_ms = self._world.now_ms()
        outcome = self.coordinator.handle(request, now_ms, producer_id)
        if isinstance(outcome, NeedsProducerId):
            self._producer_ids.take().then(lambda taken: self._decide_with(request, later, taken))
            return
        if not outcome.records:
            later.resolve(self._as_coordinator(request, outcome.reply))
            self._follow_up()
            return

        def answer(reply: Any) -> None:
            if not later.is_settled:
                later.resolve(reply)

        def settled(error: KafkaError | None) -> None:
            if error is not None:
                self.lost(error)
                answer(refusal(request, for_failed_write(error.code)))
            elif self.coordinator.committed(outcome, self._world.now_ms()):
                answer(outcome.reply)
                self._follow_up()
            else:
                answer(refusal(request, ErrorCode.NOT_COORDINATOR))

        def overdue() -> None:
            answer(refusal(request, for_failed_write(ErrorCode.REQUEST_TIMED_OUT)))

        try:
            self.log.append(outcome.records, settled, overdue)
        except KafkaError as error:
            self.coordinator.failed(outcome, now_ms)
            later.resolve(refusal(request, for_failed_write(error.code)))
            self._follow_up()

    def _as_coordinator(self, request: Request, reply: Any) -> Any:
        """A reply from memory, unless it is one that only the coordinator may give, and that may be another now. So is
        that a transaction has ended: it may be the one before."""
        codes = (
            reply.codes.values()
            if isinstance(reply, VerifyReply)
            else (getattr(reply, "code", ErrorCode.NONE),)
        )
        partition = self.log.partition
        is_end = isinstance(request, EndTxn) and ErrorCode.NONE in codes
        if (is_end and partition.may_be_deposed) or any(may_be_outdated(partition, code) for code in codes):
            return refusal(request, ErrorCode.NOT_COORDINATOR)
        return reply

    def _decide_with(self, request: Request, later: Promise[Any], taken: ProducerId | KafkaError) -> None:
        if isinstance(taken, KafkaError):
            later.resolve(refusal(request, ErrorCode.COORDINATOR_NOT_AVAILABLE))
        else:
            self._decide(request, later, taken)

    # -- what follows ----------------------------------------------------------------------------------

    def _follow_up(self) -> None:
        """Write the markers of what was decided, and look at the clock."""
        if self.is_loaded:
            for markers in self.coordinator.take_markers():
                self._write(markers)
            self.set_timer()

    def _write(self, markers: Markers) -> None:
        def written(name: TopicPartition) -> None:
            if self.is_loaded:
                self.handle(MarkersWritten(markers.transactional_id, markers.end, frozenset({name})))

        self._markers.write(markers, written, lambda: not self.is_loaded)

    def next_deadline_ms(self) -> TimestampMs | None:
        return self.coordinator.next_deadline_ms()

    def tick(self) -> None:
        for request in self.coordinator.tick(self._world.now_ms()):
            self.handle(request)


class TransactionCoordinatorService:
    """All transactional ids whose coordinator is on this node."""

    def __init__(
        self,
        world: World,
        replicas: Replicas,
        settings: BrokerSettings,
        image: Callable[[], ClusterImage],
        producer_ids: IdSource,
        markers: MarkerWriter,
    ) -> None:
        self._world = world
        self._settings = settings
        self._image = image
        self._producer_ids = producer_ids
        self._markers = markers
        self.shards = CoordinatorShards[TransactionShard](TRANSACTIONS_TOPIC, world, replicas, self._make)

    def _make(self, number: int, log: CoordinatorLog) -> TransactionShard:
        return TransactionShard(
            self._world,
            log,
            TransactionCoordinator(transaction_settings(self._image(), self._settings)),
            self._producer_ids,
            self._markers,
            lambda: self.shards.reload(number),
        )

    def follow(self, image: ClusterImage) -> None:
        """The image has moved: partitions may be led here or no longer, and settings may be others."""
        self.shards.follow(image)
        settings = transaction_settings(image, self._settings)
        for shard in self.shards:
            shard.coordinator.settings = settings

    def handle(self, transactional_id: str, request: Request) -> Promise[Any]:
        """Ask the coordinator of an id; refused in the reply's own way where it is not here."""
        try:
            shard = self.shards.of(transactional_id)
        except KafkaError as error:
            later: Promise[Any] = Promise()
            later.resolve(refusal(request, error.code))
            return later
        return shard.handle(request)

    def is_loading(self) -> bool:
        """Whether some coordinator here does not know its transactions yet."""
        return any(each.trouble is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS for each in self.shards)

    def list_transactions(self, request: ListTransactions) -> ListReply:
        """Of all coordinators here."""
        replies = [each.handle(request).value for each in self.shards if each.is_loaded]
        return ListReply(
            tuple(listed for reply in replies for listed in reply.transactions),
            list_transactions(request, (), self._world.now_ms()).unknown_states,
        )


def transaction_settings(image: ClusterImage, settings: BrokerSettings) -> Settings:
    def number(name: str) -> int:
        return int(broker_setting(name, image, settings) or 0)

    level: int = image.features.get("transaction.version", 0)
    return Settings(
        timeout_ms_max=number("transaction.max.timeout.ms"),
        id_expiration_ms=number("transactional.id.expiration.ms"),
        transaction_version=level,
    )
