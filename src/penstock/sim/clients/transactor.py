"""Drives one transactional id: finds its coordinator, initialises the producer, then runs transactions.

Each transaction is a queue of steps, one request each. A step is repeated until it gets a final reply, across
reconnects and restarts of nodes. A transaction that cannot continue is aborted, and a fenced producer starts over.

    transaction.version 1    AddPartitionsToTxn, Produce; AddOffsetsToTxn, TxnOffsetCommit; EndTxn
    transaction.version 2    Produce; TxnOffsetCommit; EndTxn, which gives the next epoch
"""

from collections.abc import Callable

from penstock.base.errors import ErrorCode
from penstock.base.ids import TopicPartition
from penstock.records import BatchOptions, build_batch
from penstock.sim.checkers.history import (
    Acked,
    Batch,
    CommitSent,
    Initialised,
    InitSent,
    OffsetCommit,
    OffsetsAcked,
    OffsetsSent,
    ProducedRecord,
    RequestRefused,
    Sent,
    Txn,
    TxnEnd,
    TxnEnded,
)
from penstock.sim.clients import group_messages, messages, txn_messages
from penstock.sim.clients.client import NOT_THERE, Client, code_name
from penstock.sim.clients.step_queue import StepQueue
from penstock.sim.clients.txn_plan import (
    AGAIN,
    ALL,
    ELSEWHERE,
    EXPECTED_FROM,
    FENCED,
    MEMBER_GONE,
    NOT_YET,
    VERSION_1_MAX,
    VERSION_2_MIN,
    TxnSettings,
    TxnWork,
)
from penstock.wire import Api
from penstock.wire.peers import Address

STRAY_US_MAX = 30_000_000
"""How long a request may still be in flight on a connection that its client has closed."""


