"""What must hold of every history; each rule is a class, and named in what it says.

A checker sees each event as it happens and complains at once. What a power cut may take is said by `Durability`:
records that were acknowledged as surviving one, and whatever lies before them in the log, stand. What lies behind
may be gone, also if somebody has read it, and its offsets may be used again. Nothing else ever changes: over a
kill, every byte that was written stays.

A view of the log that reaches its reader after a power cut, from the process before it, is not held against what
came later.
"""

from collections import defaultdict
from dataclasses import dataclass, field

from penstock.base.errors import ErrorCode
from penstock.base.ids import Offset, TopicPartition
from penstock.sim.checkers.cluster_history import ReplicaCreated
from penstock.sim.checkers.history import (
    Acked,
    Audited,
    Batch,
    Event,
    FetchReceived,
    FetchSent,
    GotProducerId,
    PositionMoved,
    PowerCut,
    ProducedRecord,
    Refused,
    Sent,
    Stopped,
    Survives,
    TxnEnd,
)
from penstock.sim.checkers.violation import Violation
from penstock.sim.topic_lives import topic_name

__all__ = ["Checker", "Durability", "Rules", "SentRecords", "Violation"]


@dataclass(frozen=True)
class Rules:
    """What is allowed in this run."""

    compacted: frozenset[str] = frozenset()
    """Topics whose records may go when a later one has the same key."""
    shortened: frozenset[str] = frozenset()
    """Topics whose oldest records may go."""
    has_disk_faults: bool = False
    is_replicated: bool = False
    """What was acknowledged by all, or read, is on several nodes: it survives whatever happens in the run."""
    is_shaken: bool = False
    """All nodes may lose power at once: what was read before it was synced may be gone."""
    offsets_partitions: int = 50
    """Of `__consumer_offsets`: who leads the one that a group belongs to coordinates the group."""
    renewed: frozenset[str] = frozenset()
    """Topics that are deleted and created again under their name (`lives`)."""
    pipelined: frozenset[str] = frozenset()
    """Idempotent producers that follow the rules of real clients (`pipelined`)."""
    has_doors: bool = False
    """There are clients of HTTP and of the line protocol."""


class Durability:
    """What a power cut leaves standing."""

    def __init__(self) -> None:
        self.firm: dict[TopicPartition, Offset] = defaultdict(int)
        """Everything before this offset survives whatever may come."""
        self._loose: dict[TopicPartition, Offset] = {}
        """The same for a kill, since the last power cut."""
        self._last_cut = -1
        self._clean: set[int] = set()

    def is_past(self, incarnation: int) -> bool:
        """Whether a power cut lies between then and now."""
        return incarnation <= self._last_cut

    def see(self, event: Event) -> None:
        match event:
            case Acked(batch, base_offset, survives, incarnation) if base_offset >= 0:
                end = base_offset + len(batch.records)
                if survives is Survives.POWER_CUT or incarnation in self._clean:
                    self.firm[batch.at] = max(self.firm[batch.at], end)
                elif not self.is_past(incarnation):
                    self._loose[batch.at] = max(self._loose.get(batch.at, 0), end)
            case Stopped(incarnation, is_clean) if is_clean:
                self._clean.add(incarnation)
                for at, end in self._loose.items():
                    self.firm[at] = max(self.firm[at], end)
            case PowerCut(incarnation):
                self._last_cut = incarnation
                self._loose.clear()
            case _:
                pass


@dataclass
class SentRecords:
    """Which record has which value: what producers sent, by value."""

    batches: dict[bytes, tuple[Batch, ProducedRecord]] = field(default_factory=dict)

    def see(self, event: Event) -> None:
        if isinstance(event, Sent) and event.batch.sends == 1:
            for record in event.batch.records:
                self.batches[record.value] = event.batch, record


class Checker:
    def __init__(self, rules: Rules, durability: Durability, sent: SentRecords) -> None:
        self.rules = rules
        self.durability = durability
        """Has seen the event already."""
        self.sent = sent

    def see(self, event: Event) -> None:
        """Complain by raising `Violation`."""
        raise NotImplementedError

    def violation(self, text: str) -> Violation:
        return Violation(f"{type(self).__name__}: {text}")


