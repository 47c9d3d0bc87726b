"""Messages of one client on their way into the log.

Those that arrive together are gathered and written together, and any number of such writes may be under way. The first
message to a topic that has to be made is written alone, and what follows waits for it.
"""

from collections.abc import Callable, Sequence

from penstock.base.errors import KafkaError
from penstock.gateway.line.commands import Produce
from penstock.gateway.line.replies import Replies, Reply, error
from penstock.gateway.shared.gateway import Gateway
from penstock.gateway.shared.producer import NewRecord, PositionOrError
from penstock.handlers.support.context import Session

OPEN_MAX = 1000
"""Messages of one client that may wait to be durable before its next ones are looked at."""

OPEN_BYTES_MAX = 4 * 2**20
"""And their bytes, beyond which the same holds."""


class _Write(Reply):
    """Messages that are written together, and what is said of them."""

    __slots__ = ("count", "makes_topic", "since_ns", "size")

    def __init__(self, count: int, size: int, *, makes_topic: bool, since_ns: int) -> None:
        super().__init__()
        self.count = count
        self.size = size
        """Bytes of the messages."""
        self.makes_topic = makes_topic
        self.since_ns = since_ns
        """When the writing began, for metrics."""


class ProduceBuffer:
    __slots__ = (
        "_context",
        "_gathered",
        "_gathered_bytes",
        "_is_making_topic",
        "_open",
        "_open_bytes",
        "_producing",
        "_replies",
        "_session",
        "_written",
        "is_held",
    )

    def __init__(
        self, gateway: Gateway, session: Session, replies: Replies, written: Callable[[], None]
    ) -> None:
        """`written` is called after each write whose replies are known."""
        self._context = gateway.context
        self._producing = gateway.producer
        self._session = session
        self._replies = replies
        self._written = written
        self._gathered: list[NewRecord] = []
        """Messages of this portion that are not written yet."""
        self._gathered_bytes = 0
        self._open = 0
        """Messages that are being written."""
        self._open_bytes = 0
        self._is_making_topic = False
        """A message needs its topic made first."""
        self.is_held = False
        """What comes next has to wait: too much is being written, or a topic is being made."""

    def gather(self, announced: Produce, value: bytes) -> None:
        topic, key, length = announced
        if topic in self._context.image.topics:
            self._gathered.append(NewRecord(topic, key, value))
            self._gathered_bytes += length
            if self._gathered_bytes + self._open_bytes < OPEN_BYTES_MAX and len(self._gathered) < OPEN_MAX:
                return
            self.write()
        else:
            # A second message would find the topic made, and be written while the first still waits for its turn.
            self.write()
            self._gathered.append(NewRecord(topic, key, value))
            self._gathered_bytes = length
            self.write(makes_topic=True)

    def write(self, *, makes_topic: bool = False) -> None:
        """Have what was gathered written, and its replies sent when it is durable."""
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
        self._look_whether_held()
        producing, session = self._producing, self._session
        if len(records) == 1:
            topic, key, value = records[0][:3]
            producing.produce(session, topic, key, value).then(lambda each: self._done(write, (each,)))
        else:
            producing.produce_all(session, records).then(lambda all_of: self._done(write, all_of))

    def _done(self, write: _Write, outcomes: Sequence[PositionOrError]) -> None:
        self._open -= write.count
        self._open_bytes -= write.size
        if write.makes_topic:
            self._is_making_topic = False
        self._look_whether_held()
        if self._replies.is_over:
            return
        write.text = b"".join(
            error(str(each)) if isinstance(each, KafkaError) else b"+OFFSET %d\n" % each.offset
            for each in outcomes
        )
        self._context.metrics.line_answered(
            "TOPIC",
            self._context.world.clock_ns() - write.since_ns,
            write.count,
            sum(isinstance(each, KafkaError) for each in outcomes),
        )
        self._replies.send()
        self._written()

    def _look_whether_held(self) -> None:
        self.is_held = self._is_making_topic or self._open >= OPEN_MAX or self._open_bytes >= OPEN_BYTES_MAX
