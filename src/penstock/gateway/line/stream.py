"""One request for messages: where it is in each partition, and what comes next.

    partition 0   [....committed|########]     a portion of one partition is read and given out message by message,
    partition 1   [..committed|####]           then it is the next partition's turn
    partition 2   [....committed|]             nothing in any of them: watch them all

Positions are the stream's own from the beginning on: what another client of the group commits, it does not see.

Offsets that hold no message (markers of transactions, what they took back, what compaction removed) are acknowledged
by nobody. When the stream is at the end, the group is moved behind them, as a consumer commits its position: otherwise
it would seem to be behind for ever.

A topic that is not there is waited for. It is not made: a name that was mistyped would leave a topic behind.
"""

from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import Offset
from penstock.base.steps import Steps
from penstock.gateway.line.commands import ALL_PARTITIONS, Read
from penstock.gateway.line.offsets import commit, committed
from penstock.gateway.peer_rpc.retry import is_alone, retry_while_moving
from penstock.gateway.peer_rpc.routed_partition import RoutedPartition, find_partition, look_up_bounds
from penstock.gateway.shared.reading import Portion, read, within
from penstock.gateway.shared.topics import find_topic
from penstock.handlers.support.context import Context
from penstock.metadata import Topic
from penstock.metadata.controller.topics import check_name
from penstock.records import Record

PORTION_BYTES = 64 * 1024
PORTION_RECORDS_MAX = 1000
"""Of a large batch so much is kept, and the rest decoded again: a stream holds one portion, and there may be many."""

READS_MAX = 16
"""Portions without a message, of transactions that were taken back say, that are read before others have a turn."""


class Nothing(Enum):
    """Why there is no message."""

    NOW = "at the end"
    HERE = "it is led elsewhere, and has to be fetched first"
    YET = "it takes longer to look"
    EVER = "all that was wanted has been acknowledged"


class Message:
    """A record that was sent, or is about to be."""

    __slots__ = ("partition", "record")

    def __init__(self, partition: int, record: Record) -> None:
        self.partition = partition
        self.record = record


class _StreamPartition:
    """Where the stream is in one partition."""

    __slots__ = ("begin", "committed", "fetched", "partition", "position")

    def __init__(self, partition: RoutedPartition, begin: Offset) -> None:
        self.partition = partition
        self.fetched: Portion | None = None
        """What was brought of it from elsewhere, and is not given out yet."""
        self.begin = begin
        self.committed = begin
        """Where this stream put the group last, or found it."""
        self.position = begin
        """Everything below has been read. It may be past the log's end: then the log has to get there first."""


def open_stream(context: Context, request: Read) -> Steps["Stream"]:
    """The stream of a request, from where its group is; while the topic is not there, one without messages."""
    check_name(request.topic)
    stream = Stream(context, request)
    if request.topic in context.image.topics:
        yield from stream.widen()
    return stream


def _stream_partitions(
    context: Context, group: str, topic: Topic, numbers: Sequence[int]
) -> Steps[list[_StreamPartition]]:
    partitions = [find_partition(context, topic.name, number) for number in numbers]
    offsets = yield from committed(context, group, topic, numbers)
    yield from look_up_bounds(context, partitions)
    places = []
    for partition in partitions:
        begin = offsets[partition.number]
        places.append(_StreamPartition(partition, partition.log_start if begin is None else begin))
    return places


