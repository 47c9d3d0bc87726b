"""One connection's commands, executed in order, and the messages that are streamed to it in between.

    received -> [TOPIC TOPIC TOPIC] [ACK] [TOPIC] [orders:billing:-1]
                 `-- one write --'   every other command starts when all before it are answered

Consecutive messages are written together (`writing`), and replies are sent in the order of the commands (`replies`).
Every other command, and the first message to a topic that has to be created, is executed alone. Meanwhile input is
kept unparsed, at most one portion; the same holds while the client does not read.

A stream sends messages (`sender`) between two replies, never while a command is executed alone.

Any web page can make a browser send HTTP to this port, and the page chooses the body, which may look like commands. So
the connection is closed at the first line that looks like an HTTP request.
"""

import logging
import re

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import Offset
from penstock.base.steps import RunningSteps, Steps
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
from penstock.gateway.line.produce_buffer import ProduceBuffer
from penstock.gateway.line.replies import ERROR, OK, Replies, error
from penstock.gateway.line.stream import open_stream
from penstock.gateway.line.stream_sender import StreamSender
from penstock.gateway.peer_rpc.routed_partition import RoutedPartition, find_partition, look_up_bounds
from penstock.gateway.shared.controller_call import allow
from penstock.gateway.shared.gateway import Gateway
from penstock.gateway.shared.topics import find_topic
from penstock.gateway.shared.wire import Wire
from penstock.handlers.support.context import AclResourceType, Operation, Session
from penstock.metadata.configs import topic_setting

logger = logging.getLogger(__name__)

LISTENER = "LINE"

UNCHECKED_BYTES = 64 * 1024
"""A message of that size may be received before it is looked up whether its topic takes it."""

SKIPPED_BYTES_MAX = 100 * 2**20
"""`socket.request.max.bytes` of Kafka: a message that is refused is read over if it is no longer than that."""

PIECES_MAX = 1000
"""Lines and messages of one client that are looked at before others have their turn: some milliseconds' worth."""

_HTTP = re.compile(rb" HTTP/[0-9](\.[0-9])?$")
"""How a request line ends; no command does."""

_WORDS: dict[type, str] = {Ack: "ACK", Read: "READ", SetOffset: "SET_OFFSET"}
"""What commands are counted as."""


