"""Routes requests to the transaction coordinators on `__transaction_state`, and writes their records.

    handle -> decide -> append -> (committed) -> apply -> reply
                                                   |
                                                   +-> markers, until every partition has its own

While a write is not committed, its transactional id answers CONCURRENT_TRANSACTIONS. If a write fails and its fate is
unknown, the shard drops its state and loads it again; that also resumes the markers of prepared transactions.
"""

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import ProducerId, TimestampMs, TopicPartition
from penstock.base.internal_topics import TRANSACTIONS_TOPIC
from penstock.base.promise import Promise
from penstock.base.world import World
from penstock.coordinator.runtime.coordinator_log import CoordinatorLog
from penstock.coordinator.runtime.coordinator_shard import CoordinatorShard
from penstock.coordinator.runtime.coordinator_shards import CoordinatorShards
from penstock.coordinator.runtime.transaction_markers import MarkerWriter
from penstock.coordinator.transactions.codes import for_failed_write
from penstock.coordinator.transactions.coordinator import TransactionCoordinator
from penstock.coordinator.transactions.decisions import Settings
from penstock.coordinator.transactions.overview import list_transactions
from penstock.coordinator.transactions.requests import (
    EndTxn,
    ListReply,
    ListTransactions,
    Markers,
    MarkersWritten,
    NeedsProducerId,
    Request,
    VerifyReply,
    refusal,
)
from penstock.metadata.configs import BrokerSettings, broker_setting
from penstock.metadata.image import ClusterImage
from penstock.records import RecordBatch
from penstock.replica import Replicas
from penstock.replica.deposed_leader import may_be_outdated


class ProducerIdSource(Protocol):
    def take(self) -> Promise[Any]:
        """A producer id that no producer has had."""


class TransactionShard(CoordinatorShard):
    """Runs the transaction coordinator of one partition."""

    def __init__(
        self,
        world: World,
        log: CoordinatorLog,
        coordinator: TransactionCoordinator,
        producer_ids: ProducerIdSource,
        markers: MarkerWriter,
        reload: Callable[[], None],
    ) -> None:
        super().__init__(world, log, reload)
        self.coordinator = coordinator
        self._producer_ids = producer_ids
        self._markers = markers

    def replay(self, batches: Iterable[RecordBatch]) -> None:
        for batch in batches:
            if not batch.is_control:
                for record in batch.records():
                    value = None if record.value is None else bytes(record.value)
                    self.coordinator.replay(bytes(record.key or b""), value)

    def start(self) -> None:
        self.coordinator.start(self.log.epoch, self._world.now_ms())
        self._follow_up()

    def drop_state(self) -> None:
        self.coordinator.unload()

    # -- requests --------------------------------------------------------------------------------------

    def handle(self, request: Request) -> Promise[Any]:
        promise: Promise[Any] = Promise()
        error = self.unavailable_error
        if error is not None:
            promise.resolve(refusal(request, error))
        else:
            self._decide(request, promise, None)
        return promise

    def _decide(self, request: Request, promise: Promise[Any], producer_id: ProducerId | None) -> None:
        if not self.is_loaded:
            promise.resolve(refusal(request, ErrorCode.NOT_COORDINATOR))
            return
        now_ms = self._world.now_ms()
        outcome = self.coordinator.handle(request, now_ms, producer_id)
        if isinstance(outcome, NeedsProducerId):
            self._producer_ids.take().then(
                lambda taken: self._decide(request, promise, taken),
                lambda _: promise.resolve(refusal(request, ErrorCode.COORDINATOR_NOT_AVAILABLE)),
            )
            return
        if not outcome.records:
            promise.resolve(self._as_coordinator(request, outcome.reply))
            self._follow_up()
            return

        def answer(reply: Any) -> None:
            if not promise.is_settled:
                promise.resolve(reply)

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
            promise.resolve(refusal(request, for_failed_write(error.code)))
            self._follow_up()

    def _as_coordinator(self, request: Request, reply: Any) -> Any:
        """Replace a final reply by NOT_COORDINATOR if another broker may be the coordinator by now. The success of an
        EndTxn is final, too: it may be that of the transaction before."""
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

    # -- markers and time ----------------------------------------------------------------------------------

    def _follow_up(self) -> None:
        """Write the markers of prepared transactions, and set the timer."""
        if self.is_loaded:
            for markers in self.coordinator.take_markers():
                self._write_markers(markers)
            self.set_timer()

    def _write_markers(self, markers: Markers) -> None:
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
    """The transactional ids whose coordinator is this broker."""

    def __init__(
        self,
        world: World,
        replicas: Replicas,
        settings: BrokerSettings,
        image: Callable[[], ClusterImage],
        producer_ids: ProducerIdSource,
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
        """Apply a new image: follow the leadership of partitions, and the settings."""
        self.shards.follow(image)
        settings = transaction_settings(image, self._settings)
        for shard in self.shards:
            shard.coordinator.settings = settings

    def handle(self, transactional_id: str, request: Request) -> Promise[Any]:
        """Have the coordinator of a transactional id handle a request. Errors are fields of the reply."""
        try:
            shard = self.shards.of(transactional_id)
        except KafkaError as error:
            promise: Promise[Any] = Promise()
            promise.resolve(refusal(request, error.code))
            return promise
        return shard.handle(request)

    def is_loading(self) -> bool:
        """Whether some coordinator on this broker is still loading."""
        return any(each.unavailable_error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS for each in self.shards)

    def list_transactions(self, request: ListTransactions) -> ListReply:
        """List the transactions of all coordinators on this broker."""
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
