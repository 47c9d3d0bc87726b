"""One client's commands, carried out in their order, and the messages that are streamed to it in between.

    received -> [TOPIC TOPIC TOPIC] [ACK] [TOPIC] [orders:billing:-1]
                 `-- one write --'   each of the others begins when all before it are answered

Messages that arrive together are written together, and any number of such writes may be under way: replies leave in
the order of the commands. Every other command, and the first message to a topic that has to be made, is carried out
alone. Meanwhile what arrives is kept as it is, and not more of it received than one portion; the same holds while the
client does not read what it is sent.

A stream says something (`+MSG`, `+EMPTY`, `+END`) between two replies, never while a command is carried out alone.

A browser can be made to send HTTP here by any page that it shows, and the page chooses what is in the body: lines such
as these. So the first line that can only be a request of HTTP's is the last that is looked at.
"""

import logging
import re
from collections import deque
from collections.abc import Sequence
from contextlib import suppress

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import Offset
from penstock.base.world import Timer
from penstock.client.line_text import encode_key
from penstock.gateway.asking import allow
from penstock.gateway.elsewhere.places import Place, find_place, look
from penstock.gateway.gateway import Gateway
from penstock.gateway.line.commands import (
    END,
    SHOWN_MAX,
    Ack,
    BadCommand,
    Command,
    Produce,
    Read,
    SetOffset,
    parse,
)
from penstock.gateway.line.framing import LINE_BYTES_MAX, Framer, LineTooLong
from penstock.gateway.line.offsets import commit
from penstock.gateway.line.stream import Message, Nothing, Stream, open_stream
from penstock.gateway.producing import NewRecord, Outcome
from penstock.gateway.steps import Running, Steps
from penstock.gateway.topics import find_topic
from penstock.gateway.wire import Wire
from penstock.handlers.context import On, Operation, Session
from penstock.metadata.configs import topic_setting

logger = logging.getLogger(__name__)

LISTENER = "LINE"

OPEN_MAX = 1000
"""Messages of one client that may wait to be durable before its next ones are looked at."""

OPEN_BYTES_MAX = 4 * 2**20
"""And their bytes, beyond which the same holds."""

UNCHECKED_BYTES = 64 * 1024
"""A message of that size may be received before it is looked up whether its topic takes it."""

SKIPPED_BYTES_MAX = 100 * 2**20
"""`socket.request.max.bytes` of Kafka: a message that is refused is read over if it is no longer than that."""

PIECES_MAX = 1000
"""Lines and messages of one client that are looked at before others have their turn: some milliseconds' worth."""

EMPTY_INTERVAL_MS = 1000

_HTTP = re.compile(rb" HTTP/[0-9](\.[0-9])?$")
"""How a request line ends; no command does."""

ERROR_CHARACTERS_MAX = 400

ERROR = b"-ERR "
OK = b"+OK\n"
EMPTY = b"+EMPTY\n"


_WORDS: dict[type, str] = {Ack: "ACK", Read: "READ", SetOffset: "SET_OFFSET"}
"""What commands are counted as."""


class _Replies:
    """What is sent for one or more commands, when it is known."""

    __slots__ = ("count", "is_last", "since_ns", "size", "text")

    def __init__(self, count: int, size: int) -> None:
        self.count = count
        self.size = size
        """Bytes of the messages that it is about."""
        self.text: bytes | None = None
        self.since_ns = 0
        """When the writing of messages began, for metrics."""
        self.is_last = False
        """The connection is closed after it."""


