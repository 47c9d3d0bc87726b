"""Produces records for the gateway's protocols: one batch for each partition, with `acks=all`.

    produce, produce_all --> create topics, load idempotency keys, if necessary --> choose partitions
                                     led by this broker: append a batch    |    led by another: send to the leader

A record's key decides its partition as in Kafka's default partitioner, over all partitions of the topic. A record
without a key but with an idempotency key goes to the partition of the hash of that. Other records go round robin over
the partitions that have a leader. A partition that the client names overrides all of these.

The leader of a partition decides about the idempotency keys of its records: it alone knows the records in flight, and
the next leader reads the keys from the log. Before a leader accepts a key as new, it asks the other brokers that have
partitions of the topic: the same key may have come with another record key, or before partitions were added
(`docs/decisions/0012`).

Nothing here raises: errors fail the promise, or are in a record's result. Unless a topic or keys must be prepared
first, everything is staged before the call returns.
"""

import logging
from collections.abc import Iterable, Sequence

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.hashing import partition_of_key
from penstock.base.ids import TimestampMs, Uuid
from penstock.base.promise import Promise
from penstock.base.steps import RunningSteps, Steps
from penstock.gateway.idempotency import HEADER, Claim, IdempotencyKeys, digest_of, still_loading
from penstock.gateway.peer_rpc.client import peer_rpc_of
from penstock.gateway.peer_rpc.messages import KeyPlaces, RecordToWrite, Write, WriteResult
from penstock.gateway.peer_rpc.retry import RETRY_MS_MAX, is_alone
from penstock.gateway.shared.access import TOPIC, allow
from penstock.gateway.shared.key_search import known_here, known_to_others
from penstock.gateway.shared.new_records import (
    NewRecord,
    RecordPosition,
    RecordResult,
    append,
    check_headers,
    check_key,
    check_not_internal,
    check_timestamp,
    checked_idempotency_key,
    record_bytes_max,
)
from penstock.gateway.shared.produce_calls import BatchRecord, ProduceBatch, ProduceCall
from penstock.gateway.shared.topics import ensure_topic, find_topic, no_partition
from penstock.handlers.support.context import Context, Session
from penstock.metadata.acls import Operation
from penstock.metadata.image import Topic
from penstock.records import BatchBuilder
from penstock.records.builder import Headers
from penstock.replica import Partition
from penstock.storage import Appended
from penstock.wire.peers import PeerFailed

__all__ = ["NewRecord", "Producer", "RecordPosition", "RecordResult"]

logger = logging.getLogger(__name__)

COUNTERS_MAX = 10_000
"""Topics whose round-robin position is kept; beyond this, all start again."""

RECORDS_A_SLICE = 500
"""Records of a long list that are handled in one tick: about ten milliseconds."""

TOPICS_MADE_MAX = 100
"""Topics that one call may create."""


class Prepared:
    """What is known about the records of a call before they are written."""

    def __init__(self) -> None:
        self.refused: dict[str, KafkaError] = {}
        """Topics that cannot be written to, by name."""
        self.known: dict[tuple[str, bytes], RecordPosition] = {}
        """By topic and digest of the idempotency key: records with that key that other brokers know."""


