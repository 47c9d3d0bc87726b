"""Rules for records, checked in every run. Each rule is a class, and its violations begin with the class name.

A checker sees each event as it happens and raises `Violation` at once. `Durability` tracks what a power cut may take:
records acknowledged as surviving one stay, and so does everything before them in the log. Later records may be lost,
even if they were read, and their offsets may be used again. A kill loses nothing that was written.

A fetch response that arrives after a power cut, from the process before it, is not compared with later events.
"""

from collections import defaultdict
from dataclasses import dataclass, field

from penstock.base.errors import ErrorCode
from penstock.base.ids import Offset, TopicPartition
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
    ReplicaCreated,
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
    """What is allowed in a run."""

    compacted: frozenset[str] = frozenset()
    """Compacted topics: a record may be removed once a later one has the same key."""
    shortened: frozenset[str] = frozenset()
    """Topics with retention: the oldest records may be deleted."""
    has_disk_faults: bool = False
    is_replicated: bool = False
    """Records acknowledged with acks=all, or read, are on several nodes and survive every fault of the run."""
    is_shaken: bool = False
    """All nodes may lose power at once: records read before they were synced may be lost."""
    offsets_partitions: int = 50
    """Partitions of `__consumer_offsets`."""
    renewed: frozenset[str] = frozenset()
    """Topics that are deleted and created again under the same name (`topic_lives`)."""
    pipelined: frozenset[str] = frozenset()
    """Names of idempotent producers that follow the rules of real clients (`pipelined`)."""
    has_doors: bool = False
    """The run has clients of HTTP and of the line protocol."""


class Durability:
    """Tracks which records survive a power cut."""

    def __init__(self) -> None:
        self.firm: dict[TopicPartition, Offset] = defaultdict(int)
        """Everything before this offset survives every fault."""
        self._loose: dict[TopicPartition, Offset] = {}
        """Everything before this offset survives a kill; since the last power cut."""
        self._last_cut = -1
        self._clean: set[int] = set()

    def is_past(self, incarnation: int) -> bool:
        """Return whether the power was cut after this process ran."""
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


@dataclass
class SentRecords:
    """All records that producers sent, by value."""

    batches: dict[bytes, tuple[Batch, ProducedRecord]] = field(default_factory=dict)

    def see(self, event: Event) -> None:
        if isinstance(event, Sent) and event.batch.sends == 1:
            for record in event.batch.records:
                self.batches[record.value] = event.batch, record


class Checker:
    def __init__(self, rules: Rules, durability: Durability, sent: SentRecords) -> None:
        self.rules = rules
        self.durability = durability
        """Already updated with the event that `see` is called with."""
        self.sent = sent
        self.begin()

    def begin(self) -> None:
        """Set up the checker's own state."""

    def see(self, event: Event) -> None:
        """Raise `Violation` if the event breaks the rule."""
        raise NotImplementedError

    def violation(self, text: str) -> Violation:
        return Violation(f"{type(self).__name__}: {text}")


class LogContents(Checker):
    """Base of checkers that track the value known at each offset, as long as it must stay there."""

    def begin(self) -> None:
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

    def learn(self, at: TopicPartition, offset: Offset, value: bytes) -> None:
        self.known[at][offset] = value

    def forget(self, at: TopicPartition, offset: Offset) -> None:
        del self.known[at][offset]


class NoChangedRecord(LogContents):
    """An offset never has two values, and every value was sent to its partition. Without compaction and retention,
    every record that was read is still there at the end."""

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
                f"{audit.at} had {value!r} at {lost[0]}, which is missing at the end ({audit.start} to {audit.end})"
            )

    def learn(self, at: TopicPartition, offset: Offset, value: bytes) -> None:
        known = self.known[at].setdefault(offset, value)
        if known != value:
            raise self.violation(f"{at} at {offset} changed from {known!r} to {value!r}")
        batch, _ = self.sent.batches.get(value, (None, None))
        if batch is None:
            raise self.violation(f"{at} at {offset} has {value!r}, which was never sent")
        if batch.at != at and batch.at != self._by_name(at):
            raise self.violation(f"{at} at {offset} has {value!r}, which was sent to {batch.at}")

    def _by_name(self, at: TopicPartition) -> TopicPartition:
        """Return the partition as clients address it that use the topic's name instead of its id."""
        return at._replace(topic=topic_name(at.topic))


class NoDuplicate(LogContents):
    """A record is in the log at most once per identity it was sent with, or, of a plain producer, once per send."""

    def begin(self) -> None:
        super().begin()
        self._places: dict[tuple[TopicPartition, bytes], set[Offset]] = defaultdict(set)

    def learn(self, at: TopicPartition, offset: Offset, value: bytes) -> None:
        super().learn(at, offset, value)
        places = self._places[at, value]
        places.add(offset)
        found = self.sent.batches.get(value)
        if found is not None and len(places) > self.copies_max(found[0]):
            raise self.violation(
                f"{at} has {value!r} at {sorted(places)}, expected at most {self.copies_max(found[0])} copies"
            )

    def copies_max(self, batch: Batch) -> int:
        """Return how often each record of a batch may be in the log."""
        return batch.copies_max

    def forget(self, at: TopicPartition, offset: Offset) -> None:
        self._places[at, self.known[at][offset]].discard(offset)
        super().forget(at, offset)


