"""Transactional producers, partitions and a coordinator that crashes, with all that must hold between them.

Everything happens one step at a time. Between the decision of the coordinator and its commit anything else may
happen; markers reach some partitions and not others; producers stall, come back and find that another one has taken
their transactional id. Partitions are real in what counts: they keep `storage.Producers`, which refuses what a
partition's leader would refuse.

Each transaction of a producer writes records with a tag of its own. What must hold of a tag: its records are
committed on all partitions, or aborted on all; committed, if its producer was told so; aborted, if it was told that,
or never asked for a commit.
"""

from collections.abc import Callable
from enum import Enum
from itertools import count
from typing import Any, NamedTuple

from tests.coordinator.transactions.driver import NOW_MS, load
from tests.storage.world import make_batch

from penstock.base.errors import ErrorCode, KafkaError
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
    Request,
    VerifyPartitions,
)
from penstock.coordinator.transactions.schema import Record
from penstock.coordinator.transactions.state import Transaction
from penstock.records import RecordBatch, end_txn_marker
from penstock.records.batch import patch
from penstock.storage.producers import Producers

TIMEOUT_MS = 1000
DAY_MS = 24 * 60 * 60 * 1000


class Fate(Enum):
    COMMITTED = "committed"
    ABORTED = "aborted"


class Partition:
    """A partition's leader, as far as transactions go."""

    def __init__(self, name: TopicPartition) -> None:
        self.name = name
        self.producers = Producers()
        self.open: dict[int, list[int]] = {}
        """Tags of records that are not decided, by producer id."""
        self.decided: list[tuple[int, Fate]] = []
        self.markers_of: dict[int, int] = {}
        """How many markers each producer had here: a question that was answered before the last one is void."""

    def has_open(self, producer: ProducerEpoch) -> bool:
        known = self.producers.by_id.get(producer.producer_id)
        return known is not None and known.epoch == producer.epoch and known.txn_first_offset is not None

    def append(self, producer: ProducerEpoch, tag: int) -> None:
        known = self.producers.by_id.get(producer.producer_id)
        sequence = 0 if known is None or known.epoch != producer.epoch else known.last_sequence + 1
        data = make_batch(1, size=1, producer=(*producer, sequence), transactional=True)
        patch(data, self.producers.end_offset, 0)
        batch = RecordBatch.parse(data)
        assert self.producers.check(batch) is None
        self.producers.apply(batch)
        self.open.setdefault(producer.producer_id, []).append(tag)

    def mark(self, markers: Markers) -> None:
        data = end_txn_marker(
            *markers.producer, markers.commit, markers.coordinator_epoch, NOW_MS, self.producers.end_offset
        )
        batch = RecordBatch.parse(data)
        self.producers.check_marker(batch)
        self.producers.apply(batch)
        producer_id = markers.producer.producer_id
        self.markers_of[producer_id] = self.markers_of.get(producer_id, 0) + 1
        fate = Fate.COMMITTED if markers.commit else Fate.ABORTED
        self.decided += [(tag, fate) for tag in self.open.pop(producer_id, [])]


class Client:
    """A producer that owns a transactional id, or believes so."""

    def __init__(self, name: int, transactional_id: str, version: int) -> None:
        self.name = name
        self.transactional_id = transactional_id
        self.version = version
        self.producer: ProducerEpoch | None = None
        """What it may write with; None before it has begun, and once it knows that it is fenced."""
        self.former: ProducerEpoch | None = None
        """What it had before it asked to go on (KIP-360), and names until it is answered."""
        self.grant = 0
        """Number of the InitProducerId that it lives by."""
        self.tag: int | None = None
        """Of the transaction that it is in."""
        self.added: set[TopicPartition] = set()
        """What it has added to this transaction itself."""
        self.ending: bool | None = None
        """What it asked for, and has no answer to; it asks for nothing else."""
        self.is_waiting = False

    def leave(self) -> None:
        """Be in no transaction."""
        self.tag = self.ending = None
        self.added = set()

    def stop(self) -> None:
        self.leave()
        self.producer = self.former = None
        self.is_waiting = False


class Pending(NamedTuple):
    outcome: Outcome[Any]
    client: Client | None
    then: Callable[[Any], None]


