"""A partition, wherever it is led.

    partition = find_partition(context, "orders", 2)
    yield from look_up_bounds(context, [partition])    # its offsets, from the leader
    walk = RoutedWalk(context, partition, start, stop)
    yield from walk.prepare()                          # fetches batches, if another broker leads it
    records = walk.some()

If this broker leads the partition, nothing is sent and nothing waits. The leader may change between two steps: the
next records come from the new leader.
"""

from collections.abc import Generator, Sequence
from typing import Final

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import Offset, TimestampMs, TopicPartition, Uuid
from penstock.base.promise import Promise
from penstock.base.steps import Steps
from penstock.base.world import Timer
from penstock.client.decoding import decode, shown_batches
from penstock.gateway.peer_rpc.client import ConnectionNames, peer_rpc_of
from penstock.gateway.peer_rpc.held_replicas import bounds_of
from penstock.gateway.peer_rpc.messages import Bounds, BoundsResult, GetBounds, GetOffsetBack
from penstock.gateway.peer_rpc.remote_watch import Fetched, fetch_request, fetched
from penstock.gateway.peer_rpc.retry import is_alone, retry_while_moving
from penstock.gateway.shared.reading import (
    READ_BYTES,
    RECORD_BYTES_A_SLICE,
    RECORDS_A_SLICE,
    Portion,
    Walk,
    read,
    size_of,
)
from penstock.gateway.shared.topics import find_topic, no_partition
from penstock.handlers.support.context import Context
from penstock.records import Record
from penstock.replica import DelayedFetch, Partition
from penstock.wire.fetch_client import FetchResponse

READ_MS_MAX: Final = 10_000
"""Timeout of a fetch from another broker."""

_NOTHING: Final = Bounds(0, 0, 0, 0, 0, 0)


