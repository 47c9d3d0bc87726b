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
from penstock.client.decoding import decode, shown_batches
from penstock.gateway.peer_rpc.client import ConnectionPool, peer_rpc_of
from penstock.gateway.peer_rpc.messages import Bounds, BoundsResult, GetBounds
from penstock.gateway.peer_rpc.remote_watch import Fetched, fetch_request, fetched
from penstock.gateway.peer_rpc.retry import is_alone, retry_while_moving
from penstock.gateway.peer_rpc.service import bounds_of
from penstock.gateway.shared.reading import (
    READ_BYTES,
    RECORD_BYTES_A_SLICE,
    RECORDS_A_SLICE,
    Portion,
    Walk,
    read,
    size_of,
)
from penstock.gateway.shared.topics import find_topic
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
        """As they were last told, while it is led elsewhere."""

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
        """The broker that leads it, which is not this one; raises where there is none, or the topic is gone."""
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

    # -- where it begins and ends ----------------------------------------------------------------------

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

    def told(self, bounds: Bounds) -> None:
        self._bounds = bounds

    def freshen(self, offset: Offset) -> Steps[None]:
        """Have the ends be as they are now, for who reads on at an offset."""
        if self.here is None:
            recent = peer_rpc_of(self._context).watcher.recent(self.key, offset)
            if recent is None:
                yield from look_up_bounds(self._context, [self])
            else:
                self._told(recent)

    def _told(self, got: Fetched) -> None:
        before = self._bounds
        self._bounds = Bounds(
            max(got.log_start, 0),
            got.last_stable,
            max(before.high_watermark, got.last_stable),
            max(before.log_end, got.last_stable),
            before.size_bytes,
            before.segments,
        )

    # -- its records -----------------------------------------------------------------------------------

    def fetch(self, offset: Offset, bytes_max: int) -> Steps[Fetched]:
        """Batches from another broker; raises what it says. An offset outside of the log is OFFSET_OUT_OF_RANGE."""
        recent: Fetched | None = peer_rpc_of(self._context).watcher.recent(self.key, offset)
        if recent is not None:
            self._told(recent)
            return recent
        request = fetch_request({self.key: offset}, wait_ms=0, partition_bytes=bytes_max, bytes_max=bytes_max)
        response: FetchResponse = yield self._context.broker_client.send(
            self.leader, request, timeout_ms=READ_MS_MAX, purpose=ConnectionPool.shared(self.number)
        )
        results = [each for _, found in response.topics for each in found]
        code = response.error_code or (results[0].error_code if len(results) == 1 else -1)
        if code:
            raise KafkaError(
                f"{self.name} cannot be read at {offset}: {ErrorCode(code).name}", ErrorCode(code)
            )
        got = fetched(offset, results[0])
        self._told(got)
        return got

    def read(self, offset: Offset, *, records_max: int, bytes_max: int) -> Steps[Portion]:
        """As `reading.read`; of a partition that is led elsewhere as much as it says that there is."""
        here = self.here
        if here is not None:
            return read(here, offset, records_max=records_max, bytes_max=bytes_max)
        got = yield from self.fetch(offset, bytes_max)
        decoded = decode(got.data, offset, got.aborted)
        if len(decoded.records) > records_max:
            return Portion(decoded.records[:records_max], decoded.records[records_max].offset)
        return Portion(decoded.records, decoded.next_offset)

    # -- waiting for more ------------------------------------------------------------------------------

    def watch(self, watcher: DelayedFetch) -> None:
        """Have a watcher told of more; `changed` when it is to look where the partition is now."""
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
    """A partition of a topic that there is."""
    found = find_topic(context, topic)
    if number not in found.partitions:
        raise KafkaError(
            f"topic {topic!r} has no partition {number}, only 0 to {len(found.partitions) - 1}",
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        )
    if is_alone(context):
        context.replicas.find(topic, number)  # which says what is wrong, where nobody else could serve it
    return RoutedPartition(context, topic, found.id, number)