class World:
    def __init__(self, level: int = 2, first_epoch: int = 0) -> None:
        self.settings = Settings(
            timeout_ms_max=TIMEOUT_MS, id_expiration_ms=7 * DAY_MS, transaction_version=level
        )
        self.now_ms = NOW_MS
        self.log: list[Record] = []
        self.ids, self.tags, self.grants = count(100), count(), count(1)
        self.partitions = {
            name: Partition(name) for name in (TopicPartition("orders", number) for number in range(3))
        }
        versions = (0, 2) if level >= 2 else (0, 0)
        self.clients = [
            Client(n, transactional_id, versions[n % 2])
            for n, transactional_id in enumerate(["a", "a", "a", "b", "b"])
        ]
        self.owner: dict[str, int] = {}
        """By transactional id: the latest grant."""
        self.asked_to_commit: set[int] = set()
        self.told: dict[int, Fate] = {}
        self.pending: list[Pending] = []
        self.unwritten: list[Markers] = []
        """Handed out, and not reported as written yet."""
        self.stale: list[Markers] = []
        """Of coordinators that have been deposed: on their way still."""
        self.reported: list[MarkersWritten] = []
        if first_epoch:
            for each in "ab":
                before = Transaction(next(self.ids), first_epoch, TIMEOUT_MS, self.now_ms)
                self.log.append(before.record(each, level))
        self.coordinator_epoch = 0
        self.start()

    # The coordinator and its log.

    def start(self) -> None:
        self.coordinator_epoch += 1
        self.coordinator = TransactionCoordinator(self.settings)
        load(self.coordinator, self.log, self.coordinator_epoch, self.now_ms)
        self.unwritten = self.coordinator.take_markers()

    def crash(self, written: int) -> None:
        """The first few of what was decided have reached the log; nobody hears of it."""
        for each in self.pending[:written]:
            self.log += each.outcome.records
        for client in {each.client for each in self.pending if each.client is not None}:
            client.is_waiting = False
        self.pending = []
        self.stale += self.unwritten
        self.reported = []
        self.start()

    def ask(self, request: Request, client: Client | None, then: Callable[[Any], None]) -> None:
        outcome = self.coordinator.handle(request, self.now_ms)
        if outcome is NEEDS_PRODUCER_ID:
            outcome = self.coordinator.handle(request, self.now_ms, next(self.ids))
        assert isinstance(outcome, Outcome)
        if not outcome.records:
            then(outcome.reply)
            return
        if client is not None:
            client.is_waiting = True
        self.pending.append(Pending(outcome, client, then))

    def commit(self, hears: bool = True) -> None:
        """The oldest decision is in the log; the reply may be lost."""
        if not self.pending:
            return
        done = self.pending.pop(0)
        self.log += done.outcome.records
        assert self.coordinator.committed(done.outcome, self.now_ms)
        self.unwritten += self.coordinator.take_markers()
        self._reply(done, hears)

    def fail(self) -> None:
        """The oldest decision could not be written."""
        if not self.pending:
            return
        done = self.pending.pop(0)
        assert self.coordinator.failed(done.outcome, self.now_ms)
        self._reply(done, hears=False)

    def _reply(self, done: Pending, hears: bool) -> None:
        if done.client is not None:
            if not done.client.is_waiting:
                return  # it has gone meanwhile
            done.client.is_waiting = False
        if hears:
            done.then(done.outcome.reply)

    def tick(self, wait_ms: int) -> None:
        self.now_ms += wait_ms
        for request in self.coordinator.tick(self.now_ms):
            self.ask(request, None, lambda _: None)

    # Markers.

    def mark(self, number: int, names: frozenset[TopicPartition], says_so: bool = True) -> None:
        """Some of the markers that are to be written are, and are reported, or the report is late."""
        if not self.unwritten:
            return
        markers = self.unwritten[number % len(self.unwritten)]
        done = names & markers.partitions
        for name in sorted(done):
            self.partitions[name].mark(markers)
        if says_so and done:
            self._report(MarkersWritten(markers.transactional_id, markers.end, done))
            left = markers.partitions - done
            self.unwritten.remove(markers)
            if left:
                self.unwritten.append(markers._replace(partitions=left))

    def _report(self, report: MarkersWritten) -> None:
        self.reported.append(report)
        self.ask(report, None, lambda _: None)

    def report_again(self, number: int) -> None:
        if self.reported:
            self.ask(self.reported[number % len(self.reported)], None, lambda _: None)

    def mark_stale(self, number: int) -> None:
        """A deposed coordinator's markers arrive: refused, or those that its successor will write too."""
        if not self.stale:
            return
        markers = self.stale.pop(number % len(self.stale))
        for name in sorted(markers.partitions):
            try:
                self.partitions[name].mark(markers)
            except KafkaError as error:
                if error.code not in (
                    ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                    ErrorCode.INVALID_PRODUCER_EPOCH,
                ):
                    raise

    # Clients.

    def init(self, client: Client, goes_on: bool) -> None:
        """Begin, or begin again; whatever it was in the middle of is given up."""
        if client.is_waiting:
            return
        expected = client.former = (client.producer or client.former) if goes_on else None
        client.producer = None
        client.leave()
        grant = next(self.grants)

        def given(reply: Any) -> None:
            if reply.code is ErrorCode.NONE:
                client.producer, client.grant = ProducerEpoch(reply.producer_id, reply.epoch), grant
                self.owner[client.transactional_id] = grant
            elif reply.code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                client.stop()

        self.ask(InitProducerId(client.transactional_id, TIMEOUT_MS, expected), client, given)

    def produce(self, client: Client, name: TopicPartition) -> None:
        producer, partition = client.producer, self.partitions[name]
        if producer is None or client.is_waiting or client.ending is not None:
            return
        # A client of version 1 must add each partition of each transaction itself; the partition cannot tell.
        if partition.has_open(producer) and (client.version >= 2 or name in client.added):
            self._append(client, producer, partition)
            return
        seen = partition.markers_of.get(producer.producer_id, 0)

        def added(reply: Any) -> None:
            if reply.code is not ErrorCode.NONE:
                self._refused(client, reply.code)
            elif client.version < 2:
                client.added.add(name)
                question = VerifyPartitions(client.transactional_id, producer, frozenset({name}))
                self.ask(question, client, lambda answer: verified(answer.codes[name]))
            else:
                verified(ErrorCode.NONE)

        def verified(code: ErrorCode) -> None:
            if code is ErrorCode.NONE and partition.markers_of.get(producer.producer_id, 0) == seen:
                self._append(client, producer, partition)

        request = AddPartitions(client.transactional_id, producer, frozenset({name}), client.version)
        self.ask(request, client, added)

    def _append(self, client: Client, producer: ProducerEpoch, partition: Partition) -> None:
        if client.tag is None:
            client.tag = next(self.tags)
        try:
            partition.append(producer, client.tag)
        except KafkaError as error:
            self._refused(client, error.code)
        else:
            self._succeeded(client)

    def end(self, client: Client, commit: bool) -> None:
        producer, tag = client.producer, client.tag
        if producer is None or client.is_waiting:
            return
        if client.ending is not None:
            commit = client.ending
        elif tag is None and (commit or client.version < 2):
            return
        client.ending = commit
        if commit and tag is not None:
            self.asked_to_commit.add(tag)

        def ended(reply: Any) -> None:
            if reply.code is ErrorCode.NONE:
                self._succeeded(client)
                if tag is not None:
                    self.told[tag] = Fate.COMMITTED if commit else Fate.ABORTED
                client.leave()
                if client.version >= 2:
                    client.producer = ProducerEpoch(reply.producer_id, reply.epoch)
            elif reply.code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                self._refused(client, reply.code)

        self.ask(EndTxn(client.transactional_id, producer, commit, client.version), client, ended)

    def _refused(self, client: Client, code: ErrorCode) -> None:
        """What is final for a producer is final; what it can abort for, it aborts for."""
        if code is ErrorCode.CONCURRENT_TRANSACTIONS:
            return
        client.stop()

    def _succeeded(self, client: Client) -> None:
        assert client.grant == self.owner[client.transactional_id], "a producer that was fenced has succeeded"

    # What holds.

    def check(self) -> None:
        fates: dict[int, Fate] = {}
        for partition in self.partitions.values():
            for tag, fate in partition.decided:
                assert fates.setdefault(tag, fate) is fate, f"tag {tag} is committed here and aborted there"
                assert self.told.get(tag, fate) is fate, (
                    f"tag {tag} is {fate}, its producer was told otherwise"
                )
                assert fate is Fate.ABORTED or tag in self.asked_to_commit, (
                    f"nobody asked to commit tag {tag}"
                )

    def check_reload(self) -> None:
        """The log alone gives the same state, but for what is never in it."""
        other = TransactionCoordinator(self.settings)
        load(other, self.log, self.coordinator_epoch, self.now_ms)
        for each in "ab":
            held, loaded = self.coordinator.current(each), other.current(each)
            assert (held is None) == (loaded is None)
            if held is not None:
                assert held._replace(last_epoch=-1) == loaded

    def settle(self) -> None:
        """Let everything that is under way come to its end, and nobody begin anything."""
        for client in self.clients:
            client.stop()
        for _ in range(12):
            while self.pending:
                self.commit()
            while self.unwritten:
                self.mark(0, frozenset(self.partitions))
            self.tick(TIMEOUT_MS)
        assert not self.pending
        assert not self.unwritten
        for each in "ab":
            current = self.coordinator.current(each)
            assert current is None or current.state.is_at_rest
        for partition in self.partitions.values():
            assert partition.producers.first_undecided is None, "a transaction hangs"
            assert not any(partition.open.values())
        self.check()
        self.check_reload()