class LineConversation:
    """A `Conversation`."""

    def __init__(self, gateway: Gateway, wire: Wire) -> None:
        self._context = gateway.context
        self._wire = wire
        self._session = Session("", 0, wire.peer, LISTENER)
        self._framer = Framer()
        self._announced: Produce | None = None
        """The message whose bytes come next."""
        self._replies = Replies(wire, self._close)
        self._writing = ProduceBuffer(gateway, self._session, self._replies, self._written)
        self._sender = StreamSender(self._context, wire, self._go_on)
        self._next: Command | None = None
        """A command that is carried out alone, once all before it are answered."""
        self._running: RunningSteps[bytes] | None = None
        self._is_alone = False
        """It is being carried out."""
        self._begun: tuple[str, int] | None = None
        """What it is, and when it began, for metrics."""
        self._taken = 0
        """Lines and messages that have been looked at."""
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
        self._sender.end()
        running, self._running = self._running, None
        if running is not None:
            running.cancel()
        self._replies.end()

    def _close(self) -> None:
        self.ended()
        self._wire.close()

    @property
    def is_idle(self) -> bool:
        return not (
            self._replies or self._next is not None or self._is_alone or self._sender.stream is not None
        )

    @property
    def unfinished(self) -> int | None:
        """A message that was announced and has not begun is not: somebody may be about to type it."""
        return self._taken if self._framer.is_midway and not self._is_held else None

    def give_up_waiting(self) -> None:
        self._refuse("timed out waiting for the rest of a line or message", None)

    # -- commands --------------------------------------------------------------------------------------

    @property
    def _is_held(self) -> bool:
        """Whether the next command has to wait."""
        return (
            self._next is not None
            or self._is_alone
            or self._writing.is_held
            or self._is_giving_way
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
            logger.exception("line from %s failed: unexpected error", self._wire.peer)
            self._say_last(error("internal error; see the broker's log"))
        finally:
            self._is_going = False

    def _carry_on(self) -> None:
        sender = self._sender
        pieces_left = PIECES_MAX
        while True:
            if sender.stream is not None and not self._is_alone and (steps := sender.send_more()) is not None:
                self._run(steps)
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
        self._writing.write()
        if self._is_held:
            return
        if self._is_paused:
            self._is_paused = False
            self._wire.go_on_reading()
        if self._is_finished and not self._sender.is_looking:
            self._sender.stop()
            if not self._replies:
                self._close()

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
        self._writing.gather(announced, value)
        return True

    def _take_line(self) -> bool:
        try:
            line = self._framer.line()
            if not line:
                return line is not None
            command = parse(line)
        except LineTooLong:
            self._refuse(f"the line is too long, expected at most {LINE_BYTES_MAX} bytes", None)
            return True
        except BadCommand as bad:
            if line is not None and _HTTP.search(line):
                self._refuse("this port speaks the line protocol, not HTTP", None)
            else:
                self._refuse(str(bad), bad.payload_bytes)
            return True
        if not isinstance(command, Produce):
            self._writing.write()
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
            f"the message has {command.length} bytes, and topic {_shown(command.topic)!r} allows at most {limit}",
            command.length,
        )
        return False

    def _refuse(self, why: str, payload_bytes: int | None) -> None:
        self._context.metrics.line_answered("?", 0, errors=1)
        self._writing.write()
        if payload_bytes is None or payload_bytes > SKIPPED_BYTES_MAX:
            self._say_last(error(f"{why}; the connection is closed"))
        else:
            self._framer.skip(payload_bytes)
            self._replies.say(error(why))

    def _say_last(self, text: bytes) -> None:
        """Close after this, once all that came before is answered."""
        self._framer = Framer()
        self._sender.stop()
        self._announced = None
        self._is_alone = True  # nothing is looked at any more
        self._replies.say(text, is_last=True)

    def _written(self) -> None:
        if self._is_stalled or self._is_finished:
            self._go_on()

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
        running = RunningSteps(steps, self._done, self._failed)
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

    def _failed(self, wrong: Exception) -> None:
        if not isinstance(wrong, KafkaError):
            logger.error("a command from %s failed", self._wire.peer, exc_info=wrong)
            wrong = KafkaError("internal error; see the broker's log")
        self._done(error(str(wrong)))

    def _acknowledge(self) -> Steps[bytes]:
        stream = self._sender.stream
        if stream is None:
            raise KafkaError("there is no message to acknowledge", ErrorCode.INVALID_REQUEST)
        yield from stream.acknowledge()
        return OK

    def _open_stream(self, request: Read) -> Steps[bytes]:
        """The stream that runs is over, whatever comes of the request."""
        self._sender.stop()
        self._authorize(request.topic, request.group)
        self._sender.stream = yield from open_stream(self._context, request)
        return b""

    def _set_offset(self, command: SetOffset) -> Steps[bytes]:
        context = self._context
        self._authorize(command.topic, command.group)
        topic = find_topic(context, command.topic)
        places = [find_partition(context, topic.name, number) for number in sorted(topic.partitions)]
        yield from look_up_bounds(context, places)
        offsets = {each.number: _meant(command.offset, each) for each in places}
        yield from commit(context, command.group, topic, offsets)
        stream = self._sender.stream
        if stream is not None and (stream.request.topic, stream.request.group) == command[:2]:
            self._sender.stop()
            try:
                self._sender.stream = yield from open_stream(context, stream.request)
            except KafkaError as wrong:
                return OK + error(str(wrong))
        return OK

    def _authorize(self, topic: str, group: str) -> None:
        allow(self._context, self._session, Operation.READ, AclResourceType.TOPIC, topic)
        allow(self._context, self._session, Operation.READ, AclResourceType.GROUP, group)


def _meant(offset: Offset | None, place: RoutedPartition) -> Offset:
    """What `SET_OFFSET` means in a partition."""
    if offset is None:
        return place.log_start
    return place.last_stable if offset == END else offset


def _shown(text: str) -> str:
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}..."


class LineServer:
    """A `ProtocolServer`."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def converse(self, wire: Wire) -> LineConversation:
        return LineConversation(self._gateway, wire)
