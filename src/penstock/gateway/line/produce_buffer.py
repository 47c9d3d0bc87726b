"""Buffers the messages of one client, and writes those that arrive together in one produce call.

Any number of produce calls may be in flight. The first message to a topic that does not exist yet is written alone,
and later messages wait for it.
"""

from collections.abc import Callable
from functools import partial

from penstock.gateway.line.commands import Produce
from penstock.gateway.line.replies import Replies, Reply, error
from penstock.gateway.shared.gateway import Gateway
from penstock.gateway.shared.producer import NewRecord, RecordResult
from penstock.handlers.support.context import Session

OPEN_MAX = 1000
"""Messages of one client in flight, beyond which its next messages are not read."""

OPEN_BYTES_MAX = 4 * 2**20
"""Bytes of messages of one client in flight, beyond which its next messages are not read."""


class _Write(Reply):
    """The reply to messages that are written together."""

    __slots__ = ("count", "makes_topic", "since_ns", "size")

    def __init__(self, count: int, size: int, *, makes_topic: bool, since_ns: int) -> None:
        super().__init__()
        self.count = count
        self.size = size
        """Bytes of the messages."""
        self.makes_topic = makes_topic
        self.since_ns = since_ns
        """Start of the write, for metrics."""


class ProduceBuffer:
    __slots__ = (
        "_context",
        "_gathered",
        "_gathered_bytes",
        "_is_making_topic",
        "_open",
        "_open_bytes",
        "_producer",
        "_replies",
        "_written",
        "_wrote",
        "is_held",
        "session",
    )

    def __init__(
        self,
        gateway: Gateway,
        session: Session,
        replies: Replies,
        written: Callable[[], None],
        wrote: Callable[[int], None] = lambda _: None,
    ) -> None:
        """`written` is called after each write, when its replies are sent; `wrote` when it begins, with its size."""
        self._context = gateway.context
        self._producer = gateway.producer
        self.session = session
        """Of the client, which may log in."""
        self._replies = replies
        self._written = written
        self._wrote = wrote
        self._gathered: list[NewRecord] = []
        """Messages that are not written yet."""
        self._gathered_bytes = 0
        self._open = 0
        """Messages in flight."""
        self._open_bytes = 0
        self._is_making_topic = False
        """A topic is being created for a message in flight."""
        self.is_held = False
        """Whether the next messages wait: too many are in flight, or a topic is being created."""

    def gather(self, announced: Produce, value: bytes) -> None:
        topic, key, length = announced
        if topic in self._context.image.topics:
            self._gathered.append(NewRecord(topic, key, value))
            self._gathered_bytes += length
            if self._gathered_bytes + self._open_bytes < OPEN_BYTES_MAX and len(self._gathered) < OPEN_MAX:
                return
            self.write()
        else:
            # Once the topic exists, a second message would be written before the first.
            self.write()
            self._gathered.append(NewRecord(topic, key, value))
            self._gathered_bytes = length
            self.write(makes_topic=True)

    def write(self, *, makes_topic: bool = False) -> None:
        """Write the gathered messages; their replies are sent when they are durable."""
        records = self._gathered
        if not records:
            return
        write = _Write(
            len(records),
            self._gathered_bytes,
            makes_topic=makes_topic,
            since_ns=self._context.world.clock_ns(),
        )
        self._gathered, self._gathered_bytes = [], 0
        self._replies.add(write)
        self._is_making_topic = self._is_making_topic or makes_topic
        self._open += write.count
        self._open_bytes += write.size
        self._update_held()
        self._wrote(write.size)
        if len(records) == 1:
            topic, key, value = records[0][:3]
            self._producer.produce(self.session, topic, key, value).then(
                lambda position: self._done(write, b"+OFFSET %d\n" % position.offset, errors=0),
                lambda wrong: self._done(write, error(str(wrong)), errors=1),
            )
        else:
            self._producer.produce_all(self.session, records).then(partial(self._all_done, write))

    def _all_done(self, write: _Write, results: list[RecordResult]) -> None:
        text = b"".join(
            b"+OFFSET %d\n" % each.offset if each.error is None else error(str(each.error))
            for each in results
        )
        self._done(write, text, errors=sum(each.error is not None for each in results))

    def _done(self, write: _Write, text: bytes, *, errors: int) -> None:
        self._open -= write.count
        self._open_bytes -= write.size
        if write.makes_topic:
            self._is_making_topic = False
        self._update_held()
        if self._replies.is_over:
            return
        write.text = text
        self._context.metrics.line_answered(
            "TOPIC",
            self._context.world.clock_ns() - write.since_ns,
            write.count,
            errors,
        )
        self._replies.send()
        self._written()

    def _update_held(self) -> None:
        self.is_held = self._is_making_topic or self._open >= OPEN_MAX or self._open_bytes >= OPEN_BYTES_MAX