class Stream:
    """A `DelayedFetch` of its partitions while it waits for more; before there are any, of the image."""

    __slots__ = (
        "_away",
        "_context",
        "_is_fresh",
        "_partitions",
        "_portion",
        "_portion_of",
        "_sent_of",
        "_topic",
        "_turn",
        "_woken",
        "request",
        "sent",
    )

    def __init__(self, context: Context, request: Read) -> None:
        """Without partitions: `widen` takes them in."""
        self.request = request
        self.sent: Message | None = None
        """The message that waits for its ACK."""
        self._context = context
        self._topic: Topic | None = None
        """None while it is not there."""
        self._partitions: list[_StreamPartition] = []
        self._is_fresh = False
        """It was looked how far partitions go since it last waited for more."""
        self._away: _StreamPartition | None = None
        """The partition that is to be fetched from."""
        self._turn = 0
        """Whose portion is next."""
        self._portion: deque[Record] = deque()
        self._portion_of: _StreamPartition | None = None
        self._sent_of: _StreamPartition | None = None
        self._woken: Callable[[], None] | None = None

    # -- messages --------------------------------------------------------------------------------------

    def next(self) -> Message | Nothing:
        """The message to send now, which then waits for its ACK. Raises what ends the stream."""
        if not self._portion:
            found = self._read_on()
            if found is not None:
                return found
        place = self._sent_of = self._portion_of
        assert place is not None, "there is a portion"
        self.sent = Message(place.partition.number, self._portion.popleft())
        return self.sent

    def _read_on(self) -> Nothing | None:
        reads_left = READS_MAX
        places = self._partitions
        for _ in places:
            place = places[self._turn]
            while self._readable(place) > place.position:
                if not reads_left:
                    return Nothing.YET
                if place.partition.here is None and place.fetched is None:
                    self._away = place
                    return Nothing.HERE
                reads_left -= 1
                if self._read(place):
                    self._turn = (self._turn + 1) % len(places)
                    return None
            self._turn = (self._turn + 1) % len(places)
        to_offset = self.request.to_offset
        if to_offset is not None and places and all(each.position > to_offset for each in places):
            return Nothing.EVER
        return Nothing.NOW

    def _readable(self, place: _StreamPartition) -> Offset:
        """First offset that cannot be read now, or is not wanted. Moves the place over what is deleted."""
        partition = place.partition
        if partition.is_gone or (partition.here is None and is_alone(self._context)):
            raise KafkaError(
                f"{partition.name} is no longer led by this broker", ErrorCode.NOT_LEADER_OR_FOLLOWER
            )
        place.position = max(place.position, partition.log_start)
        to_offset = self.request.to_offset
        visible = partition.last_stable
        return visible if to_offset is None else min(visible, to_offset + 1)

    def _read(self, place: _StreamPartition) -> bool:
        """Whether there are messages in the next portion."""
        here = place.partition.here
        portion, place.fetched = place.fetched, None
        if portion is None:
            assert here is not None, "what is elsewhere was fetched"
            portion = read(
                here,
                place.position,
                records_max=PORTION_RECORDS_MAX,
                bytes_max=PORTION_BYTES,
                record_bytes_max=PORTION_BYTES,
            )
        if portion.next_offset <= place.position:
            raise KafkaError(
                f"{place.partition.name} cannot be read at offset {place.position}", ErrorCode.CORRUPT_MESSAGE
            )
        place.position = portion.next_offset
        to_offset = self.request.to_offset
        records = portion.records
        if to_offset is not None and records and records[-1].offset > to_offset:
            records = [each for each in records if each.offset <= to_offset]
        self._portion.extend(records)
        self._portion_of = place
        return bool(records)

    def fetch(self) -> Steps[None]:
        """Have brought what is to be read next, of a partition that is led elsewhere."""
        place, self._away = self._away, None
        if place is not None and place.partition.here is None:
            read = partial(
                place.partition.read, place.position, records_max=PORTION_RECORDS_MAX, bytes_max=PORTION_BYTES
            )
            fetched = yield from retry_while_moving(self._context, read)
            kept = within(fetched.records, PORTION_BYTES)
            if kept < len(fetched.records):
                fetched = Portion(fetched.records[:kept], fetched.records[kept].offset)
            place.fetched = fetched

    def refresh(self) -> Steps[None]:
        """Learn how far partitions that are led elsewhere go now."""
        self._is_fresh = True
        yield from look_up_bounds(self._context, [each.partition for each in self._partitions])

    @property
    def is_stale(self) -> bool:
        """Whether partitions that are led elsewhere may go further than is known here."""
        return not self._is_fresh and any(each.partition.here is None for each in self._partitions)

    def acknowledge(self) -> Steps[None]:
        """Commit the offset after the message that waits. Where that fails, it waits still."""
        message, place = self.sent, self._sent_of
        if message is None or place is None or self._topic is None:
            raise KafkaError("there is no message to acknowledge", ErrorCode.INVALID_REQUEST)
        offset = message.record.offset + 1
        yield from commit(self._context, self.request.group, self._topic, {message.partition: offset})
        place.committed = offset
        self.sent = None

    @property
    def is_past_more(self) -> bool:
        """Whether it has passed over offsets without messages that the group is not known to be behind. For when there
        is no message to send: then all that there were are acknowledged."""
        return any(self._passed(each) > each.committed for each in self._partitions)

    def commit_passed(self) -> Steps[None]:
        """Have the group go on behind them. It is tried once: in a group that has members, these commit."""
        assert self._topic is not None, "it has partitions"
        offsets = {
            each.partition.number: passed
            for each in self._partitions
            if (passed := self._passed(each)) > each.committed
        }
        for each in self._partitions:
            each.committed = max(each.committed, self._passed(each))
        yield from commit(self._context, self.request.group, self._topic, offsets)

    def _passed(self, place: _StreamPartition) -> Offset:
        """Below it nothing is left of what is wanted: what was read beyond that was not sent."""
        to_offset = self.request.to_offset
        return place.position if to_offset is None else min(place.position, to_offset + 1)

    @property
    def end_offset(self) -> Offset:
        """Where a request goes on that takes up where this one ends: after the last offset wanted, or where the group
        was already, whichever is later; of several partitions, the one that is behind."""
        assert self.request.to_offset is not None
        after = self.request.to_offset + 1
        return min(max(each.begin, after) for each in self._partitions)

    @property
    def is_outgrown(self) -> bool:
        """Whether the topic has got partitions that belong to the request, and are not in the stream."""
        topic = self._context.image.topics.get(self.request.topic)
        if self._topic is None:
            return topic is not None
        if self.request.partition != ALL_PARTITIONS:
            return False
        return (
            topic is not None and topic.id == self._topic.id and len(topic.partitions) > len(self._partitions)
        )

    def widen(self) -> Steps[None]:
        """Take the topic's partitions in that are new to it."""
        known = {each.partition.number for each in self._partitions}
        topic = find_topic(self._context, self.request.topic)
        wanted = (
            sorted(topic.partitions) if self.request.partition == ALL_PARTITIONS else [self.request.partition]
        )
        numbers = [number for number in wanted if number not in known]
        self._partitions += yield from _stream_partitions(self._context, self.request.group, topic, numbers)
        self._topic = topic

    # -- waiting for more ------------------------------------------------------------------------------

    @property
    def is_watching(self) -> bool:
        return self._woken is not None

    def watch(self, woken: Callable[[], None]) -> None:
        """Have somebody called, once, when there may be something to send."""
        if self._woken is None:
            for each in self._partitions:
                each.partition.watch(self)
            if self._topic is None:
                self._context.image_watchers.add(self.changed)
        self._is_fresh = False
        self._woken = woken

    def unwatch(self) -> None:
        if self._woken is not None:
            self._woken = None
            for each in self._partitions:
                each.partition.unwatch(self)
            self._context.image_watchers.discard(self.changed)

    def grew(self, bytes_more: int) -> None:
        woken = self._woken
        if woken is not None:
            self.unwatch()
            # Whoever writes is not kept waiting while this reads.
            self._context.world.call_soon(woken)

    def decided(self) -> None:
        self.grew(0)

    def changed(self) -> None:
        self.grew(0)
