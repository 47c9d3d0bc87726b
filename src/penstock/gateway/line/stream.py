"""One request for messages: its position in each partition, and the next message.

    partition 0   [....committed|########]     a portion of one partition is read, and sent message by message;
    partition 1   [..committed|####]           then a portion of the next partition
    partition 2   [....committed|]             no partition has more: watch them all

A stream starts at the committed offsets, and then keeps its positions: it does not see commits of other clients.

Offsets without a message (transaction markers, aborted records, records that compaction removed) are never
acknowledged. At the end of the log the stream commits its position behind them, as a consumer does: otherwise the
group would show a lag for ever.

If the topic does not exist, the stream waits for it, and does not create it: a mistyped name would leave a topic.
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
from penstock.metadata.controller.topics import check_name
from penstock.metadata.image import Topic
from penstock.records import Record

PORTION_BYTES = 64 * 1024
PORTION_RECORDS_MAX = 1000
"""Records of a large batch that are kept. The rest is decoded again, since each of many streams holds a portion."""

READS_MAX = 16
"""Portions without a message, of aborted transactions for example, that are read in one tick."""


class NoMessage(Enum):
    """Why there is no message."""

    AT_END = "at the end of every partition"
    NOT_FETCHED = "another broker leads the partition: its records have to be fetched first"
    NOT_FOUND_YET = "many records without a message were read: look again in the next tick"
    REQUEST_DONE = "all messages of the request are acknowledged"


class Message:
    """A record that is sent to the client."""

    __slots__ = ("partition", "record")

    def __init__(self, partition: int, record: Record) -> None:
        self.partition = partition
        self.record = record


class _Cursor:
    """The stream's position in one partition."""

    __slots__ = ("begin", "committed", "fetched", "partition", "position")

    def __init__(self, partition: RoutedPartition, begin: Offset) -> None:
        self.partition = partition
        self.fetched: Portion | None = None
        """Records fetched from the partition's leader, and not sent yet."""
        self.begin = begin
        self.committed = begin
        """The group's offset, as this stream found it or committed it last."""
        self.position = begin
        """Everything below has been read. May be past the end of the log: the stream then waits for that offset."""


def open_stream(context: Context, request: Read) -> Steps["Stream"]:
    """The stream of a request, from the group's committed offsets; without partitions if the topic does not exist."""
    check_name(request.topic)
    stream = Stream(context, request)
    if request.topic in context.image.topics:
        yield from stream.widen()
    return stream


def _cursors_of(context: Context, group: str, topic: Topic, numbers: Sequence[int]) -> Steps[list[_Cursor]]:
    partitions = [find_partition(context, topic.name, number) for number in numbers]
    offsets = yield from committed(context, group, topic, numbers)
    yield from look_up_bounds(context, partitions)
    cursors = []
    for partition in partitions:
        begin = offsets[partition.number]
        cursors.append(_Cursor(partition, partition.log_start if begin is None else begin))
    return cursors