class LogContents(Checker):
    """A checker that keeps what is known to lie at each offset, as long as it must lie there."""

    def __init__(self, rules: Rules, durability: Durability, sent: SentRecords) -> None:
        super().__init__(rules, durability, sent)
        self.known: dict[TopicPartition, dict[Offset, bytes]] = defaultdict(dict)

    def see(self, event: Event) -> None:
        match event:
            case Acked(batch, base_offset, survives, incarnation) if base_offset >= 0:
                if survives is Survives.NOTHING:
                    return
                if self.durability.is_past(incarnation) and base_offset >= self.durability.firm[batch.at]:
                    return
                for delta, record in enumerate(batch.records):
                    self.learn(batch.at, base_offset + delta, record.value)
            case FetchReceived() if not self.durability.is_past(event.incarnation):
                for seen in event.records:
                    self.learn(event.at, seen.offset, seen.value)
            case Audited(at, _, _, records):
                for seen in records:
                    self.learn(at, seen.offset, seen.value)
            case PowerCut():
                for at, known in self.known.items():
                    for offset in [each for each in known if each >= self.durability.firm[at]]:
                        self.forget(at, offset)
            case _:
                pass

    def learn(self, at: TopicPartition, offset: Offset, value: bytes) -> None:
        self.known[at][offset] = value

    def forget(self, at: TopicPartition, offset: Offset) -> None:
        del self.known[at][offset]


class NoChangedRecord(LogContents):
    """An offset never has two values, and a value is one that was sent, to this partition. Where nothing takes
    records, what was read is there in the end."""

    def see(self, event: Event) -> None:
        super().see(event)
        if isinstance(event, Audited) and self.rules.is_replicated:
            self._check_end(event)

    def _check_end(self, audit: Audited) -> None:
        if audit.at.topic in self.rules.compacted | self.rules.shortened:
            return
        found = {record.offset for record in audit.records}
        lost = [each for each in sorted(self.known[audit.at]) if each >= audit.start and each not in found]
        if lost:
            value = self.known[audit.at][lost[0]]
            raise self.violation(
                f"{audit.at} had {value!r} at {lost[0]}; in the end, from {audit.start} to {audit.end}, it has not"
            )

    def learn(self, at: TopicPartition, offset: Offset, value: bytes) -> None:
        known = self.known[at].setdefault(offset, value)
        if known != value:
            raise self.violation(f"{at} at {offset} was {known!r} and is {value!r}")
        batch, _ = self.sent.batches.get(value, (None, None))
        if batch is None:
            raise self.violation(f"{at} at {offset} has {value!r}, which nobody sent")
        if batch.at != at and batch.at != self._by_name(at):
            raise self.violation(f"{at} at {offset} has {value!r}, which was sent to {batch.at}")

    def _by_name(self, at: TopicPartition) -> TopicPartition:
        """The same partition, named by who means whatever life of its topic there is."""
        return at._replace(topic=topic_name(at.topic))


class NoDuplicate(LogContents):
    """A record is in the log at most once for each identity it was sent with; a plain one, for each time it went."""

    def __init__(self, rules: Rules, durability: Durability, sent: SentRecords) -> None:
        super().__init__(rules, durability, sent)
        self._places: dict[tuple[TopicPartition, bytes], set[Offset]] = defaultdict(set)

    def learn(self, at: TopicPartition, offset: Offset, value: bytes) -> None:
        super().learn(at, offset, value)
        places = self._places[at, value]
        places.add(offset)
        found = self.sent.batches.get(value)
        if found is not None and len(places) > self.copies_max(found[0]):
            raise self.violation(
                f"{at} has {value!r} at {sorted(places)}, expected {self.copies_max(found[0])} of it at most"
            )

    def copies_max(self, batch: Batch) -> int:
        """How often each record of a batch may be in the log."""
        return batch.copies_max

    def forget(self, at: TopicPartition, offset: Offset) -> None:
        self._places[at, self.known[at][offset]].discard(offset)
        super().forget(at, offset)