class LineConversation:
    """A `Conversation`."""

    def __init__(self, gateway: Gateway, wire: Wire) -> None:
        self._gateway = gateway
        self._context = gateway.context
        self._wire = wire
        self._session = Session("", 0, wire.peer, LISTENER)
        self._framer = Framer()
        self._announced: Produce | None = None
        """The message whose bytes come next."""
        self._gathered: list[NewRecord] = []
        """Messages of this portion that are not written yet."""
        self._gathered_bytes = 0
        self._replies: deque[_Replies] = deque()
        self._open = 0
        """Messages that are being written."""
        self._open_bytes = 0
        self._next: Command | None = None
        """A command that is carried out alone, once all before it are answered."""
        self._running: Running[bytes] | None = None
        self._is_alone = False
        """It is being carried out."""
        self._begun: tuple[str, int] | None = None
        """What it is, and when it began, for metrics."""
        self._creating: _Replies | None = None
        """Of a message that needs its topic made first."""
        self._taken = 0
        """Lines and messages that have been looked at."""
        self._stream: Stream | None = None
        self._quiet: Timer | None = None
        """Runs for a second after `+EMPTY`, during which there is no other."""
        self._is_looking = False
        """The stream reads on when others have had their turn."""
        self._is_giving_way = False
        """Others have their turn, and then the next command is looked at."""
        self._is_paused = False
        """Nothing is received."""
        self._is_stalled = False
        """There may be commands that have arrived, and have to wait."""
        self._is_going = False
        self._is_finished = False
        """The client sends nothing more."""
        self._is_over = False

    # -- what the wire calls ---------------------------------------------------------------------------

    def received(self, data: memoryview) -> None:
        if self._is_over:
            return
        self._framer.feed(data)
        if self._is_held:
            self._pause()
        else:
            self._go_on()

    def drained(self) -> None:
        self._go_on()

    def finished(self) -> None:
        """What the client sent is carried out; a stream says one thing more, since nobody could acknowledge it."""
        self._is_finished = True
        self._go_on()

    def ended(self) -> None:
        self._is_over = True
        self._end_stream()
        if self._quiet is not None:
            self._quiet.cancel()
            self._quiet = None
        running, self._running = self._running, None
        if running is not None:
            running.cancel()
        self._replies.clear()

    @property
    def is_idle(self) -> bool:
        return not (self._replies or self._next is not None or self._is_alone or self._stream is not None)

    @property
    def unfinished(self) -> int | None:
        """A message that was announced and has not begun is not: somebody may be about to type it."""
        return self._taken if self._framer.is_midway and not self._is_held else None

    def give_up_waiting(self) -> None:
        self._refuse("the rest of what you send did not come in time", None)

    # -- commands --------------------------------------------------------------------------------------

    @property
    def _is_held(self) -> bool:
        """Whether the next command has to wait."""
        return (
            self._next is not None
            or self._is_alone
            or self._creating is not None
            or self._is_giving_way
            or self._open >= OPEN_MAX
            or self._open_bytes >= OPEN_BYTES_MAX
            or self._is_over
            or self._wire.is_full
        )

    def _pause(self) -> None:
        if not self._is_paused:
            self._is_paused = True
            self._wire.stop_reading()

    def _go_on(self) -> None:
        """Do all that can be done now."""
        if self._is_going or self._is_over:
            return  # whoever is at it goes on
        self._is_going = True
        try:
            self._carry_on()
        except Exception:
            logger.exception("a line from %s failed in a way that nobody foresaw", self._wire.peer)
            self._reply(_error("this could not be handled"), is_last=True)
        finally:
            self._is_going = False

    def _carry_on(self) -> None:
        pieces_left = PIECES_MAX
        while True:
            self._say_more()
            if self._next is not None and not self._replies and not self._is_alone:
                command, self._next = self._next, None
                self._begin(command)
                continue
            self._is_stalled = self._is_held
            if self._is_stalled or not self._take():
                break
            pieces_left -= 1
            if not pieces_left:
                self._is_giving_way = self._is_stalled = True
                self._context.world.call_soon(self._had_its_turn)
                break
        self._taken += PIECES_MAX - pieces_left
        self._write()
        if self._is_held:
            return
        if self._is_paused:
            self._is_paused = False
            self._wire.go_on_reading()
        if self._is_finished and not self._is_looking:
            self._end_stream()
            if not self._replies:
                self.ended()
                self._wire.close()

    def _had_its_turn(self) -> None:
        self._is_giving_way = False
        self._go_on()

    def _take(self) -> bool:
        """Look at the next piece of what arrived; whether there was a whole one."""
        announced = self._announced
        if announced is None:
            return self._take_line()
        value = self._framer.take(announced.length)
        if value is None:
            return False
        self._announced = None
        self._gather(announced, value)
        return True

    def _take_line(self) -> bool:
        try:
            line = self._framer.line()
            if not line:
                return line is not None
            command = parse(line)
        except LineTooLong:
            self._refuse(f"a line has at most {LINE_BYTES_MAX} bytes", None)
            return True
        except BadCommand as bad:
            if line is not None and _HTTP.search(line):
                self._refuse("this is not HTTP, but the line protocol", None)
            else:
                self._refuse(str(bad), bad.payload_bytes)
            return True
        if not isinstance(command, Produce):
            self._write()
            self._next = command
        elif command.length <= UNCHECKED_BYTES or self._has_room(command):
            self._announced = command
        return True

    def _has_room(self, command: Produce) -> bool:
        """Whether a message of that size may be taken; otherwise it is refused, and its bytes are read over."""
        context = self._context
        limit = int(topic_setting(command.topic, "max.message.bytes", context.image, context.settings) or 0)
        if command.length <= limit:
            return True
        self._refuse(
            f"a message of {command.length} bytes is too large: {_shown(command.topic)!r} takes at most {limit}",
            command.length,
        )
        return False

    def _refuse(self, why: str, payload_bytes: int | None) -> None:
        self._context.metrics.line_answered("?", 0, errors=1)
        self._write()
        if payload_bytes is None or payload_bytes > SKIPPED_BYTES_MAX:
            self._reply(_error(f"{why}; the connection is closed"), is_last=True)
        else:
            self._framer.skip(payload_bytes)
            self._reply(_error(why))

    # -- messages in -----------------------------------------------------------------------------------

    def _gather(self, announced: Produce, value: bytes) -> None:
        topic, key, length = announced
        if topic in self._context.image.topics:
            self._gathered.append(NewRecord(topic, key, value))
            self._gathered_bytes += length
            if self._gathered_bytes + self._open_bytes < OPEN_BYTES_MAX and len(self._gathered) < OPEN_MAX:
                return
            self._write()
        else:
            # A second message would find the topic made, and be written while the first still waits for its turn.
            self._write()
            self._gathered.append(NewRecord(topic, key, value))
            self._gathered_bytes = length
            self._write(makes_topic=True)

    def _write(self, *, makes_topic: bool = False) -> None:
        """Have what was gathered written, and its replies sent when it is durable."""
        records = self._gathered
        if not records:
            return
        replies = _Replies(len(records), self._gathered_bytes)
        self._gathered, self._gathered_bytes = [], 0
        self._replies.append(replies)
        if makes_topic:
            self._creating = replies
        self._open += replies.count
        self._open_bytes += replies.size
        replies.since_ns = self._context.world.clock_ns()
        producing, session = self._gateway.producing, self._session
        if len(records) == 1:
            topic, key, value = records[0][:3]
            producing.produce(session, topic, key, value).then(lambda each: self._written(replies, (each,)))
        else:
            producing.produce_all(session, records).then(lambda all_of: self._written(replies, all_of))

    def _written(self, replies: _Replies, outcomes: Sequence[Outcome]) -> None:
        self._open -= replies.count
        self._open_bytes -= replies.size
        if self._creating is replies:
            self._creating = None
        if self._is_over:
            return
        replies.text = b"".join(
            _error(str(each)) if isinstance(each, KafkaError) else b"+OFFSET %d\n" % each.offset
            for each in outcomes
        )
        self._context.metrics.line_answered(
            "TOPIC",
            self._context.world.clock_ns() - replies.since_ns,
            replies.count,
            sum(isinstance(each, KafkaError) for each in outcomes),
        )
        self._send_replies()
        if self._is_stalled or self._is_finished:
            self._go_on()

    # -- replies ---------------------------------------------------------------------------------------

    def _reply(self, text: bytes, *, is_last: bool = False) -> None:
        """Answer a command, after those before it."""
        replies = _Replies(0, 0)
        replies.text = text
        replies.is_last = is_last
        self._replies.append(replies)
        if is_last:
            self._framer = Framer()
            self._end_stream()
            self._announced = None
            self._is_alone = True  # nothing is looked at any more
        self._send_replies()

    def _send_replies(self) -> None:
        """Let go of the replies that are known, as far as none before them is missing."""
        waiting = self._replies
        while waiting and (text := waiting[0].text) is not None:
            is_last = waiting.popleft().is_last
            self._wire.send(text)
            if is_last:
                self.ended()
                self._wire.close()

    # -- commands that are carried out alone -----------------------------------------------------------

    def _begin(self, command: Command) -> None:
        self._begun = _WORDS[type(command)], self._context.world.clock_ns()
        if isinstance(command, Ack):
            self._run(self._acknowledge())
        elif isinstance(command, Read):
            self._run(self._open_stream(command))
        else:
            assert isinstance(command, SetOffset)
            self._run(self._set_offset(command))

    def _run(self, steps: Steps[bytes]) -> None:
        self._is_alone = True
        running = Running(steps, self._done, self._failed)
        self._running = None if running.is_over else running

    def _done(self, reply: bytes) -> None:
        self._running = None
        self._is_alone = False
        begun, self._begun = self._begun, None
        if begun is not None:
            word, since_ns = begun
            took_ns = self._context.world.clock_ns() - since_ns
            self._context.metrics.line_answered(word, took_ns, errors=int(reply.startswith(ERROR)))
        if reply:
            self._wire.send(reply)
        self._go_on()

    def _failed(self, error: Exception) -> None:
        if not isinstance(error, KafkaError):
            logger.error("a command from %s failed", self._wire.peer, exc_info=error)
            error = KafkaError("this could not be handled")
        self._done(_error(str(error)))

    def _acknowledge(self) -> Steps[bytes]:
        if self._stream is None:
            raise KafkaError("no message waits for ACK", ErrorCode.INVALID_REQUEST)
        yield from self._stream.acknowledge()
        return OK

    def _open_stream(self, request: Read) -> Steps[bytes]:
        """The stream that runs is over, whatever comes of the request."""
        self._end_stream()
        self._authorize(request.topic, request.group)
        self._stream = yield from open_stream(self._context, request)
        return b""

    def _set_offset(self, command: SetOffset) -> Steps[bytes]:
        context = self._context
        self._authorize(command.topic, command.group)
        topic = find_topic(context, command.topic)
        places = [find_place(context, topic.name, number) for number in sorted(topic.partitions)]
        yield from look(context, places)
        offsets = {each.number: _meant(command.offset, each) for each in places}
        yield from commit(context, command.group, topic, offsets)
        stream = self._stream
        if stream is not None and (stream.request.topic, stream.request.group) == command[:2]:
            self._end_stream()
            try:
                self._stream = yield from open_stream(context, stream.request)
            except KafkaError as error:
                return OK + _error(str(error))
        return OK

    def _authorize(self, topic: str, group: str) -> None:
        allow(self._context, self._session, Operation.READ, On.TOPIC, topic)
        allow(self._context, self._session, Operation.READ, On.GROUP, group)

    # -- messages out ----------------------------------------------------------------------------------

    def _end_stream(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.unwatch()

    def _say_more(self) -> None:
        """Send the next message, if it is time for one, or say that there is none."""
        stream = self._stream
        if (
            stream is None
            or stream.sent is not None
            or stream.is_watching
            or self._is_looking
            or self._is_alone
            or self._wire.is_full
        ):
            return
        if stream.is_outgrown:
            self._run(self._widen(stream))
            return
        try:
            found = stream.next()
        except KafkaError as error:
            self._end_stream()
            self._wire.send(_error(str(error)))
            return
        if isinstance(found, Message):
            self._wire.send(_message(found))
        elif found is Nothing.HERE:
            self._run(self._fetch(stream))
        elif found is Nothing.YET:
            self._is_looking = True
            self._context.world.call_soon(self._look_on)
        elif stream.is_stale:
            self._run(self._refresh(stream))
        elif stream.is_past_more:
            self._run(self._commit_passed(stream))
        elif found is Nothing.EVER:
            end_offset = stream.end_offset
            self._end_stream()
            self._wire.send(b"+END %d\n" % end_offset)
        else:
            stream.watch(self._go_on)
            if self._quiet is None:
                self._wire.send(EMPTY)
                self._quiet = self._context.world.call_later(EMPTY_INTERVAL_MS, self._quiet_is_over)

    def _widen(self, stream: Stream) -> Steps[bytes]:
        try:
            yield from stream.widen()
        except KafkaError:
            self._end_stream()
            raise
        return b""

    def _fetch(self, stream: Stream) -> Steps[bytes]:
        try:
            yield from stream.fetch()
        except KafkaError:
            self._end_stream()
            raise
        return b""

    def _refresh(self, stream: Stream) -> Steps[bytes]:
        """Nobody asked for it: where it fails, it is as if there were nothing more."""
        with suppress(KafkaError):
            yield from stream.refresh()
        return b""

    def _commit_passed(self, stream: Stream) -> Steps[bytes]:
        with suppress(KafkaError):  # nobody asked for it
            yield from stream.commit_passed()
        return b""

    def _look_on(self) -> None:
        self._is_looking = False
        self._go_on()

    def _quiet_is_over(self) -> None:
        self._quiet = None
        if self._stream is not None:
            self._stream.unwatch()
            self._go_on()


def _meant(offset: Offset | None, place: Place) -> Offset:
    """What `SET_OFFSET` means in a partition."""
    if offset is None:
        return place.log_start
    return place.last_stable if offset == END else offset


def _message(message: Message) -> bytes:
    record = message.record
    value = record.value or b""
    head = b"+MSG %d %d %d %b\n" % (record.offset, len(value), message.partition, encode_key(record.key))
    return head + value


def _shown(text: str) -> str:
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}..."


def _error(why: str) -> bytes:
    """One line, whatever is in it."""
    words = " ".join(why.split())[:ERROR_CHARACTERS_MAX]
    return b"-ERR %b\n" % words.encode("utf-8", "backslashreplace")