class RoutedPartition:
    __slots__ = ("_bounds", "_context", "number", "topic", "topic_id")

    def __init__(self, context: Context, topic: str, topic_id: Uuid, number: int) -> None:
        self._context = context
        self.topic = topic
        self.topic_id = topic_id
        self.number = number
        self._bounds = _NOTHING
        """The offsets that the leader reported last, while another broker leads the partition."""

    def __repr__(self) -> str:
        return f"<RoutedPartition {self.name}>"

    @property
    def name(self) -> TopicPartition:
        return TopicPartition(self.topic, self.number)

    @property
    def key(self) -> tuple[Uuid, int]:
        return self.topic_id, self.number

    @property
    def here(self) -> Partition | None:
        """The partition, while this node leads it."""
        return self._context.replicas.led(self.topic_id, self.number)

    @property
    def is_gone(self) -> bool:
        """Whether its topic is deleted."""
        if self.here is not None:
            return False
        try:
            self._context.replicas.find(self.topic_id, self.number)
        except KafkaError as error:
            return error.code in (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return False

    @property
    def leader(self) -> int:
        """The broker that leads the partition, if it is another one. Raises if there is none, or the topic is
        deleted."""
        topic = self._context.image.topic_by_id(self.topic_id)
        placed = None if topic is None else topic.partitions.get(self.number)
        if placed is None:
            raise KafkaError(f"topic {self.topic!r} was deleted", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if placed.leader < 0:
            raise KafkaError(f"{self.name} has no leader. Retry.", ErrorCode.LEADER_NOT_AVAILABLE)
        if placed.leader == self._context.node_id:
            raise KafkaError(
                f"{self.name} is not served by this broker yet", ErrorCode.NOT_LEADER_OR_FOLLOWER
            )
        leader: int = placed.leader
        return leader

    # -- offsets ---------------------------------------------------------------------------------------

    @property
    def log_start(self) -> Offset:
        here = self.here
        return self._bounds.log_start if here is None else here.log.log_start

    @property
    def last_stable(self) -> Offset:
        here = self.here
        return self._bounds.last_stable if here is None else here.last_stable

    @property
    def high_watermark(self) -> Offset:
        here = self.here
        return self._bounds.high_watermark if here is None else here.high_watermark

    @property
    def log_end(self) -> Offset:
        here = self.here
        return self._bounds.log_end if here is None else here.log.log_end

    def update_bounds(self, bounds: Bounds) -> None:
        self._bounds = bounds

    def freshen(self, offset: Offset) -> Steps[None]:
        """Update the offsets for a read at `offset`, if another broker leads the partition."""
        if self.here is None:
            recent = peer_rpc_of(self._context).watcher.recent(self.key, offset)
            if recent is None:
                yield from look_up_bounds(self._context, [self])
            else:
                self._update_from_fetch(recent)

    def _update_from_fetch(self, got: Fetched) -> None:
        before = self._bounds
        self._bounds = Bounds(
            max(got.log_start, 0),
            got.last_stable,
            max(before.high_watermark, got.last_stable),
            max(before.log_end, got.last_stable),
            before.size_bytes,
            before.segments,
        )

    # -- records ---------------------------------------------------------------------------------------

    def fetch(self, offset: Offset, bytes_max: int) -> Steps[Fetched]:
        """Fetch batches from the leader. Raises its error: OFFSET_OUT_OF_RANGE for an offset outside of the log."""
        recent: Fetched | None = peer_rpc_of(self._context).watcher.recent(self.key, offset)
        if recent is not None:
            self._update_from_fetch(recent)
            return recent
        request = fetch_request(
            self._context.cluster_id,
            {self.key: offset},
            wait_ms=0,
            partition_bytes=bytes_max,
            bytes_max=bytes_max,
        )
        response: FetchResponse = yield self._context.broker_client.send(
            self.leader, request, timeout_ms=READ_MS_MAX, purpose=ConnectionNames.shared(self.number)
        )
        results = [each for _, found in response.topics for each in found]
        code = response.error_code or (results[0].error_code if len(results) == 1 else -1)
        if code:
            raise KafkaError(
                f"{self.name} cannot be read at {offset}: {ErrorCode(code).name}", ErrorCode(code)
            )
        got = fetched(offset, results[0])
        self._update_from_fetch(got)
        return got

    def read(self, offset: Offset, *, records_max: int, bytes_max: int) -> Steps[Portion]:
        """As `reading.read`. From another leader, at most what one fetch returns."""
        here = self.here
        if here is not None:
            return read(here, offset, records_max=records_max, bytes_max=bytes_max)
        got = yield from self.fetch(offset, bytes_max)
        decoded = decode(got.data, offset, got.aborted)
        if len(decoded.records) > records_max:
            return Portion(decoded.records[:records_max], decoded.records[records_max].offset)
        return Portion(decoded.records, decoded.next_offset)

    def offset_back(self, stop: Offset, size_bytes: int) -> Steps[Offset]:
        """An offset below `stop` with about `size_bytes` of batches between them, or one batch."""

        def attempt() -> Steps[Offset]:
            here = self.here
            if here is not None:
                return here.log.reader.offset_back(stop, size_bytes)
            asked = GetOffsetBack(self.topic_id, self.number, stop, size_bytes)
            found: Offset = yield peer_rpc_of(self._context).send(self.leader, asked)
            return found

        return (yield from retry_while_moving(self._context, attempt))

    # -- waiting for more ------------------------------------------------------------------------------

    def watch(self, watcher: DelayedFetch) -> None:
        """Notify a watcher of new records. Its `changed` is called when the leader changes."""
        here = self.here
        if here is not None:
            here.watch(watcher)
        else:
            peer_rpc_of(self._context).watcher.watch(self.key, watcher, self.last_stable)

    def unwatch(self, watcher: DelayedFetch) -> None:
        here = self._context.replicas.held(self.topic_id, self.number)
        if here is not None:
            here.unwatch(watcher)
        if not is_alone(self._context):
            peer_rpc_of(self._context).watcher.unwatch(self.key, watcher)


def find_partition(context: Context, topic: str, number: int) -> RoutedPartition:
    """A partition of an existing topic."""
    found = find_topic(context, topic)
    if number not in found.partitions:
        raise no_partition(found, number)
    if is_alone(context):
        context.replicas.find(topic, number)  # raises the reason if the only broker does not serve it
    return RoutedPartition(context, topic, found.id, number)


def look_up_bounds(
    context: Context,
    partitions: Sequence[RoutedPartition],
    times: tuple[TimestampMs, ...] = (),
    *,
    retries: bool = True,
) -> Steps[dict[RoutedPartition, Bounds]]:
    """Look up the offsets of partitions that other brokers lead, and their offsets at these times, with one request to
    each leader. Partitions that this broker leads are left out. With `retries` false, does not retry, and
    leaves out what is not known."""
    away = [each for each in partitions if each.here is None]
    if not away:
        return {}
    found: dict[RoutedPartition, Bounds] = {}

    def attempt() -> Steps[None]:
        missing = yield from _look_once(context, [each for each in away if each not in found], times, found)
        if missing is not None and retries:
            raise missing

    yield from retry_while_moving(context, attempt)
    # This broker may have become the leader meanwhile.
    return found | {each: bounds_of(here, times) for each in away if (here := each.here) is not None}


def _look_once(
    context: Context,
    partitions: Sequence[RoutedPartition],
    times: tuple[TimestampMs, ...],
    found: dict[RoutedPartition, Bounds],
) -> Steps[KafkaError | None]:
    """Ask the leaders once. Return the error of the first partition without a result."""
    wrong: KafkaError | None = None
    by_leader: dict[int, list[RoutedPartition]] = {}
    for each in partitions:
        if each.here is None:
            try:
                by_leader.setdefault(each.leader, []).append(each)
            except KafkaError as error:
                wrong = wrong or error
    asked = [
        (those, peer_rpc_of(context).send(leader, GetBounds(tuple(each.key for each in those), times)))
        for leader, those in by_leader.items()
    ]
    for those, answer in asked:
        try:
            looked: list[BoundsResult] = yield answer
        except KafkaError as error:
            wrong = wrong or error
            continue
        for partition, row in zip(those, looked, strict=True):
            if row.bounds is not None:
                found[partition] = row.bounds
                partition.update_bounds(row.bounds)
            else:
                wrong = wrong or row.error
    return wrong


class RoutedWalk:
    """A `Walk` through a partition, whichever broker leads it. Call `prepare` before `some`."""

    def __init__(self, context: Context, partition: RoutedPartition, start: Offset, stop: Offset) -> None:
        self._context = context
        self.partition = partition
        self.position = start
        """Next offset after the returned records, and after control records behind them. Moves up to `stop`."""
        self._stop = stop
        self._walk: Walk | None = None
        """Set while this broker leads the partition."""
        self._records: Generator[Record, None, None] | None = None
        """Records fetched from another leader."""

    @property
    def is_over(self) -> bool:
        return self.position >= self._stop

    def prepare(self) -> Steps[None]:
        """Read or fetch the next records, if there are any. Raises an error that ends the walk."""
        if self.is_over or self._records is not None:
            return
        here = self.partition.here
        if here is not None:
            if self._walk is None or self._walk.partition is not here:
                self._walk = Walk(here, self.position, self._stop)
            return
        self._walk = None
        yield from retry_while_moving(self._context, self._bring)

    def _bring(self) -> Steps[None]:
        if self.partition.here is not None:
            yield from self.prepare()
            return
        got = yield from self.partition.fetch(self.position, READ_BYTES)
        if not got.data and got.last_stable <= self.position:
            raise KafkaError(
                f"{self.partition.name} has a new leader, which has not committed up to {self.position} yet",
                ErrorCode.LEADER_NOT_AVAILABLE,
            )
        self._records = self._decoded(got)

    def _decoded(self, got: Fetched) -> Generator[Record, None, None]:
        start = self.position
        for records, after in shown_batches(got.data, start, got.aborted):
            for record in records:
                if record.offset >= self._stop:
                    break
                yield record
            self.position = min(after, self._stop)
        if self.position <= start:
            raise KafkaError(f"{self.partition.name} has no batch at {start}", ErrorCode.KAFKA_STORAGE_ERROR)

    def some(self, records_max: int = RECORDS_A_SLICE) -> list[Record]:
        """The next records. May be fewer than there are, or none, before the walk is over."""
        walk = self._walk
        if walk is not None:
            try:
                found = walk.some(records_max)
            except KafkaError as error:
                if error.code is not ErrorCode.NOT_LEADER_OR_FOLLOWER or is_alone(self._context):
                    raise
                self._walk, found = None, []
            self.position = walk.position
            return found
        found = []
        records = self._records
        wanted, size = min(records_max, RECORDS_A_SLICE), 0
        while records is not None and len(found) < wanted and size < RECORD_BYTES_A_SLICE:
            record = next(records, None)
            if record is None:
                self._records = None
                break
            found.append(record)
            size += size_of(record)
            self.position = record.offset + 1
        return found

    def release(self) -> None:
        """Keep only the position: records that were read but not returned are read again."""
        walk, self._walk = self._walk, None
        if walk is not None:
            walk.close()
        records, self._records = self._records, None
        if records is not None:
            records.close()


class Growth(Promise[None]):
    """A `DelayedFetch`: resolved when a partition has more to read at an offset, or may have if another broker leads
    it; when the time is up; or when the leader changes."""

    __slots__ = ("_offset", "_partition", "_timer")

    def __init__(self, context: Context, partition: RoutedPartition, offset: Offset, wait_ms: float) -> None:
        super().__init__()
        self._partition = partition
        self._offset = offset
        self._timer: Timer | None = None
        if partition.here is not None and partition.last_stable > offset:
            self.resolve(None)
            return
        self._timer = context.world.call_later(wait_ms, self.changed)
        partition.watch(self)

    def __hash__(self) -> int:
        return id(self)

    def grew(self, bytes_more: int) -> None:
        here = self._partition.here
        if here is None or here.last_stable > self._offset:
            self.changed()

    def decided(self) -> None:
        self.grew(0)

    def changed(self) -> None:
        if not self.is_settled:
            self.cancel()
            self.resolve(None)

    def cancel(self) -> None:
        """Stop waiting. The promise is not settled."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._partition.unwatch(self)