class Producer:
    """Part of the `Gateway`."""

    def __init__(self, context: Context, keys: IdempotencyKeys | None = None) -> None:
        self.keys = keys or IdempotencyKeys(context)
        self._context = context
        self._counters: dict[Uuid, int] = {}
        """By topic: the round-robin counter of records without a key. Starts at random."""

    def start(self) -> None:
        self.keys.start()

    def stop(self) -> None:
        self.keys.stop()

    @property
    def _is_alone(self) -> bool:
        """Whether there is no other broker."""
        return is_alone(self._context)

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
        timestamp: TimestampMs | None = None,
    ) -> Promise[RecordPosition]:
        """Write a record; create its topic if necessary. Resolved with its position once it is durable."""
        context = self._context
        if idempotency_key is None:
            known: Topic | None = context.image.topics.get(topic)
            if known is not None:
                try:
                    self._admit(session, known)
                    check_headers(headers)
                    partition = self._choose(known, key, partition, None)
                    led = self._led(known, partition)
                    if led is not None:
                        check_key(led, key)
                        now_ms = context.world.now_ms()
                        check_timestamp(led, timestamp, now_ms)
                        builder = BatchBuilder()
                        builder.append(key, value, now_ms if timestamp is None else timestamp, headers)
                        return _write_one(context, led, builder)
                except KafkaError as error:
                    rejected: Promise[RecordPosition] = Promise()
                    rejected.fail(error)
                    return rejected
        one: Promise[RecordPosition] = Promise()

        def produced(results: list[RecordResult]) -> None:
            [(number, offset, error, _)] = results
            if error is None:
                one.resolve(RecordPosition(number, offset))
            else:
                one.fail(error)

        record = NewRecord(topic, key, value, headers, partition, idempotency_key, timestamp)
        self.produce_all(session, [record]).then(produced)
        return one

    def produce_all(self, session: Session, records: Sequence[NewRecord]) -> Promise[list[RecordResult]]:
        """Write records in their order, those for one partition in one batch if it can be that large. Each has its
        result: an invalid record does not keep others from being written. Never fails."""
        world = self._context.world
        until_ms = 0 if self._is_alone else world.now_ms() + RETRY_MS_MAX
        call = ProduceCall(world, session, records, self._begin, until_ms=until_ms)
        if records:
            self._begin(call, list(range(len(records))))
        else:
            call.resolve([])
        return call

    def write_passed_on(self, session: Session, records: Sequence[NewRecord]) -> Promise[list[RecordResult]]:
        """Write records that another broker has sent, to the partitions that it has chosen, as their leader."""
        call = ProduceCall(self._context.world, session, records, self._begin, passes_on=False)
        self._begin(call, list(range(len(records))))
        return call

    def _begin(self, call: ProduceCall, indexes: list[int]) -> None:
        """Write the records at these indexes of a call."""
        if not self._must_wait([call.records[at] for at in indexes]):
            self._write(call, indexes, Prepared())
            return
        prepared = Prepared()

        def failed(error: Exception) -> None:
            if not isinstance(error, KafkaError):
                logger.error("records could not be written", exc_info=error)
                error = KafkaError(f"{type(error).__name__}: {error}")
            for at in indexes:
                call.failed(at, error)

        RunningSteps(
            self._prepare(call.session, [call.records[at] for at in indexes], prepared),
            lambda _: self._write(call, indexes, prepared),
            failed,
        )

    # -- preparation -----------------------------------------------------------------------------------

    def _must_wait(self, records: Iterable[NewRecord]) -> bool:
        topics = self._context.image.topics
        for each in records:
            known = topics.get(each.topic)
            if known is None or (
                each.idempotency_key is not None and (not self._is_alone or self.keys.of(known) is None)
            ):
                return True
        return False

    def _prepare(self, session: Session, records: Iterable[NewRecord], prepared: Prepared) -> Steps[None]:
        """Create topics, and load the idempotency keys that are needed."""
        by_topic: dict[str, list[NewRecord]] = {}
        for each in records:
            by_topic.setdefault(each.topic, []).append(each)
        made = 0
        for name, those in by_topic.items():
            try:
                allow(self._context, session, Operation.WRITE, TOPIC, name)
                check_not_internal(name)
                if name not in self._context.image.topics:
                    made += 1
                    if made > TOPICS_MADE_MAX:
                        raise KafkaError(
                            f"topic {name!r} does not exist, and one call creates at most {TOPICS_MADE_MAX} topics",
                            ErrorCode.POLICY_VIOLATION,
                        )
                topic = yield from ensure_topic(self._context, session, name)
                digests = self._digests_to_decide(topic, those)
                if digests and not self.keys.is_open(topic):
                    yield self.keys.open(topic)
                if digests and not self._is_alone:
                    found = yield from known_to_others(self._context, self.keys, topic, digests)
                    prepared.known |= {(name, digest): position for digest, position in found.items()}
            except KafkaError as error:
                prepared.refused[name] = error

    # -- idempotency keys ------------------------------------------------------------------------------

    def _digests_to_decide(self, topic: Topic, records: Iterable[NewRecord]) -> dict[bytes, None]:
        """Digests of the idempotency keys of records for partitions that this broker leads."""
        found: dict[bytes, None] = {}
        for each in records:
            if each.idempotency_key is None:
                continue
            try:
                key = checked_idempotency_key(each.idempotency_key)
                is_here = self._is_alone or self._led(
                    topic, self._choose(topic, each.key, each.partition, key)
                )
            except KafkaError:
                continue  # `_add` rejects the record
            if is_here:
                found[digest_of(key)] = None
        return found

    def find_keys(self, topic: Topic, digests: Sequence[bytes]) -> Steps[KeyPlaces]:
        """For another broker: the positions of records with these keys, as far as this node knows."""
        return known_here(self._context, self.keys, topic, digests)

    # -- choice of the partition -----------------------------------------------------------------------

    def _admit(self, session: Session, topic: Topic) -> None:
        """Raise if the client may not write to the topic."""
        allow(self._context, session, Operation.WRITE, TOPIC, topic.name)
        check_not_internal(topic.name, self._context.audit_topic)

    def _led(self, topic: Topic, number: int) -> Partition | None:
        """A partition, if this broker leads it. On the only broker, raises if it does not."""
        found = self._context.replicas.led(topic.name, number)
        return self._context.replicas.find(topic.name, number) if found is None and self._is_alone else found

    def _choose(
        self, topic: Topic, key: bytes | None, partition: int | None, idempotency_key: bytes | None
    ) -> int:
        """The number of the partition that a record goes to."""
        count = len(topic.partitions)
        if partition is not None:
            if partition not in topic.partitions:
                raise no_partition(topic, partition)
            return partition
        if key is not None:
            return partition_of_key(key, count)
        if idempotency_key is not None:
            return partition_of_key(idempotency_key, count)
        return self._next(topic, count)

    def _next(self, topic: Topic, count: int) -> int:
        """The next partition in round-robin order that has a leader."""
        counters, replicas = self._counters, self._context.replicas
        start = counters.get(topic.id)
        if start is None:
            if len(counters) >= COUNTERS_MAX:
                counters.clear()
            start = self._context.world.rng.randrange(count)
        for counter in range(start, start + count):
            number = counter % count
            is_led = replicas.led(topic.name, number) is not None
            if is_led or (not self._is_alone and topic.partitions[number].leader >= 0):
                counters[topic.id] = counter + 1
                return number
        return start % count

    # -- writing ---------------------------------------------------------------------------------------

    def _write(self, call: ProduceCall, indexes: list[int], prepared: Prepared) -> None:
        batches: dict[Partition, ProduceBatch] = {}
        away: dict[tuple[Uuid, int], list[int]] = {}
        now_ms = self._context.world.now_ms()

        def write_from(start: int) -> None:
            end = min(start + RECORDS_A_SLICE, len(indexes))
            for at in indexes[start:end]:
                record = call.records[at]
                try:
                    if record.topic in prepared.refused:
                        raise prepared.refused[record.topic]
                    self._add(call, at, record, batches, away, prepared, now_ms)
                except KafkaError as error:
                    call.failed(at, error)
            if end < len(indexes):
                self._context.world.call_soon(lambda: write_from(end))
                return
            for partition, batch in batches.items():
                batch.write(partition)
            for (topic_id, number), those in away.items():
                self._pass_on(call, topic_id, number, those)

        write_from(0)

    def _add(
        self,
        call: ProduceCall,
        at: int,
        record: NewRecord,
        batches: dict[Partition, ProduceBatch],
        away: dict[tuple[Uuid, int], list[int]],
        prepared: Prepared,
        now_ms: TimestampMs,
    ) -> None:
        """Add a record to its partition's batch; or to `away`, if another broker leads the partition. A record with a
        known idempotency key gets the position of the first record with that key."""
        topic = find_topic(self._context, record.topic)
        headers = record.headers
        check_headers(headers)
        self._admit(call.session, topic)
        key = None if record.idempotency_key is None else checked_idempotency_key(record.idempotency_key)
        digest = b"" if key is None else digest_of(key)
        if key is not None and self._is_known(call, at, topic, digest, prepared, now_ms):
            return
        number = self._choose(topic, record.key, record.partition, key)
        partition = self._led(topic, number)
        if partition is None:
            if not call.passes_on:
                raise KafkaError(
                    f"this broker does not lead {topic.name}-{number}", ErrorCode.NOT_LEADER_OR_FOLLOWER
                )
            away.setdefault((topic.id, number), []).append(at)
            return
        check_key(partition, record.key)
        check_timestamp(partition, record.timestamp, now_ms)
        claim: Claim | None = None
        if key is not None:
            claim = self._claim(topic, partition, digest)
            headers = (*headers, (HEADER, key))
        size = record_bytes_max(record.key, record.value, headers)
        batch = batches.get(partition)
        if batch is None or not batch.has_room(size):
            if batch is not None:
                batch.write(partition)
            batch = batches[partition] = ProduceBatch(call, partition.log.settings.max_message_bytes, now_ms)
        batch.add(BatchRecord(at, record.key, record.value, headers, claim, record.timestamp))

    def _claim(self, topic: Topic, partition: Partition, digest: bytes) -> Claim:
        keys = self.keys.ready(topic)
        if not keys.logs.has_read(partition):
            raise still_loading(str(partition.name))
        return keys.claim(digest)

    def _is_known(
        self, call: ProduceCall, at: int, topic: Topic, digest: bytes, prepared: Prepared, now_ms: TimestampMs
    ) -> bool:
        """Give a record with a known idempotency key the position of the first record with that key."""
        position = prepared.known.get((topic.name, digest))
        if position is not None:
            call.written(at, position)
            return True
        keys = self.keys.ready(topic) if self._is_alone else self.keys.of(topic)
        found = None if keys is None else keys.find(digest, now_ms)
        if found is None:
            return False
        found.then(
            lambda position: call.written(at, RecordPosition(*position)),
            lambda error: call.failed(at, error, may_be_written=True),
        )
        return True

    # -- partitions of other leaders -------------------------------------------------------------------

    def _pass_on(self, call: ProduceCall, topic_id: Uuid, number: int, indexes: list[int]) -> None:
        """Send records to the leader of their partition. Those of one partition share a connection, and so are
        written in their order."""
        topic = self._context.image.topic_by_id(topic_id)
        leader = -1 if topic is None or number not in topic.partitions else topic.partitions[number].leader
        if topic is None or leader < 0 or leader == self._context.node_id:
            for at in indexes:
                call.failed(
                    at,
                    KafkaError(f"partition {number} has no leader. Retry.", ErrorCode.LEADER_NOT_AVAILABLE),
                )
            return
        records = tuple(
            RecordToWrite(
                number, each.key, each.value, tuple(each.headers), each.idempotency_key, each.timestamp
            )
            for each in (call.records[at] for at in indexes)
        )

        def failed(error: KafkaError) -> None:
            # A broker that returned an error, or refused the connection, has written nothing; one that did not answer
            # may have.
            may_be_written = isinstance(error, PeerFailed) and not error.refused
            for at in indexes:
                call.failed(at, error, may_be_written=may_be_written)

        def written(results: list[WriteResult]) -> None:
            for at, each in zip(indexes, results, strict=True):
                error = each.error
                if error is None:
                    call.written(at, RecordPosition(each.partition, each.offset))
                else:
                    call.failed(at, error, may_be_written=each.may_be_written)

        peer_rpc_of(self._context).send(
            leader, Write(topic.name, topic.id, records), session=call.session, order_key=number
        ).then(written, failed)


def _write_one(context: Context, partition: Partition, builder: BatchBuilder) -> Promise[RecordPosition]:
    """Append a batch of one record."""
    one: Promise[RecordPosition] = Promise()

    def written(appended: Appended) -> None:
        one.resolve(RecordPosition(partition.number, appended.base_offset))

    append(context, partition, bytearray(builder.build())).then(written, one.fail)
    return one
