"""Rules for transactions: atomicity, isolation, fencing and exactly-once processing."""

from collections import defaultdict

from penstock.base.ids import Offset, TopicPartition
from penstock.sim.checkers.history import (
    Acked,
    Closed,
    Delivered,
    Derived,
    Event,
    FetchReceived,
    Initialised,
    InitSent,
    OffsetsFetched,
    PowerCut,
    ReadAfterLoss,
    ReadRecord,
    Txn,
    TxnEnd,
    TxnEnded,
)
from penstock.sim.checkers.records import Checker


class CommittedReads(Checker):
    """Base of checkers that track what read_committed consumers delivered, and what they hid."""

    def begin(self) -> None:
        self.given: dict[Txn, bytes] = {}
        """A delivered value of each transaction."""
        self.values: set[bytes] = set()
        """All delivered values."""
        self.hidden: dict[Txn, bytes] = {}

    def txn_of(self, seen: ReadRecord) -> Txn | None:
        batch, _ = self.sent.batches.get(seen.value, (None, None))
        return None if batch is None else batch.txn

    def see(self, event: Event) -> None:
        match event:
            case Delivered(consumer, at, records, hidden):
                for seen in records:
                    self.values.add(seen.value)
                    txn = self.txn_of(seen)
                    if txn is not None:
                        self.given.setdefault(txn, seen.value)
                        self.gave(consumer, at, seen, txn)
                for seen in hidden:
                    txn = self.txn_of(seen)
                    if txn is not None:
                        self.hidden.setdefault(txn, seen.value)
                        self.hid(consumer, at, seen, txn)
            case TxnEnded(txn):
                self.ended(txn)
            case Closed():
                self.closed()

    def gave(self, consumer: str, at: TopicPartition, seen: ReadRecord, txn: Txn) -> None: ...

    def hid(self, consumer: str, at: TopicPartition, seen: ReadRecord, txn: Txn) -> None: ...

    def ended(self, txn: Txn) -> None: ...

    def closed(self) -> None: ...

    def whole(self, at: TopicPartition) -> bool:
        """Return whether a topic has neither compaction nor retention."""
        return at.topic not in self.rules.shortened | self.rules.compacted

    def missing(self, txn: Txn) -> str | None:
        """Return a value of the transaction that was never delivered."""
        for batch in txn.batches:
            if self.whole(batch.at):
                for record in batch.records:
                    if record.value not in self.values:
                        return f"{record.value!r} of {batch.at}"
        return None


class NoAbortedRead(CommittedReads):
    """A read_committed consumer never gets a record of an aborted transaction, or of one whose commit was not sent."""

    def gave(self, consumer: str, at: TopicPartition, seen: ReadRecord, txn: Txn) -> None:
        if not txn.commit_sends or txn.end is TxnEnd.ABORTED:
            raise self.violation(f"{consumer} got {seen.value!r} at {seen.offset} of {at}: {txn}")

    def ended(self, txn: Txn) -> None:
        if txn.end is TxnEnd.ABORTED and txn in self.given:
            raise self.violation(f"{self.given[txn]!r} was delivered before the abort was known: {txn}")


class NoDecisionFromHole(NoAbortedRead):
    """Lost data never commits a transaction: a read_committed consumer of a damaged log gets no record of an aborted
    transaction, or of one whose commit was never sent."""

    def begin(self) -> None:
        super().begin()
        self._lost = ""

    def see(self, event: Event) -> None:
        match event:
            case ReadAfterLoss(at, lost, records):
                self._lost = lost
                for seen in records:
                    self._look_at(at, seen)
            case TxnEnded(txn):
                self.ended(txn)

    def _look_at(self, at: TopicPartition, seen: ReadRecord) -> None:
        txn = self.txn_of(seen)
        if txn is not None:
            self.given.setdefault(txn, seen.value)
            self.gave(f"a reader, after {self._lost},", at, seen, txn)


class NoHalfTransaction(CommittedReads):
    """All records of a transaction are delivered, or all hidden, and its offsets are visible if its records are."""

    def begin(self) -> None:
        super().begin()
        self._txns: list[Txn] = []
        self._groups: dict[tuple[str, TopicPartition], str] = {}
        """Name of the commit that was read last."""

    def see(self, event: Event) -> None:
        super().see(event)
        if isinstance(event, OffsetsFetched):
            for at, (_, name) in event.names.items():
                self._groups[event.group, at] = name

    def gave(self, consumer: str, at: TopicPartition, seen: ReadRecord, txn: Txn) -> None:
        if txn in self.hidden:
            raise self.violation(
                f"{consumer} got {seen.value!r} at {seen.offset} of {at},"
                f" while {self.hidden[txn]!r} was hidden: {txn}"
            )

    def hid(self, consumer: str, at: TopicPartition, seen: ReadRecord, txn: Txn) -> None:
        if txn in self.given:
            raise self.violation(
                f"{seen.value!r} at {seen.offset} of {at} was hidden from {consumer},"
                f" while {self.given[txn]!r} was delivered: {txn}"
            )

    def ended(self, txn: Txn) -> None:
        self._txns.append(txn)

    def closed(self) -> None:
        for txn in self._txns:
            is_seen = txn in self.given
            missing = self.missing(txn) if is_seen else None
            if missing is not None:
                raise self.violation(f"{self.given[txn]!r} was delivered, but never {missing}: {txn}")
            if not is_seen and all(self.whole(batch.at) for batch in txn.batches):
                for commit in txn.commits:
                    if txn.batches and self._groups.get((commit.group, commit.at)) == commit.name:
                        raise self.violation(f"{commit} is visible, but no record was delivered: {txn}")


