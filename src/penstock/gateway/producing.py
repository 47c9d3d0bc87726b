"""Writing records, for every door: which partition each goes to, one batch a partition, answered when durable.

    produce, produce_all --> topic made, keys read where that must be first --> partition chosen --> batch --> write

A key decides the partition as Kafka's default partitioner does, over all partitions of the topic. Records without a
key take turns; one that has an idempotency key instead goes where that hashes to. A partition that the client names
wins over all of these.

Refusals are answers too: nothing here raises. Where nothing has to happen first, all is staged before the call
returns.
"""

import logging
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import Offset, TimestampMs, Uuid
from penstock.base.later import Later
from penstock.client.partitioner import partition_of_key
from penstock.gateway.idempotency import HEADER, IDEMPOTENCY_KEY_BYTES_MAX, Claim, IdempotencyKeys, digest_of
from penstock.gateway.steps import Running, Steps
from penstock.gateway.topics import ensure_topic, find_topic
from penstock.gateway.writing import WAIT_MS_MAX
from penstock.handlers.context import Context, On, Operation, Session
from penstock.handlers.internal_topics import INTERNAL_TOPICS
from penstock.metadata import Topic
from penstock.records import HEADER_BYTES, BatchBuilder, InvalidBatch
from penstock.records.builder import Headers
from penstock.replica import ALL_IN_SYNC, Partition
from penstock.storage import Appended

logger = logging.getLogger(__name__)

TURNS_MAX = 10_000
"""Topics whose turn is remembered; beyond, all begin anew."""

RECORDS_A_TURN = 500
"""Records of a long list that are looked at before others get their turn: some ten milliseconds of it."""

TOPICS_MADE_MAX = 100
"""How many topics one call may bring into being."""

RECORD_OVERHEAD_BYTES_MAX = 46
"""Lengths, deltas, attributes and count of headers of a record, each as long as it can get."""


class Placed(NamedTuple):
    """Where a record is."""

    partition: int
    offset: Offset


Outcome: TypeAlias = Placed | KafkaError


class NewRecord(NamedTuple):
    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    partition: int | None = None
    idempotency_key: str | None = None