class Transactor(StepQueue):
    def __init__(self, client: Client, terms: TxnSettings, ended: Callable[[Txn], None]) -> None:
        super().__init__(client)
        self.terms = terms
        self.partitions: list[int] = []
        """Partitions of the topic; empty until known."""
        self._topic = messages.TopicName(terms.topic, None)
        self._leaders: dict[int, Address] = {}
        self._coordinator: Address | None = None
        self._group_coordinator: Address | None = None
        """Coordinator of the group whose offsets are committed in the transaction."""
        self.txn: Txn | None = None
        self.committed_count = 0
        self._ended = ended
        """Called after every transaction."""
        self._producer = txn_messages.ProducerIdentity(terms.transactional_id)
        self._sequences: dict[int, int] = {}
        self._unacked: list[Batch] = []
        self._encoded: dict[Batch, bytes] = {}
        self._added: set[int] = set()
        self._has_added = False
        self._unsure = 0
        """Number of sent commits that may have taken effect."""
        self._begun_ms = 0
        self._count = 0
        self._batch_count = 0
        self._inits_open = 0
        """Number of unanswered InitProducerId requests."""
        self._stray_until_us = 0
        """Until then such a request may still be in flight, and fence this producer when it arrives."""

    def narrow(self, api: Api, low: int, high: int) -> tuple[int, int]:
        if api is Api.FIND_COORDINATOR and self._client.context.is_cluster:
            low = max(low, 1)  # version 0 supports groups only
        if self.terms.is_version_2:
            return max(low, VERSION_2_MIN.get(api, low)), high
        return low, min(high, VERSION_1_MAX.get(api, high))

    # -- what its client calls -------------------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        """Whether a transaction can begin."""
        return not self._steps and self._producer.producer_id >= 0

    def resume(self) -> None:
        """Continue on a new connection."""
        self._interrupt()
        self._is_resumed = True
        if self._producer.producer_id < 0 and self._init not in self._steps:
            self._steps.appendleft(self._init)
        self._steps.appendleft(self._meet_topic)
        self._steps.appendleft(self._find)
        self._go_on()

    def lose(self) -> None:
        """The connection was lost."""
        self._interrupt()
        self._is_resumed = False
        while self._steps and self._steps[0] in (self._find, self._meet_topic):
            self._steps.popleft()

    def begin(self, work: TxnWork) -> Txn:
        assert self.is_ready
        self._count += 1
        txn = self.txn = Txn(self._client.name, self._count)
        self._begun_ms = self._client.context.schedule.now_ms
        self._unsure = 0
        self._has_added = False
        self._added = set()
        for each in work.rounds:
            self._steps.append(lambda batches=each: self._open_round(batches))  # type: ignore[misc]
            if not self.terms.is_version_2:
                self._steps.append(lambda batches=each: self._add_partitions(sorted(batches)))  # type: ignore[misc]
            self._steps.append(self._produce)
        if work.member is not None and work.positions:
            group = work.member.group
            self._steps.append(lambda: self._find_group(group))
            if not self.terms.is_version_2:
                self._steps.append(lambda: self._add_offsets(group))
            self._steps.append(lambda: self._commit_offsets(work))
        self._steps.append(lambda: self._end(commit=work.commit))
        self._client.trace(f"begins {txn}")
        self._go_on()
        return txn

    def abort(self) -> None:
        """Abort the open transaction, unless its commit was already sent."""
        if self.txn is not None and not self.txn.commit_sends:
            self._give_up()

    def forget(self) -> None:
        """Forget the producer's identity and its transaction, as after a crash."""
        self._interrupt()
        self._steps.clear()
        self._leave_txn()
        self._become(txn_messages.ProducerIdentity(self.terms.transactional_id))

    # -- what becomes of a step -------------------------------------------------------------------------

    def _judge(self, what: str, code: int, find: Callable[[], None] | None = None) -> bool:
        """Return whether a step succeeded; if not, arrange what follows. `find` looks up the coordinator, if it is not
        the transaction coordinator."""
        if code == ErrorCode.NONE:
            return True
        self._client.trace(f"{what} is refused: {code_name(code)}")
        if code in AGAIN:
            if code in ELSEWHERE and what != "FindCoordinator":
                self._steps.appendleft(find or self._find)
            elif code in NOT_THERE:
                self._steps.appendleft(self._meet_topic)
            self._again()
            return False
        self._client.record(RequestRefused(self._client.name, what, code, self._is_due(code)))
        if code in FENCED or self.txn is None:
            self._begin_anew()
        else:
            self._give_up()
        return False

    def _is_due(self, code: int) -> bool:
        now_us = self._client.context.schedule.now_us
        if code in MEMBER_GONE or self.terms.is_shared or now_us < self._stray_until_us:
            return True
        if self.txn is None:
            # An InitProducerId whose reply was lost may have bumped the epoch. A coordinator that has reloaded its
            # state does not know the previous epoch: the record does not contain it.
            return self._inits_open > 1
        # The start time was taken from one node's clock, and the timeout is measured by another's.
        context = self._client.context
        return context.schedule.now_ms - self._begun_ms + context.skew_ms >= self.terms.timeout_ms

    def _give_up(self) -> None:
        """Abort the open transaction."""
        self._steps.clear()
        self._interrupt()
        if self.txn is not None:
            self._steps.append(lambda: self._end(commit=False))
        self._go_on()

    def _begin_anew(self) -> None:
        """Start over: another producer took the transactional id, or the coordinator ended the transaction."""
        self.forget()
        self._steps.append(self._init)
        self._is_at_work = True
        self._again(self._client.rng.randrange(0, 1_000_000))

    def _become(self, producer: txn_messages.ProducerIdentity) -> None:
        if producer != self._producer:
            self._producer = producer
            self._sequences.clear()

    # -- getting ready ---------------------------------------------------------------------------------

    def _find(self) -> None:
        if self._client.versions[Api.FIND_COORDINATOR] < 1:  # supports groups only
            self._done()
            return

        def found(address: Address) -> None:
            self._coordinator = address

        self._find_coordinator(self.terms.transactional_id, group_messages.TRANSACTION, found)

    def _find_group(self, group: str) -> None:
        """Find the group's coordinator; the request creates `__consumer_offsets` if necessary."""

        def found(address: Address) -> None:
            self._group_coordinator = address

        self._find_coordinator(group, group_messages.GROUP, found)

    def _find_coordinator(self, key: str, kind: int, found: Callable[[Address], None]) -> None:
        def on_reply(reply: group_messages.CoordinatorReply) -> None:
            if self._judge("FindCoordinator", reply.code):
                found(reply.address)
                self._done()

        self._call(group_messages.find_coordinator(key, kind), on_reply)

    def _meet_topic(self) -> None:
        def on_reply(seen: messages.TopicMetadata) -> None:
            if seen.code or not seen.partitions:
                self._again()
                return
            self._topic, self.partitions, self._leaders = seen.topic, seen.partitions, seen.leaders
            self._done()

        self._call(messages.metadata(self.terms.topic), on_reply)

    def _init(self) -> None:
        terms = self.terms
        if self._client.versions[Api.INIT_PRODUCER_ID] < EXPECTED_FROM:
            # From now on its epoch may be bumped without its knowledge, and the known epoch fenced.
            self._become(txn_messages.ProducerIdentity(terms.transactional_id))
        expected = (self._producer.producer_id, self._producer.epoch)
        is_anew = expected[0] < 0

        def on_reply(reply: messages.InitProducerIdReply) -> None:
            code, producer_id, epoch = reply
            if not self._judge("InitProducerId", code):
                return
            self._inits_open = 0
            self._client.trace(f"is {terms.transactional_id}: producer {producer_id} in epoch {epoch}")
            self._become(txn_messages.ProducerIdentity(terms.transactional_id, producer_id, epoch))
            self._client.record(
                Initialised(self._client.name, terms.transactional_id, producer_id, epoch, is_anew)
            )
            self._done()

        if self._inits_open:
            self._stray_until_us = self._client.context.schedule.now_us + STRAY_US_MAX
        self._inits_open += 1
        self._client.record(InitSent(self._client.name))
        request = messages.init_producer_id(terms.transactional_id, terms.timeout_ms, expected)
        self._call(request, on_reply, self._coordinator)

    # -- writing ---------------------------------------------------------------------------------------

    def _open_round(self, records: dict[int, list[ProducedRecord]]) -> None:
        """Build the batches of a round; retries send the same bytes."""
        assert self.txn is not None
        now_ms = self._client.context.schedule.now_ms
        for partition, written in sorted(records.items()):
            self._batch_count += 1
            at = TopicPartition(self._topic.name, partition)
            batch = Batch(self._client.name, self._batch_count, at, ALL, written)
            batch.txn = self.txn
            sequence = self._sequences.get(partition, 0)
            self._sequences[partition] = sequence + len(written)
            batch.identities.append((self._producer.producer_id, self._producer.epoch, sequence))
            options = BatchOptions(
                producer_id=self._producer.producer_id,
                producer_epoch=self._producer.epoch,
                base_sequence=sequence,
                transactional=True,
            )
            self._encoded[batch] = build_batch(
                [(each.key, each.value, now_ms) for each in written], **options
            )
            self.txn.batches.append(batch)
            self._unacked.append(batch)
        self._done()

    def _add_partitions(self, partitions: list[int]) -> None:
        new = [each for each in partitions if each not in self._added]
        if not new:
            self._done()
            return

        def on_reply(codes: list[int]) -> None:
            if self._judge("AddPartitionsToTxn", next((each for each in codes if each), 0)):
                self._added.update(new)
                self._has_added = True
                self._done()

        request = txn_messages.add_partitions(self._producer, self._topic.name, new)
        self._call(request, on_reply, self._coordinator)

    def _produce(self) -> None:
        leader = next(
            (
                self._leaders[each.at.partition]
                for each in self._unacked
                if each.at.partition in self._leaders
            ),
            None,
        )
        if leader is None:
            self._steps.appendleft(self._meet_topic)
            self._again()
            return
        batches = {
            each.at.partition: each
            for each in self._unacked
            if self._leaders.get(each.at.partition) == leader
        }
        for batch in batches.values():
            batch.sends += 1
            self._client.record(Sent(batch))
        encoded = {partition: self._encoded[batch] for partition, batch in batches.items()}
        numbers = ", ".join(f"#{each.number} to {each.at}" for each in batches.values())
        self._client.trace(f"sends {numbers} in {self.txn}")
        request = messages.produce(ALL, 5_000, self._topic, encoded, self.terms.transactional_id)

        def on_reply(results: list[messages.PartitionProduced]) -> None:
            wrong = 0
            for partition, code, base_offset, _ in results:
                if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                    batch = batches[partition]
                    self._unacked.remove(batch)
                    del self._encoded[batch]
                    self._client.trace(f"#{batch.number} is at {base_offset}")
                    self._client.record(
                        Acked(batch, base_offset, self.terms.survives, self._client.incarnation)
                    )
                elif wrong in (0, *AGAIN):
                    wrong = code
            if self._judge("Produce", wrong):
                self._has_added = True
                if self._unacked:
                    self._produce()  # the rest, to another leader
                else:
                    self._done()

        self._call(request, on_reply, leader)

    # -- offsets ---------------------------------------------------------------------------------------

    def _add_offsets(self, group: str) -> None:
        def on_reply(code: int) -> None:
            if self._judge("AddOffsetsToTxn", code):
                self._has_added = True
                self._done()

        self._call(txn_messages.add_offsets(self._producer, group), on_reply, self._coordinator)

    def _commit_offsets(self, work: TxnWork) -> None:
        assert self.txn is not None
        assert work.member is not None
        assert work.topic is not None
        txn, topic, group = self.txn, work.topic, work.member.group
        if not txn.commits:
            txn.commits = [
                OffsetCommit(name, work.member.group, TopicPartition(topic.name, partition), offset, txn)
                for partition, (offset, name) in sorted(work.positions.items())
            ]
            self._client.record(OffsetsSent(txn.commits))
        request = txn_messages.txn_offset_commit(self._producer, work.member, topic, work.positions)

        def on_reply(codes: list[int]) -> None:
            code = next((each for each in codes if each), 0)
            if self._judge("TxnOffsetCommit", code, lambda: self._find_group(group)):
                self._client.trace(f"has offsets in {txn}: {', '.join(map(str, txn.commits))}")
                self._client.record(OffsetsAcked(txn.commits))
                self._done()

        self._call(request, on_reply, self._group_coordinator)

    # -- the end ---------------------------------------------------------------------------------------

    def _end(self, *, commit: bool) -> None:
        txn = self.txn
        assert txn is not None
        if not commit and not self.terms.is_version_2 and not self._has_added and not self._unacked:
            self._end_known(TxnEnd.ABORTED)  # the coordinator does not know of it
            return
        if commit:
            txn.commit_sends += 1
            self._unsure += 1
            self._client.record(CommitSent(txn))
        self._client.trace(f"{'commits' if commit else 'aborts'} {txn}")
        request = txn_messages.end_txn(self._producer, commit=commit)
        self._call(request, lambda reply: self._end_answered(commit, reply), self._coordinator)

    def _end_answered(self, commit: bool, reply: txn_messages.EndTxnReply) -> None:
        code, producer_id, epoch = reply
        if commit and code and (code in NOT_YET or code not in AGAIN):
            self._unsure -= 1
        if code == ErrorCode.INVALID_TXN_STATE and not (commit or self.terms.is_version_2 or self._has_added):
            code = ErrorCode.NONE  # its partitions were never added: there is nothing to abort
        if code == ErrorCode.INVALID_TXN_STATE and commit:
            # The coordinator has already ended it: too late to commit, and nothing to abort.
            self._client.trace(f"EndTxn is refused: {code_name(code)}")
            self._client.record(RequestRefused(self._client.name, "EndTxn", code, self._is_due(code)))
            self._begin_anew()
            return
        if not self._judge("EndTxn", code):
            return
        has_left = bool(self._unacked)
        if producer_id >= 0:
            self._become(txn_messages.ProducerIdentity(self.terms.transactional_id, producer_id, epoch))
        elif has_left:
            # Unacknowledged batches may or may not be in the log: their sequences cannot be reused.
            self._steps.append(self._init)
        self._end_known(TxnEnd.COMMITTED if commit else self._end_unasked())

    def _end_unasked(self) -> TxnEnd:
        return TxnEnd.UNKNOWN if self._unsure else TxnEnd.ABORTED

    def _end_known(self, end: TxnEnd) -> None:
        self._leave_txn(end)
        self._done()

    def _leave_txn(self, end: TxnEnd | None = None) -> None:
        txn, self.txn = self.txn, None
        self._unacked.clear()
        self._encoded.clear()
        if txn is not None:
            txn.end = end or self._end_unasked()
            self._client.trace(f"is done with {txn}")
            if txn.end is TxnEnd.COMMITTED:
                self.committed_count += 1
            self._client.record(TxnEnded(txn))
            self._ended(txn)