class CommittedNotHidden(CommittedReads):
    """Committed records are delivered to every consumer that reads that far, and to at least one by the end."""

    def begin(self) -> None:
        super().begin()
        self._txns: list[Txn] = []

    def hid(self, consumer: str, at: TopicPartition, seen: ReadRecord, txn: Txn) -> None:
        if txn.end is TxnEnd.COMMITTED:
            raise self.violation(f"from {consumer} {seen.value!r} at {seen.offset} of {at} was hidden: {txn}")

    def ended(self, txn: Txn) -> None:
        if txn.end is TxnEnd.COMMITTED:
            self._txns.append(txn)
            if txn in self.hidden:
                raise self.violation(f"{self.hidden[txn]!r} was hidden: {txn}")

    def closed(self) -> None:
        for txn in self._txns:
            missing = self.missing(txn)
            if missing is not None:
                raise self.violation(f"{missing} was never delivered: {txn}")


class EpochsRise(Checker):
    """InitProducerId returns a later epoch than any known when it was sent, and a producer id belongs to only one
    transactional id."""

    def begin(self) -> None:
        self._ids: dict[int, str] = {}
        self._epochs: dict[int, int] = {}
        self._asked: dict[str, dict[int, int]] = {}
        """Epochs known when each producer sent InitProducerId."""

    def see(self, event: Event) -> None:
        match event:
            case InitSent(producer):
                self._asked[producer] = dict(self._epochs)
            case Initialised(producer, transactional_id, producer_id, epoch, is_anew):
                owner = self._ids.setdefault(producer_id, transactional_id)
                if owner != transactional_id:
                    raise self.violation(f"producer id {producer_id} of {owner} was given to {producer}")
                known = self._asked[producer].get(producer_id, -1)
                if epoch < known or (is_anew and epoch == known):
                    raise self.violation(
                        f"{producer} got epoch {epoch} of producer id {producer_id} for {transactional_id},"
                        f" which had epoch {known} before the request"
                    )
                self._epochs[producer_id] = max(epoch, self._epochs.get(producer_id, -1))


class ExactlyOnce(CommittedReads):
    """Each input record before the group's offset has exactly one committed result; later ones have none.

    A record read before it was durable may be lost in a power cut and replaced by another: such offsets are skipped.
    """

    def begin(self) -> None:
        super().begin()
        self._sources: dict[bytes, Derived] = {}
        self._counts: dict[tuple[str, TopicPartition, Offset], int] = defaultdict(int)
        self._positions: dict[tuple[str, TopicPartition], Offset] = {}
        self._inputs: dict[TopicPartition, dict[Offset, bytes]] = defaultdict(dict)
        """Acknowledged records by offset."""
        self._high: dict[TopicPartition, Offset] = defaultdict(int)
        self._shaken: dict[TopicPartition, list[tuple[Offset, Offset]]] = defaultdict(list)
        """Ranges of offsets that a power cut may have taken after they were read."""

    def see(self, event: Event) -> None:
        super().see(event)
        match event:
            case Derived(value):
                self._sources[value] = event
            case Acked() if event.base_offset >= 0:
                self._acked(event)
            case FetchReceived():
                self._high[event.at] = max(self._high[event.at], event.high_watermark)
            case OffsetsFetched(_, group, names, _):
                for at, (offset, _) in names.items():
                    self._positions[group, at] = offset
            case PowerCut():
                self._shake()
            case Delivered(_, _, records, _):
                for seen in records:
                    self._given(seen)

    def _acked(self, event: Acked) -> None:
        at = event.batch.at
        if event.base_offset < self.durability.firm[at] or not self.durability.is_past(event.incarnation):
            for delta, record in enumerate(event.batch.records):
                self._inputs[at][event.base_offset + delta] = record.value

    def _shake(self) -> None:
        for at, high in self._high.items():
            if self.durability.firm[at] < high:
                self._shaken[at].append((self.durability.firm[at], high))

    def _given(self, seen: ReadRecord) -> None:
        source = self._sources.pop(seen.value, None)  # counted once, at its first delivery
        if source is None:
            return
        place = source.group, source.at, source.offset
        self._counts[place] += 1
        if self._counts[place] > 1 and not self._is_shaken(source.at, source.offset):
            raise self.violation(
                f"the result of {source.group} for {source.at} at {source.offset} exists twice, also as {seen.value!r}"
            )

    def _is_shaken(self, at: TopicPartition, offset: Offset) -> bool:
        return any(start <= offset < stop for start, stop in self._shaken[at])

    def closed(self) -> None:
        groups = {each.group for each in self._sources.values()} | {group for group, _, _ in self._counts}
        for group in sorted(groups):
            for (name, at), position in self._positions.items():
                if name == group:
                    self._check(group, at, position)

    def _check(self, group: str, at: TopicPartition, position: Offset) -> None:
        for offset, value in sorted(self._inputs[at].items()):
            batch, _ = self.sent.batches[value]
            if self._is_shaken(at, offset) or (
                batch.txn is not None and batch.txn.end is not TxnEnd.COMMITTED
            ):
                continue
            count = self._counts[group, at, offset]
            if count != (offset < position):
                raise self.violation(
                    f"{group} is at {position} of {at}, and its result for {value!r} at {offset}"
                    f" exists {count} times"
                )