def look_up_bounds(
    context: Context,
    places: Sequence[RoutedPartition],
    times: tuple[TimestampMs, ...] = (),
    *,
    is_patient: bool = True,
) -> Steps[dict[RoutedPartition, Bounds]]:
    """Learn where places led elsewhere begin and end, and what they have at these times: those of each leader with one
    letter. Of what this node leads nothing is told: it need not be asked for. Who is not patient is told as much as
    can be known at once."""
    away = [each for each in places if each.here is None]
    if not away:
        return {}
    found: dict[RoutedPartition, Bounds] = {}

    def attempt() -> Steps[None]:
        missing = yield from _look_once(context, [each for each in away if each not in found], times, found)
        if missing is not None and is_patient:
            raise missing

    yield from retry_while_moving(context, attempt)
    # What has come here meanwhile is asked here.
    return found | {each: bounds_of(here, times) for each in away if (here := each.here) is not None}


def _look_once(
    context: Context,
    places: Sequence[RoutedPartition],
    times: tuple[TimestampMs, ...],
    found: dict[RoutedPartition, Bounds],
) -> Steps[KafkaError | None]:
    """Ask the leaders; what is wrong with the first place that is not known then."""
    wrong: KafkaError | None = None
    by_leader: dict[int, list[RoutedPartition]] = {}
    for each in places:
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
        for place, row in zip(those, looked, strict=True):
            if row.bounds is not None:
                found[place] = row.bounds
                place.told(row.bounds)
            else:
                wrong = wrong or row.error
    return wrong


class RoutedWalk:
    """A `Walk` through a place. `prepare` it before `some`."""

    def __init__(self, context: Context, place: RoutedPartition, start: Offset, stop: Offset) -> None:
        self._context = context
        self.place = place
        self.position = start
        """Behind all that was given, and what is not shown behind that. Moves up to stop."""
        self._stop = stop
        self._walk: Walk | None = None
        """While it is led here."""
        self._records: Generator[Record, None, None] | None = None
        """Of what was brought from elsewhere."""

    @property
    def is_over(self) -> bool:
        return self.position >= self._stop

    def prepare(self) -> Steps[None]:
        """Have something to give, if there is anything; raises what keeps it from going on."""
        if self.is_over or self._records is not None:
            return
        here = self.place.here
        if here is not None:
            if self._walk is None or self._walk.partition is not here:
                self._walk = Walk(here, self.position, self._stop)
            return
        self._walk = None
        yield from retry_while_moving(self._context, self._bring)

    def _bring(self) -> Steps[None]:
        if self.place.here is not None:
            yield from self.prepare()
            return
        got = yield from self.place.fetch(self.position, READ_BYTES)
        if not got.data and got.last_stable <= self.position:
            raise KafkaError(
                f"{self.place.name} has a new leader, which has not committed up to {self.position} yet",
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
            raise KafkaError(f"{self.place.name} has no batch at {start}", ErrorCode.KAFKA_STORAGE_ERROR)

    def some(self, records_max: int = RECORDS_A_SLICE) -> list[Record]:
        """The next records; fewer than there are, or none, before it is over."""
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

    def rest(self) -> None:
        """Keep nothing but the position: what was read and not given is read again."""
        walk, self._walk = self._walk, None
        if walk is not None:
            walk.close()
        records, self._records = self._records, None
        if records is not None:
            records.close()


class RoutedGrowth(Promise[bool]):
    """A `DelayedFetch`: as `Growth`, of a place. What it is answered does not matter: who waits looks again."""

    __slots__ = ("_place", "_timer")

    def __init__(self, context: Context, place: RoutedPartition, wait_ms: float) -> None:
        super().__init__()
        self._place = place
        self._timer = context.world.call_later(wait_ms, self.changed)
        place.watch(self)

    def __hash__(self) -> int:
        return id(self)

    def grew(self, bytes_more: int) -> None:
        self._finish()

    def decided(self) -> None:
        self._finish()

    def changed(self) -> None:
        self._finish()

    def cancel(self) -> None:
        self._timer.cancel()
        self._place.unwatch(self)

    def _finish(self) -> None:
        if not self.is_settled:
            self.cancel()
            self.resolve(True)