class Producing:
    """Part of the `Gateway`."""

    def __init__(self, context: Context, keys: IdempotencyKeys | None = None) -> None:
        self.keys = keys or IdempotencyKeys(context)
        self._context = context
        self._turns: dict[Uuid, int] = {}
        """By topic: how many records without a key there were, from a random start."""

    def start(self) -> None:
        self.keys.start()

    def stop(self) -> None:
        self.keys.stop()

    def produce(
        self,
        session: Session,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        *,
        headers: Headers = (),
        partition: int | None = None,
        idempotency_key: str | None = None,
    ) -> Later[Outcome]:
        """Write a record, to a topic that is made if need be. Answered with where it is once it is durable, or with
        what is wrong; in steps, `yield` it."""
        context = self._context
        if idempotency_key is None:
            known: Topic | None = context.image.topics.get(topic)
            if known is not None:
                try:
                    self._admit(session, known)
                    _check_headers(headers)
                    found = self._place(known, key, partition, None)
                    now_ms = context.world.now_ms()
                    builder = BatchBuilder()
                    builder.append(key, value, now_ms, headers)
                    return _write_one(found, builder, now_ms)
                except KafkaError as error:
                    refused: Later[Outcome] = Later()
                    refused.answer(error)
                    return refused
        one: Later[Outcome] = Later()
        record = NewRecord(topic, key, value, headers, partition, idempotency_key)
        self.produce_all(session, [record]).then(lambda outcomes: one.answer(outcomes[0]))
        return one

    def produce_all(self, session: Session, records: Sequence[NewRecord]) -> Later[list[Outcome]]:
        """Write records, those for one partition in one batch if it may be so large, in their order. Each has its own
        outcome; what is wrong with one does not keep another from being written."""
        whole = _Whole(len(records))
        if not records:
            whole.answer([])
        elif self._must_wait(records):
            refused: dict[str, KafkaError] = {}
            Running(
                self._prepare(records, refused),
                lambda _: self._write(session, records, refused, whole),
                whole.fail,
            )
        else:
            self._write(session, records, {}, whole)
        return whole

    # -- what must be there first ----------------------------------------------------------------------

    def _must_wait(self, records: Iterable[NewRecord]) -> bool:
        topics = self._context.image.topics
        for each in records:
            known = topics.get(each.topic)
            if known is None or (each.idempotency_key is not None and self.keys.of(known) is None):
                return True
        return False

    def _prepare(self, records: Iterable[NewRecord], refused: dict[str, KafkaError]) -> Steps[None]:
        """Make the topics, and have the keys of those that need them read."""
        has_keys: dict[str, bool] = {}
        for each in records:
            has_keys[each.topic] = has_keys.get(each.topic, False) or each.idempotency_key is not None
        made = 0
        for name, needs_keys in has_keys.items():
            try:
                _check_not_internal(name)
                if name not in self._context.image.topics:
                    made += 1
                    if made > TOPICS_MADE_MAX:
                        raise KafkaError(
                            f"topic {name!r} is not there, and one call makes {TOPICS_MADE_MAX} topics at most",
                            ErrorCode.POLICY_VIOLATION,
                        )
                topic = yield from ensure_topic(self._context, name)
                if needs_keys:
                    yield self.keys.open(topic)
            except KafkaError as error:
                refused[name] = error

    # -- where to --------------------------------------------------------------------------------------

    def _admit(self, session: Session, topic: Topic) -> None:
        """Refuse who may not write there."""
        if not self._context.authorize(session, Operation.WRITE, On.TOPIC, topic.name):
            raise KafkaError(
                f"{session.principal} may not write to {topic.name}", ErrorCode.TOPIC_AUTHORIZATION_FAILED
            )
        _check_not_internal(topic.name)

    def _place(
        self, topic: Topic, key: bytes | None, partition: int | None, idempotency_key: bytes | None
    ) -> Partition:
        """The partition that a record goes to, if it is led here and takes such a record."""
        found = self._choose(topic, key, partition, idempotency_key)
        if key is None and found.log.settings.is_compacted:
            raise KafkaError(
                f"a record without a key is refused: topic {topic.name!r} is compacted",
                ErrorCode.INVALID_RECORD,
            )
        return found

    def _choose(
        self, topic: Topic, key: bytes | None, partition: int | None, idempotency_key: bytes | None
    ) -> Partition:
        context, name = self._context, topic.name
        count = len(topic.partitions)
        if partition is not None:
            if partition not in topic.partitions:
                raise KafkaError(
                    f"topic {name!r} has no partition {partition}, only 0 to {count - 1}",
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                )
            number = partition
        elif key is not None:
            number = partition_of_key(key, count)
        elif idempotency_key is not None:
            number = partition_of_key(idempotency_key, count)
        else:
            return self._next(topic, count)
        return context.replicas.led(name, number) or context.replicas.find(name, number)

    def _next(self, topic: Topic, count: int) -> Partition:
        """The partition whose turn it is, of those that are led here."""
        turns, replicas = self._turns, self._context.replicas
        turn = turns.get(topic.id)
        if turn is None:
            if len(turns) >= TURNS_MAX:
                turns.clear()
            turn = self._context.world.rng.randrange(count)
        for number in range(turn, turn + count):
            found = replicas.led(topic.name, number % count)
            if found is not None:
                turns[topic.id] = number + 1
                return found
        return replicas.find(topic.name, turn % count)

    # -- writing ---------------------------------------------------------------------------------------

    def _write(
        self,
        session: Session,
        records: Sequence[NewRecord],
        refused: dict[str, KafkaError],
        whole: "_Whole",
    ) -> None:
        batches: dict[Partition, _Batch] = {}
        now_ms = self._context.world.now_ms()

        def write_from(start: int) -> None:
            end = min(start + RECORDS_A_TURN, len(records))
            for at in range(start, end):
                record = records[at]
                try:
                    if record.topic in refused:
                        raise refused[record.topic]
                    self._add(session, at, record, batches, whole, now_ms)
                except KafkaError as error:
                    whole.settled(at, error)
            if end < len(records):
                self._context.world.call_soon(lambda: write_from(end))
                return
            for partition, batch in batches.items():
                batch.write(partition)

        write_from(0)

    def _add(
        self,
        session: Session,
        at: int,
        record: NewRecord,
        batches: dict[Partition, "_Batch"],
        whole: "_Whole",
        now_ms: TimestampMs,
    ) -> None:
        """Put a record into its partition's batch; or, if its idempotency key is known, have it answered as the first
        that had it."""
        topic = find_topic(self._context, record.topic)
        headers = record.headers
        _check_headers(headers)
        self._admit(session, topic)
        claim: Claim | None = None
        key: bytes | None = None
        if record.idempotency_key is not None:
            key = _checked(record.idempotency_key)
            met = self.keys.ready(topic).meet(digest_of(key), now_ms)
            if not isinstance(met, Claim):
                met.then(lambda outcome: whole.settled(at, _as_outcome(outcome)))
                return
            claim = met
            headers = (*headers, (HEADER, key))
        try:
            partition = self._place(topic, record.key, record.partition, key)
        except KafkaError as error:
            if claim is not None:
                claim.settled(error)
            raise
        size = _bytes_max(record.key, record.value, headers)
        batch = batches.get(partition)
        if batch is None or not batch.has_room(size):
            if batch is not None:
                batch.write(partition)
            batch = batches[partition] = _Batch(whole, partition.log.settings.max_message_bytes, now_ms)
        batch.add(_Member(at, record.key, record.value, headers, claim))