class AckedNotLost(Checker):
    """A record that was acknowledged is where it was acknowledged to be, if it must have survived what happened.

    acks=all with a disk that syncs survives everything, acks=1 a kill; so does everything that a clean stop found.
    Retention may take records from the front, compaction those whose key has a later one.
    """

    def __init__(self, rules: Rules, durability: Durability, sent: SentRecords) -> None:
        super().__init__(rules, durability, sent)
        self._there: dict[TopicPartition, dict[Offset, ProducedRecord]] = defaultdict(dict)
        self._latest: dict[TopicPartition, dict[bytes | None, Offset]] = defaultdict(dict)
        """By key, the last offset that is known of it."""

    def see(self, event: Event) -> None:
        match event:
            case Acked(batch, base_offset, survives, incarnation):
                if base_offset < 0 or survives is Survives.NOTHING:
                    return
                for delta, record in enumerate(batch.records):
                    offset = base_offset + delta
                    if offset < self.durability.firm[batch.at] or not self.durability.is_past(incarnation):
                        self._there[batch.at][offset] = record
                        self._note(batch.at, record.key, offset)
            case FetchReceived() if not self.durability.is_past(event.incarnation):
                self._check_view(event)
            case Audited():
                self._check_audit(event)
            case PowerCut():
                for at, there in self._there.items():
                    firm = self.durability.firm[at]
                    self._there[at] = {offset: each for offset, each in there.items() if offset < firm}
                    latest = self._latest[at]
                    self._latest[at] = {key: offset for key, offset in latest.items() if offset < firm}
            case _:
                pass

    def _note(self, at: TopicPartition, key: bytes | None, offset: Offset) -> None:
        self._latest[at][key] = max(offset, self._latest[at].get(key, offset))

    def _check_view(self, view: FetchReceived) -> None:
        at, there = view.at, self._there[view.at]
        seen = {record.offset: record.value for record in view.records}
        for record in view.records:
            self._note(at, record.key, record.offset)
        if view.log_start > 0:
            self._let_go(at, view.log_start)
        if at.topic in self.rules.compacted:
            # Which later record of the key made it go may not be known yet: the audit knows.
            return
        for offset in range(view.start, view.stop):
            expected = there.get(offset)
            if expected is not None and seen.get(offset) != expected.value:
                raise self.violation(
                    f"{at} at {offset} is to have {expected.value!r}; {view.consumer} read {seen.get(offset)!r}"
                )

    def _let_go(self, at: TopicPartition, log_start: Offset) -> None:
        """The log begins here now."""
        there = self._there[at]
        gone = [offset for offset in there if offset < log_start]
        if gone and at.topic not in self.rules.shortened:
            raise self.violation(f"{at} begins at {log_start}, though nothing may delete what is before")
        for offset in gone:
            del there[offset]

    def _check_audit(self, audit: Audited) -> None:
        at = audit.at
        self._let_go(at, audit.start)
        found = {record.offset: record for record in audit.records}
        last_of_key = {record.key: record.offset for record in audit.records}
        for offset, expected in sorted(self._there[at].items()):
            seen = found.get(offset)
            if seen is not None and seen.value == expected.value:
                continue
            is_superseded = seen is None and last_of_key.get(expected.key, -1) > offset
            if at.topic in self.rules.compacted and (is_superseded or self._may_be_aborted(expected)):
                continue
            raise self.violation(
                f"{at} at {offset} is to have {expected.value!r}; in the end, from {audit.start} to {audit.end},"
                f" it has {seen and seen.value!r}"
            )

    def _may_be_aborted(self, record: ProducedRecord) -> bool:
        """Cleaning takes the records of aborted transactions, whatever their keys."""
        batch, _ = self.sent.batches[record.value]
        return batch.txn is not None and batch.txn.end is not TxnEnd.COMMITTED


class OrderKept(Checker):
    """A consumer's offsets rise, and an idempotent producer's records come in the order they were sent in."""

    def __init__(self, rules: Rules, durability: Durability, sent: SentRecords) -> None:
        super().__init__(rules, durability, sent)
        self._last: dict[tuple[str, TopicPartition, str], int] = {}
        """By reader, partition and producer: the number of the last record."""

    def see(self, event: Event) -> None:
        match event:
            case FetchReceived():
                offsets = [record.offset for record in event.records]
                if offsets != sorted(set(offsets)) or any(
                    not event.start <= each < event.stop for each in offsets
                ):
                    raise self.violation(
                        f"{event.consumer} read {event.at} {event.start}..{event.stop} and got {offsets}"
                    )
                if not self.durability.is_past(event.incarnation):
                    for record in event.records:
                        self._check(event.consumer, event.at, record.offset, record.value)
            case PositionMoved(consumer, at):
                for key in [each for each in self._last if each[:2] == (consumer, at)]:
                    del self._last[key]
            case PowerCut():
                # What was read may be gone, and come again behind what took its place.
                self._last.clear()
            case _:
                pass

    def _check(self, reader: str, at: TopicPartition, offset: Offset, value: bytes) -> None:
        found = self.sent.batches.get(value)
        if found is None or len(found[0].identities) != 1:
            return  # a plain producer's; or one that had to begin anew, which may reorder
        batch, record = found
        last = self._last.get((reader, at, batch.producer), -1)
        if record.number <= last:
            raise self.violation(
                f"{reader} read record {record.number} of {batch.producer} in {at} at {offset}, after {last}"
            )
        self._last[reader, at, batch.producer] = record.number


