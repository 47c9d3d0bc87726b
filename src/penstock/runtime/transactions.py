"""Transactions on `__transaction_state`: each request goes to the coordinator of its id's partition.

    handle --> coordinator decides --> records appended --> (committed) --> state moves --> the reply leaves
                                                                               |
                                                                               +--> markers, until all are written

Where a write fails and it is not known what became of it, the state in memory is thrown away and read anew: markers of
transactions that were decided are handed out again from there.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import ProducerId, TopicPartition
from penstock.base.later import Later
from penstock.base.world import Timer, World
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
from penstock.metadata import BrokerSettings, ClusterImage
from penstock.metadata.configs import broker_setting
from penstock.records import RecordBatch
from penstock.replica import Replicas
from penstock.runtime.markers import MarkerWriter
from penstock.runtime.shard import ShardLog
from penstock.runtime.shards import Shards

logger = logging.getLogger(__name__)

TRANSACTIONS_TOPIC = "__transaction_state"


class IdSource(Protocol):
    def take(self) -> Later[ProducerId | KafkaError]: ...


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


class TransactionShard:
    """The coordinator of one partition, and its driver."""

    def __init__(
        self,
        world: World,
        log: ShardLog,
        coordinator: TransactionCoordinator,
        producer_ids: IdSource,
        markers: MarkerWriter,
        reload: Callable[[], None],
    ) -> None:
        self.log = log
        self.coordinator = coordinator
        self._world = world
        self._producer_ids = producer_ids
        self._markers = markers
        self._reload = reload
        self._is_loaded = False
        self._is_damaged = False
        self._is_gone = False
        self._timer: Timer | None = None
        self._timer_ms = 0

    @property
    def is_loaded(self) -> bool:
        return self._is_loaded

    # -- loading ---------------------------------------------------------------------------------------

    def load(self) -> None:
        self.log.read_all(self._replay, self._loaded, self._damaged)

    def _replay(self, batches: Iterable[RecordBatch]) -> None:
        for batch in batches:
            if batch.is_control:
                continue
            for record in batch.records():
                value = None if record.value is None else bytes(record.value)
                self.coordinator.replay(bytes(record.key or b""), value)

    def _loaded(self) -> None:
        self._is_loaded = True
        self.coordinator.start(self.log.epoch, self._world.now_ms())
        self._follow_up()

    def _damaged(self, error: Exception) -> None:
        self._is_damaged = True
        logger.error("%s: its transactions are not served: %s", self.log.partition.name, error)

    def unload(self) -> None:
        self._is_gone = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.coordinator.unload()

    # -- requests --------------------------------------------------------------------------------------

    def handle(self, request: Request) -> Later[Any]:
        later: Later[Any] = Later()
        if self._is_damaged:
            later.answer(refusal(request, ErrorCode.COORDINATOR_NOT_AVAILABLE))
        elif not self._is_loaded:
            later.answer(refusal(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        else:
            self._decide(request, later, None)
        return later

    def _decide(self, request: Request, later: Later[Any], producer_id: ProducerId | None) -> None:
        if not self._is_loaded or self._is_gone:
            later.answer(refusal(request, ErrorCode.NOT_COORDINATOR))
            return
        now_ms = self._world.now_ms()
        outcome = self.coordinator.handle(request, now_ms, producer_id)
        if isinstance(outcome, NeedsProducerId):
            self._producer_ids.take().then(lambda taken: self._decide_with(request, later, taken))
            return
        if not outcome.records:
            later.answer(outcome.reply)
            self._follow_up()
            return

        def settled(error: KafkaError | None) -> None:
            if error is not None:
                self._lost(error)
                later.answer(refusal(request, for_failed_write(error.code)))
            elif self.coordinator.committed(outcome.token, self._world.now_ms()):
                later.answer(outcome.reply)
                self._follow_up()
            else:
                later.answer(refusal(request, ErrorCode.NOT_COORDINATOR))

        try:
            self.log.append(outcome.records, settled)
        except KafkaError as error:
            self.coordinator.failed(outcome.token, now_ms)
            later.answer(refusal(request, for_failed_write(error.code)))
            self._follow_up()

    def _decide_with(self, request: Request, later: Later[Any], taken: ProducerId | KafkaError) -> None:
        if isinstance(taken, KafkaError):
            later.answer(refusal(request, ErrorCode.COORDINATOR_NOT_AVAILABLE))
        else:
            self._decide(request, later, taken)

    def _lost(self, error: KafkaError) -> None:
        """It is not known whether the records are in the log."""
        if self._is_loaded and not self._is_gone:
            self._is_loaded = False
            logger.warning("%s is read anew: %s", self.log.partition.name, error)
            self._world.call_soon(self._reload)

    # -- what follows ----------------------------------------------------------------------------------

    def _follow_up(self) -> None:
        """Write the markers of what was decided, and look at the clock."""
        if not self._is_loaded or self._is_gone:
            return
        for markers in self.coordinator.take_markers():
            self._write(markers)
        deadline_ms = self.coordinator.next_deadline_ms()
        if deadline_ms is None:
            return
        if self._timer is not None:
            if self._timer_ms <= deadline_ms:
                return
            self._timer.cancel()
        self._timer_ms = deadline_ms
        self._timer = self._world.call_later(max(0, deadline_ms - self._world.now_ms()), self._tick)

    def _write(self, markers: Markers) -> None:
        def written(name: TopicPartition) -> None:
            if self._is_loaded and not self._is_gone:
                self.handle(MarkersWritten(markers.transactional_id, markers.end, frozenset({name})))

        self._markers.write(markers, written, lambda: self._is_gone or not self._is_loaded)

    def _tick(self) -> None:
        self._timer = None
        if self._is_loaded and not self._is_gone:
            for request in self.coordinator.tick(self._world.now_ms()):
                self.handle(request)
            self._follow_up()


class Transactions:
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
        self.shards: Shards[TransactionShard] = Shards(TRANSACTIONS_TOPIC, world, replicas, self._make)

    def _make(self, number: int, log: ShardLog) -> TransactionShard:
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

    def handle(self, transactional_id: str, request: Request) -> Later[Any]:
        """Ask the coordinator of an id; refused in the reply's own way where it is not here."""
        try:
            shard = self.shards.of(transactional_id)
        except KafkaError as error:
            later: Later[Any] = Later()
            later.answer(refusal(request, error.code))
            return later
        return shard.handle(request)

    def is_loading(self) -> bool:
        """Whether some coordinator here does not know its transactions yet."""
        return any(not each.is_loaded for each in self.shards)

    def list_transactions(self, request: ListTransactions) -> ListReply:
        """Of all coordinators here."""
        replies = [each.handle(request).value for each in self.shards if each.is_loaded]
        return ListReply(
            tuple(listed for reply in replies for listed in reply.transactions),
            replies[0].unknown_states if replies else (),
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