def _as_outcome(found: tuple[int, Offset] | KafkaError) -> Outcome:
    return found if isinstance(found, KafkaError) else Placed(*found)


def _check_not_internal(topic: str) -> None:
    if topic in INTERNAL_TOPICS:
        raise KafkaError(f"{topic} is written by coordinators alone", ErrorCode.INVALID_TOPIC_EXCEPTION)


def _checked(idempotency_key: str) -> bytes:
    key = idempotency_key.encode() if _is_unicode(idempotency_key) else b""
    if not 0 < len(key) <= IDEMPOTENCY_KEY_BYTES_MAX:
        raise KafkaError(
            f"an idempotency key is text of 1 to {IDEMPOTENCY_KEY_BYTES_MAX} bytes in UTF-8",
            ErrorCode.INVALID_REQUEST,
        )
    return key


def _check_headers(headers: Headers) -> None:
    for name, _ in headers:
        if name == HEADER:
            raise KafkaError(
                f"the header {HEADER} is where an idempotency key is kept, and cannot be given otherwise",
                ErrorCode.INVALID_REQUEST,
            )
        if not name.isascii() and not _is_unicode(name):
            raise KafkaError("the name of a header is not valid Unicode", ErrorCode.INVALID_REQUEST)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return True


def _bytes_max(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """What a record takes in a batch, at most."""
    size = RECORD_OVERHEAD_BYTES_MAX + len(key or b"") + len(value or b"")
    for name, content in headers:
        size += 10 + 4 * len(name) + len(content or b"")
    return size


class _Write(Later[Outcome]):
    """A `Writer` of one record, and its answer."""

    __slots__ = ("_number", "acks", "appended", "deadline_ms")

    def __init__(self, number: int, appended: Appended, deadline_ms: TimestampMs) -> None:
        super().__init__()
        self._number = number
        self.appended = appended
        self.acks = ALL_IN_SYNC
        self.deadline_ms = deadline_ms

    def settle(self, error: KafkaError | None) -> None:
        self.answer(Placed(self._number, self.appended.base_offset) if error is None else error)


def _write_one(partition: Partition, builder: BatchBuilder, now_ms: TimestampMs) -> _Write:
    appended = partition.stage(memoryview(bytearray(builder.build())), ALL_IN_SYNC, now_ms)
    write = _Write(partition.number, appended, now_ms + WAIT_MS_MAX)
    partition.wait(write)
    return write


class _Whole(Later[list[Outcome]]):
    """Answered when every record of a call has its outcome."""

    __slots__ = ("_left", "_outcomes")

    def __init__(self, count: int) -> None:
        super().__init__()
        self._outcomes: list[Outcome] = [Placed(-1, -1)] * count
        self._left = count

    def settled(self, at: int, outcome: Outcome) -> None:
        self._outcomes[at] = outcome
        self._left -= 1
        if not self._left:
            self.answer(self._outcomes)

    def fail(self, error: Exception) -> None:
        """Nothing of it was begun."""
        if not isinstance(error, KafkaError):
            logger.error("records could not be written", exc_info=error)
            error = KafkaError(f"{type(error).__name__}: {error}")
        self.answer([error] * len(self._outcomes))


class _Member(NamedTuple):
    """A record in a batch."""

    at: int
    """Its place in the call."""
    key: bytes | None
    value: bytes | None
    headers: Headers
    claim: Claim | None
    """On its idempotency key."""


class _Batch:
    """Records of a call that go to one partition; a `Writer` once they are staged.

    What can be seen of a record alone is checked before it comes here. Where the log refuses the batch all the same,
    because of some records or because it got too large, the others are written without these:

        [a b c d e]  c, d are refused   -> [a b e]
                     too large          -> [a b] [c d e]
    """

    __slots__ = ("_builder", "_bytes_max", "_members", "_number", "_whole", "acks", "appended", "deadline_ms")

    appended: Appended

    def __init__(self, whole: _Whole, bytes_max: int, now_ms: TimestampMs) -> None:
        self._whole = whole
        self._builder = BatchBuilder()
        self._bytes_max = bytes_max
        self._members: list[_Member] = []
        self._number = -1
        self.acks = ALL_IN_SYNC
        self.deadline_ms = now_ms + WAIT_MS_MAX

    def has_room(self, size: int) -> bool:
        return HEADER_BYTES + self._builder.records_bytes + size <= self._bytes_max

    def add(self, member: _Member) -> None:
        self._builder.append(member.key, member.value, self.deadline_ms - WAIT_MS_MAX, member.headers)
        self._members.append(member)

    def write(self, partition: Partition) -> None:
        """Stage it, and have every record's outcome told."""
        now_ms = self.deadline_ms - WAIT_MS_MAX
        self._number = partition.number
        try:
            if not partition.is_leader:  # any more: others may have had their turn since it was chosen
                raise KafkaError(f"{partition.name} is not led here", ErrorCode.NOT_LEADER_OR_FOLLOWER)
            self.appended = partition.stage(memoryview(bytearray(self._builder.build())), ALL_IN_SYNC, now_ms)
        except InvalidBatch as error:
            self._write_parts(partition, error)
            return
        except KafkaError as error:
            self._tell(error)
            return
        for offset, member in enumerate(self._members, self.appended.base_offset):
            if member.claim is not None:
                member.claim.staged(partition, offset, now_ms)
        partition.wait(self)

    def _write_parts(self, partition: Partition, error: InvalidBatch) -> None:
        """Write what is sound of a batch that was refused, in its order. Each part is smaller than the whole."""
        members = self._members
        if error.record_errors:
            faults = dict(error.record_errors)
            for index, why in faults.items():
                self._tell_one(members[index], KafkaError(f"the record is refused: {why}", error.code))
            parts = [[each for index, each in enumerate(members) if index not in faults]]
        elif error.code is ErrorCode.MESSAGE_TOO_LARGE and len(members) > 1:
            middle = len(members) // 2
            parts = [members[:middle], members[middle:]]
        else:
            self._tell(error)
            return
        for part in parts:
            if part:
                batch = _Batch(self._whole, self._bytes_max, self.deadline_ms - WAIT_MS_MAX)
                for each in part:
                    batch.add(each)
                batch.write(partition)

    def settle(self, error: KafkaError | None) -> None:
        self._tell(error)

    def _tell(self, error: KafkaError | None) -> None:
        base_offset = 0 if error is not None else self.appended.base_offset
        for offset, member in enumerate(self._members, base_offset):
            self._tell_one(member, Placed(self._number, offset) if error is None else error)

    def _tell_one(self, member: _Member, outcome: Outcome) -> None:
        if member.claim is not None:
            member.claim.settled(outcome if isinstance(outcome, KafkaError) else None)
        self._whole.settled(member.at, outcome)