class HighWatermarkNeverBack(Checker):
    """A fetch never shows less than was known when it was sent; a power cut may take what was not durable.

    Where several nodes have a partition, this is said of each process, while it has the partition: who leads next may
    learn later how far the last one had come, and so may one that had the partition before.
    """

    def __init__(self, rules: Rules, durability: Durability, sent: SentRecords) -> None:
        super().__init__(rules, durability, sent)
        self._highest: dict[TopicPartition, dict[int, Offset]] = defaultdict(dict)
        """By process."""
        self._bounds: dict[tuple[str, int], dict[TopicPartition, dict[int, Offset]]] = {}
        """What was known when a fetch was sent; for each consumer's last one."""
        self._last_request: dict[str, tuple[str, int]] = {}

    def see(self, event: Event) -> None:
        match event:
            case FetchSent(request, partitions):
                self._bounds.pop(self._last_request.get(request[0], request), None)
                self._last_request[request[0]] = request
                self._bounds[request] = {at: dict(self._highest[at]) for at in partitions}
            case FetchReceived():
                highest = self._bounds[event.request][event.at]
                if self.rules.is_replicated:
                    highest = {event.incarnation: highest.get(event.incarnation, 0)}
                bound = max(highest.values(), default=0)
                if event.high_watermark < bound:
                    raise self.violation(
                        f"{event.at} had {bound}, and showed {event.high_watermark} to {event.consumer}"
                    )
                if not self.durability.is_past(event.incarnation):
                    self._raise(event.at, event.incarnation, event.high_watermark)
            case Acked(batch, base_offset, _, incarnation) if batch.acks == -1 and base_offset >= 0:
                if not self.durability.is_past(incarnation):
                    self._raise(batch.at, incarnation, base_offset + len(batch.records))
            case ReplicaCreated(incarnation, at):
                self._forget(incarnation, at)
            case PowerCut():
                for at, highest in self._highest.items():
                    self._highest[at] = {0: min(max(highest.values(), default=0), self.durability.firm[at])}
            case _:
                pass

    def _forget(self, incarnation: int, at: TopicPartition) -> None:
        for known in (self._highest, *self._bounds.values()):
            if at in known:
                known[at].pop(incarnation, None)

    def _raise(self, at: TopicPartition, incarnation: int, offset: Offset) -> None:
        highest = self._highest[at]
        highest[incarnation] = max(highest.get(incarnation, 0), offset)


class ProducersRemembered(Checker):
    """A producer id is given out once, and the node knows the sequences of what it has acknowledged."""

    def __init__(self, rules: Rules, durability: Durability, sent: SentRecords) -> None:
        super().__init__(rules, durability, sent)
        self._owners: dict[int, str] = {}
        self._excused: set[str] = set()
        """Producers whose acknowledged records a power cut could take."""
        self._acked: dict[str, Survives] = {}

    def see(self, event: Event) -> None:
        match event:
            case GotProducerId(producer, producer_id, _, _):
                if producer_id in self._owners:
                    owner = self._owners[producer_id]
                    raise self.violation(
                        f"producer id {producer_id} of {owner} was given to {producer} again"
                    )
                self._owners[producer_id] = producer
                self._excused.discard(producer)
            case Acked(batch, _, survives, _) if batch.identities:
                self._acked[batch.producer] = survives
            case PowerCut():
                self._excused |= {
                    producer
                    for producer, survives in self._acked.items()
                    if survives is not Survives.POWER_CUT
                }
            case Refused(batch, code, is_first, _) if is_first and batch.producer not in self._excused:
                if batch.at.topic in self.rules.renewed:
                    return  # what comes behind it may have begun the topic's next life
                if code in (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID):
                    raise self.violation(f"{batch} comes next, and is refused with {ErrorCode(code).name}")
            case _:
                pass
