"""What must hold of transactions: all of one is seen, or nothing, and what was asked for in the end."""

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
    ReadRecord,
    Txn,
    TxnEnd,
    TxnEnded,
)
from penstock.sim.checkers.records import Checker, Durability, Rules, SentRecords


class CommittedReads(Checker):
    """A checker that keeps what readers of committed records were given, and what was hidden from them."""

    def __init__(self, rules: Rules, durability: Durability, sent: SentRecords) -> None:
        super().__init__(rules, durability, sent)
        self.given: dict[Txn, bytes] = {}
        """Of each transaction, a value that somebody was given."""
        self.values: set[bytes] = set()
        """All that were given."""
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
            case _:
                pass

    def gave(self, consumer: str, at: TopicPartition, seen: ReadRecord, txn: Txn) -> None: ...

    def hid(self, consumer: str, at: TopicPartition, seen: ReadRecord, txn: Txn) -> None: ...

    def ended(self, txn: Txn) -> None: ...

    def closed(self) -> None: ...

    def whole(self, at: TopicPartition) -> bool:
        """Whether nothing but transactions takes records from sight in a topic."""
        return at.topic not in self.rules.shortened | self.rules.compacted

    def missing(self, txn: Txn) -> str | None:
        """A value that nobody was ever given."""
        for batch in txn.batches:
            if self.whole(batch.at):
                for record in batch.records:
                    if record.value not in self.values:
                        return f"{record.value!r} of {batch.at}"
        return None


class NoAbortedRead(CommittedReads):
    """Who reads committed records is never given one whose commit nobody has asked for, or that was aborted."""

    def gave(self, consumer: str, at: TopicPartition, seen: ReadRecord, txn: Txn) -> None:
        if not txn.commit_sends or txn.end is TxnEnd.ABORTED:
            raise self.violation(f"{consumer} was given {seen.value!r} at {seen.offset} of {at}: {txn}")

    def ended(self, txn: Txn) -> None:
        if txn.end is TxnEnd.ABORTED and txn in self.given:
            raise self.violation(f"{self.given[txn]!r} was read before this was known: {txn}")


class NoHalfTransaction(CommittedReads):
    """Of a transaction all records are given, or all hidden; and its offsets count if its records do."""

    def __init__(self, rules: Rules, durability: Durability, sent: SentRecords) -> None:
        super().__init__(rules, durability, sent)
        self._txns: list[Txn] = []
        self._groups: dict[tuple[str, TopicPartition], str] = {}
        """The name of the commit that was read last."""

    def see(self, event: Event) -> None:
        super().see(event)
        if isinstance(event, OffsetsFetched):
            for at, (_, name) in event.names.items():
                self._groups[event.group, at] = name

    def gave(self, consumer: str, at: TopicPartition, seen: ReadRecord, txn: Txn) -> None:
        if txn in self.hidden:
            raise self.violation(
                f"{consumer} was given {seen.value!r} at {seen.offset} of {at},"
                f" and {self.hidden[txn]!r} was hidden: {txn}"
            )

    def hid(self, consumer: str, at: TopicPartition, seen: ReadRecord, txn: Txn) -> None:
        if txn in self.given:
            raise self.violation(
                f"from {consumer} {seen.value!r} at {seen.offset} of {at} was hidden,"
                f" and {self.given[txn]!r} given: {txn}"
            )

    def ended(self, txn: Txn) -> None:
        self._txns.append(txn)

    def closed(self) -> None:
        for txn in self._txns:
            is_seen = txn in self.given
            missing = self.missing(txn) if is_seen else None
            if missing is not None:
                raise self.violation(f"{self.given[txn]!r} was given, and never {missing}: {txn}")
            if not is_seen and all(self.whole(batch.at) for batch in txn.batches):
                for commit in txn.commits:
                    if txn.batches and self._groups.get((commit.group, commit.at)) == commit.name:
                        raise self.violation(f"{commit} counts, and no record was ever given: {txn}")


class CommittedNotHidden(CommittedReads):
    """What was committed is given to everyone who reads that far, and to somebody in the end."""

    def __init__(self, rules: Rules, durability: Durability, sent: SentRecords) -> None:
        super().__init__(rules, durability, sent)
        self._txns: list[Txn] = []

    def hid(self, consumer: str, at: TopicPartition, seen: ReadRecord, txn: Txn) -> None:
        if txn.end is TxnEnd.COMMITTED:
            raise self.violation(f"from {consumer} {seen.value!r} at {seen.offset} of {at} was hidden: {txn}")

    def ended(self, txn: Txn) -> None:
        if txn.end is TxnEnd.COMMITTED:
            self._txns.append(txn)
            if txn in self.hidden:
                raise self.violation(f"{self.hidden[txn]!r} was hidden from who read it: {txn}")

    def closed(self) -> None:
        for txn in self._txns:
            missing = self.missing(txn)
            if missing is not None:
                raise self.violation(f"{missing} was never given: {txn}")


class EpochsRise(Checker):
    """Who becomes a transactional id is in a later epoch than any that was known when it asked, and a producer id
    belongs to one transactional id alone."""

    def __init__(self, rules: Rules, durability: Durability, sent: SentRecords) -> None:
        super().__init__(rules, durability, sent)
        self._ids: dict[int, str] = {}
        self._epochs: dict[int, int] = {}
        self._asked: dict[str, dict[int, int]] = {}
        """By producer: the epochs that were known when it asked."""

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
                        f"{producer} is {transactional_id} in epoch {epoch} of producer id {producer_id},"
                        f" which had epoch {known} before it asked"
                    )
                self._epochs[producer_id] = max(epoch, self._epochs.get(producer_id, -1))
            case _:
                pass


class ExactlyOnce(CommittedReads):
    """Of each record before a group's offset, what was made of it is committed once; of those behind, nothing is.

    A record that was read before it was durable may be gone after a power cut, and another one in its place: what is
    at such offsets is left out.
    """

    def __init__(self, rules: Rules, durability: Durability, sent: SentRecords) -> None:
        super().__init__(rules, durability, sent)
        self._sources: dict[bytes, Derived] = {}
        self._counts: dict[tuple[str, TopicPartition, Offset], int] = defaultdict(int)
        self._positions: dict[tuple[str, TopicPartition], Offset] = {}
        self._inputs: dict[TopicPartition, dict[Offset, bytes]] = defaultdict(dict)
        """What was acknowledged, by offset."""
        self._high: dict[TopicPartition, Offset] = defaultdict(int)
        self._shaken: dict[TopicPartition, list[tuple[Offset, Offset]]] = defaultdict(list)
        """Offsets that a power cut may have taken after they were read."""

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
            case _:
                pass

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
        source = self._sources.pop(seen.value, None)  # counted when it is seen for the first time
        if source is None:
            return
        place = source.group, source.at, source.offset
        self._counts[place] += 1
        if self._counts[place] > 1 and not self._is_shaken(source.at, source.offset):
            raise self.violation(
                f"what {source.group} made of {source.at} at {source.offset} is there twice, also as {seen.value!r}"
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
                    f"{group} is at {position} of {at}, and what it made of {value!r} at {offset}"
                    f" is there {count} times"
                )
