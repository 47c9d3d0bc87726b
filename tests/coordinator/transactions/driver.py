"""A coordinator with its log, run as a node would run it, one step at a time."""

from collections.abc import Iterable
from typing import Any

from penstock.base.errors import ErrorCode
from penstock.base.ids import TopicPartition
from penstock.base.outcome import Outcome
from penstock.coordinator.transactions.coordinator import TransactionCoordinator
from penstock.coordinator.transactions.decisions import Settings
from penstock.coordinator.transactions.requests import (
    NEEDS_PRODUCER_ID,
    AddPartitions,
    EndTxn,
    InitProducerId,
    Markers,
    MarkersWritten,
    ProducerEpoch,
    ProducerReply,
    Request,
)
from penstock.coordinator.transactions.schema import Record
from penstock.coordinator.transactions.state import Transaction

NOW_MS = 1_700_000_000_000
ID = "payments"
TIMEOUT_MS = 60_000
P0, P1, P2 = (TopicPartition("orders", number) for number in range(3))
V1, V2 = 0, 2
"""What a client speaks that knows nothing of KIP-890, and one that does."""


def load(
    coordinator: TransactionCoordinator,
    records: Iterable[tuple[bytes, bytes | None]],
    epoch: int,
    now_ms: int,
) -> None:
    for key, value in records:
        coordinator.replay(key, value)
    coordinator.start(epoch, now_ms)


class Driver:
    def __init__(self, settings: Settings = Settings()) -> None:  # noqa: B008
        self.settings = settings
        self.now_ms = NOW_MS
        self.log: list[Record] = []
        self.next_producer_id = 1000
        self.epoch = 0
        self.reload()

    def reload(self) -> TransactionCoordinator:
        """A crash, or a move: what the log has is all that is left."""
        self.epoch += 1
        self.coordinator = TransactionCoordinator(self.settings)
        load(self.coordinator, self.log, self.epoch, self.now_ms)
        return self.coordinator

    def fresh_id(self) -> int:
        self.next_producer_id += 1
        return self.next_producer_id

    def decide(self, request: Request) -> Outcome[Any]:
        outcome = self.coordinator.handle(request, self.now_ms)
        if outcome is NEEDS_PRODUCER_ID:
            outcome = self.coordinator.handle(request, self.now_ms, self.fresh_id())
        assert isinstance(outcome, Outcome)
        return outcome

    def commit(self, outcome: Outcome[Any]) -> Any:
        self.log += outcome.records
        assert not outcome.records or self.coordinator.committed(outcome, self.now_ms)
        return outcome.reply

    def fail(self, outcome: Outcome[Any]) -> None:
        assert self.coordinator.failed(outcome, self.now_ms)

    def ask(self, request: Request) -> Any:
        return self.commit(self.decide(request))

    def tick(self) -> list[Request]:
        """Let time do its work; what it had to do."""
        due = self.coordinator.tick(self.now_ms)
        for each in due:
            self.ask(each)
        return due

    def write_markers(self) -> list[Markers]:
        """Write all that are to be written; what they were."""
        markers = self.coordinator.take_markers()
        for each in markers:
            self.ask(MarkersWritten(each.transactional_id, each.end, each.partitions))
        return markers

    # Short words for what clients do most.

    def init(self, expected: ProducerEpoch | None = None, timeout_ms: int = TIMEOUT_MS) -> ProducerEpoch:
        reply: ProducerReply = self.ask(InitProducerId(ID, timeout_ms, expected))
        assert reply.code is ErrorCode.NONE, reply
        return ProducerEpoch(reply.producer_id, reply.epoch)

    def add(self, producer: ProducerEpoch, *partitions: TopicPartition, version: int = V2) -> ErrorCode:
        code: ErrorCode = self.ask(AddPartitions(ID, producer, frozenset(partitions), version)).code
        return code

    def end(self, producer: ProducerEpoch, *, commit: bool = True, version: int = V2) -> ProducerReply:
        reply: ProducerReply = self.ask(EndTxn(ID, producer, commit, version))
        return reply

    def run(self, producer: ProducerEpoch, *, commit: bool = True, version: int = V2) -> ProducerEpoch:
        """A whole transaction; the producer as it is after it."""
        assert self.add(producer, P0, P1, version=version) is ErrorCode.NONE
        reply = self.end(producer, commit=commit, version=version)
        assert reply.code is ErrorCode.NONE
        self.write_markers()
        return ProducerEpoch(reply.producer_id, reply.epoch) if version == V2 else producer

    def at_epoch(self, epoch: int) -> ProducerEpoch:
        """The id as it is after many epochs, without living through them."""
        before = self.state
        self.log.append(before._replace(epoch=epoch).record(ID, self.settings.transaction_version))
        self.reload()
        return ProducerEpoch(before.producer_id, epoch)

    @property
    def state(self) -> Transaction:
        current = self.coordinator.current(ID)
        assert current is not None
        return current