class AckedNotLost(Checker):
    """An acknowledged record stays at its offset, unless a fault that happened may have taken it.

    Records with acks=all on a disk that syncs survive everything, and so does everything written before a clean stop.
    Records with acks=1 survive a kill. Retention may delete the oldest records, and compaction superseded ones.
    """

    def begin(self) -> None:
        self._there: dict[TopicPartition, dict[Offset, ProducedRecord]] = defaultdict(dict)
        self._latest: dict[TopicPartition, dict[bytes | None, Offset]] = defaultdict(dict)
        """Last known offset by key."""

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
            # The later record of the same key may not be known yet; the audit checks this.
            return
        for offset in range(view.start, view.stop):
            expected = there.get(offset)
            if expected is not None and seen.get(offset) != expected.value:
                raise self.violation(
                    f"{at} at {offset} must have {expected.value!r}, {view.consumer} read {seen.get(offset)!r}"
                )

    def _let_go(self, at: TopicPartition, log_start: Offset) -> None:
        """Forget records before the log start; raise if nothing may have deleted them."""
        there = self._there[at]
        gone = [offset for offset in there if offset < log_start]
        if gone and at.topic not in self.rules.shortened:
            raise self.violation(f"{at} begins at {log_start}, though earlier records must not be deleted")
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
                f"{at} at {offset} must have {expected.value!r}; at the end ({audit.start} to {audit.end}),"
                f" it has {seen and seen.value!r}"
            )

    def _may_be_aborted(self, record: ProducedRecord) -> bool:
        """Compaction removes the records of aborted transactions, whatever their keys."""
        batch, _ = self.sent.batches[record.value]
        return batch.txn is not None and batch.txn.end is not TxnEnd.COMMITTED


class OrderKept(Checker):
    """A consumer's offsets rise, and an idempotent producer's records are in the order in which they were sent."""

    def begin(self) -> None:
        self._last: dict[tuple[str, TopicPartition, str], int] = {}
        """Number of the last record by reader, partition and producer."""

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
                # Records that were read may be lost, and be written again after others.
                self._last.clear()

    def _check(self, reader: str, at: TopicPartition, offset: Offset, value: bytes) -> None:
        found = self.sent.batches.get(value)
        if found is None or len(found[0].identities) != 1:
            return  # a plain producer, or one that got a new producer id, which may reorder
        batch, record = found
        last = self._last.get((reader, at, batch.producer), -1)
        if record.number <= last:
            raise self.violation(
                f"{reader} read record {record.number} of {batch.producer} in {at} at {offset}, after {last}"
            )
        self._last[reader, at, batch.producer] = record.number


class HighWatermarkNeverBack(Checker):
    """A fetch never shows a lower high watermark than was known when it was sent, but for what a power cut took.

    In a cluster the rule holds per process, as long as the process has the replica: a new leader, or a broker that
    gets a replica back, may learn the last high watermark later.
    """

    def begin(self) -> None:
        self._highest: dict[TopicPartition, dict[int, Offset]] = defaultdict(dict)
        """Highest known high watermark by partition and process."""
        self._bounds: dict[tuple[str, int], dict[TopicPartition, dict[int, Offset]]] = {}
        """The same at the time of each consumer's last fetch."""
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
                        f"{event.at} was at {bound}, and then at {event.high_watermark} for {event.consumer}"
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

    def _forget(self, incarnation: int, at: TopicPartition) -> None:
        for known in (self._highest, *self._bounds.values()):
            if at in known:
                known[at].pop(incarnation, None)

    def _raise(self, at: TopicPartition, incarnation: int, offset: Offset) -> None:
        highest = self._highest[at]
        highest[incarnation] = max(highest.get(incarnation, 0), offset)


class ProducersRemembered(Checker):
    """A producer id is given out once, and a node knows the sequences of the batches it has acknowledged."""

    def begin(self) -> None:
        self._owners: dict[int, str] = {}
        self._excused: set[str] = set()
        """Producers whose acknowledged records a power cut may have taken."""
        self._acked: dict[str, Survives] = {}

    def see(self, event: Event) -> None:
        match event:
            case GotProducerId(producer, producer_id, _, _):
                if producer_id in self._owners:
                    owner = self._owners[producer_id]
                    raise self.violation(f"producer id {producer_id} of {owner} was also given to {producer}")
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
                    return  # a later batch may have been the first one in the topic's next life
                if code in (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID):
                    raise self.violation(
                        f"{batch} is the next one, and was rejected with {ErrorCode(code).name}"
                    )