class Stream:
    """While it waits for more, a `DelayedFetch` of its partitions, or a watcher of the image if it has none."""

    __slots__ = (
        "_context",
        "_cursors",
        "_is_fresh",
        "_next_index",
        "_portion",
        "_portion_of",
        "_sent_of",
        "_to_fetch",
        "_topic",
        "_woken",
        "request",
        "sent",
    )

    def __init__(self, context: Context, request: Read) -> None:
        """Without partitions; `widen` adds them."""
        self.request = request
        self.sent: Message | None = None
        """The message that waits for its ACK."""
        self._context = context
        self._topic: Topic | None = None
        """None while the topic does not exist."""
        self._cursors: list[_Cursor] = []
        self._is_fresh = False
        """Whether the ends of the partitions were looked up since the stream last waited."""
        self._to_fetch: _Cursor | None = None
        """The partition to fetch from its leader."""
        self._next_index = 0
        """Index of the partition to read next."""
        self._portion: deque[Record] = deque()
        self._portion_of: _Cursor | None = None
        self._sent_of: _Cursor | None = None
        self._woken: Callable[[], None] | None = None

    # -- messages --------------------------------------------------------------------------------------

    def next(self) -> Message | NoMessage:
        """The message to send, which then waits for its ACK. Raises an error that ends the stream."""
        if not self._portion:
            found = self._read_on()
            if found is not None:
                return found
        cursor = self._sent_of = self._portion_of
        assert cursor is not None, "there is a portion"
        self.sent = Message(cursor.partition.number, self._portion.popleft())
        return self.sent

    def _read_on(self) -> NoMessage | None:
        reads_left = READS_MAX
        cursors = self._cursors
        for _ in cursors:
            cursor = cursors[self._next_index]
            while self._readable(cursor) > cursor.position:
                if not reads_left:
                    return NoMessage.NOT_FOUND_YET
                if cursor.partition.here is None and cursor.fetched is None:
                    self._to_fetch = cursor
                    return NoMessage.NOT_FETCHED
                reads_left -= 1
                if self._read(cursor):
                    self._next_index = (self._next_index + 1) % len(cursors)
                    return None
            self._next_index = (self._next_index + 1) % len(cursors)
        to_offset = self.request.to_offset
        if to_offset is not None and cursors and all(each.position > to_offset for each in cursors):
            return NoMessage.REQUEST_DONE
        return NoMessage.AT_END

    def _readable(self, cursor: _Cursor) -> Offset:
        """First offset that cannot be read now, or is past the request. Moves the position past deleted records."""
        partition = cursor.partition
        if partition.is_gone or (partition.here is None and is_alone(self._context)):
            raise KafkaError(
                f"{partition.name} is no longer led by this broker", ErrorCode.NOT_LEADER_OR_FOLLOWER
            )
        cursor.position = max(cursor.position, partition.log_start)
        to_offset = self.request.to_offset
        visible = partition.last_stable
        return visible if to_offset is None else min(visible, to_offset + 1)

    def _read(self, cursor: _Cursor) -> bool:
        """Read the next portion; return whether it has messages."""
        here = cursor.partition.here
        portion, cursor.fetched = cursor.fetched, None
        if portion is None:
            assert here is not None, "records of another leader are fetched first"
            portion = read(
                here,
                cursor.position,
                records_max=PORTION_RECORDS_MAX,
                bytes_max=PORTION_BYTES,
                record_bytes_max=PORTION_BYTES,
            )
        if portion.next_offset <= cursor.position:
            raise KafkaError(
                f"{cursor.partition.name} cannot be read at offset {cursor.position}",
                ErrorCode.CORRUPT_MESSAGE,
            )
        cursor.position = portion.next_offset
        to_offset = self.request.to_offset
        records = portion.records
        if to_offset is not None and records and records[-1].offset > to_offset:
            records = [each for each in records if each.offset <= to_offset]
        self._portion.extend(records)
        self._portion_of = cursor
        return bool(records)

    def fetch(self) -> Steps[None]:
        """Fetch the next records of a partition that another broker leads."""
        cursor, self._to_fetch = self._to_fetch, None
        if cursor is not None and cursor.partition.here is None:
            read = partial(
                cursor.partition.read,
                cursor.position,
                records_max=PORTION_RECORDS_MAX,
                bytes_max=PORTION_BYTES,
            )
            fetched = yield from retry_while_moving(self._context, read)
            kept = within(fetched.records, PORTION_BYTES)
            if kept < len(fetched.records):
                fetched = Portion(fetched.records[:kept], fetched.records[kept].offset)
            cursor.fetched = fetched

    def refresh(self) -> Steps[None]:
        """Look up the ends of partitions that other brokers lead."""
        self._is_fresh = True
        yield from look_up_bounds(self._context, [each.partition for each in self._cursors])

    @property
    def is_stale(self) -> bool:
        """Whether partitions that other brokers lead may have more records than is known."""
        return not self._is_fresh and any(each.partition.here is None for each in self._cursors)

    def acknowledge(self) -> Steps[None]:
        """Commit the offset after the message that waits for its ACK. If that fails, the message still waits."""
        message, cursor = self.sent, self._sent_of
        if message is None or cursor is None or self._topic is None:
            raise KafkaError("there is no message to acknowledge", ErrorCode.INVALID_REQUEST)
        offset = message.record.offset + 1
        yield from commit(self._context, self.request.group, self._topic, {message.partition: offset})
        cursor.committed = offset
        self.sent = None

    @property
    def has_passed_offsets(self) -> bool:
        """Whether the stream has passed offsets without a message that are not committed. To be asked if there is no
        message to send: then all messages are acknowledged."""
        return any(self._passed(each) > each.committed for each in self._cursors)

    def commit_passed(self) -> Steps[None]:
        """Commit the position past offsets without a message. Tried once: in a group with members, only they
        commit."""
        assert self._topic is not None, "it has partitions"
        offsets = {
            each.partition.number: passed
            for each in self._cursors
            if (passed := self._passed(each)) > each.committed
        }
        for each in self._cursors:
            each.committed = max(each.committed, self._passed(each))
        yield from commit(self._context, self.request.group, self._topic, offsets)

    def _passed(self, cursor: _Cursor) -> Offset:
        """All messages of the request below this offset are sent."""
        to_offset = self.request.to_offset
        return cursor.position if to_offset is None else min(cursor.position, to_offset + 1)

    @property
    def end_offset(self) -> Offset:
        """Where the next request starts: after the last offset of this one, or at the group's offset if that is
        higher; the lowest of all partitions."""
        assert self.request.to_offset is not None
        after = self.request.to_offset + 1
        return min(max(each.begin, after) for each in self._cursors)

    @property
    def is_outgrown(self) -> bool:
        """Whether the topic has partitions of the request that are not in the stream yet."""
        topic = self._context.image.topics.get(self.request.topic)
        if self._topic is None:
            return topic is not None
        if self.request.partition != ALL_PARTITIONS:
            return False
        return topic is not None and topic.id == self._topic.id and len(topic.partitions) > len(self._cursors)

    def widen(self) -> Steps[None]:
        """Add the topic's partitions that are not in the stream yet."""
        known = {each.partition.number for each in self._cursors}
        topic = find_topic(self._context, self.request.topic)
        wanted = (
            sorted(topic.partitions) if self.request.partition == ALL_PARTITIONS else [self.request.partition]
        )
        numbers = [number for number in wanted if number not in known]
        self._cursors += yield from _cursors_of(self._context, self.request.group, topic, numbers)
        self._topic = topic

    # -- waiting for more ------------------------------------------------------------------------------

    @property
    def is_watching(self) -> bool:
        return self._woken is not None

    def watch(self, woken: Callable[[], None]) -> None:
        """Call this once, when there may be something to send."""
        if self._woken is None:
            for each in self._cursors:
                each.partition.watch(self)
            if self._topic is None:
                self._context.image_watchers[self.changed] = None
        self._is_fresh = False
        self._woken = woken

    def unwatch(self) -> None:
        if self._woken is not None:
            self._woken = None
            for each in self._cursors:
                each.partition.unwatch(self)
            self._context.image_watchers.pop(self.changed, None)

    def grew(self, bytes_more: int) -> None:
        woken = self._woken
        if woken is not None:
            self.unwatch()
            # In the next tick, so that reading does not delay the producer.
            self._context.world.call_soon(woken)

    def decided(self) -> None:
        self.grew(0)

    def changed(self) -> None:
        self.grew(0)
