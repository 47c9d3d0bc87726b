"""One connection's commands, executed in order, and the messages that are streamed to it in between.

    received -> [TOPIC TOPIC TOPIC] [ACK] [TOPIC] [orders:billing:-1]
                 `-- one write --'   every other command starts when all before it are answered

Consecutive messages are written together (`produce_buffer`), and replies are sent in the order of the commands
(`replies`). Every other command, and the first message to a topic that has to be created, is executed alone. Meanwhile
input is kept unparsed, at most one portion; the same holds while the client does not read.

A stream sends messages (`stream_sender`) between two replies, never while a command is executed alone.

Any web page can make a browser send HTTP to this port, and the page chooses the body, which may look like commands. So
the connection is closed at the first line that looks like an HTTP request.
"""

import logging
import re
from typing import TYPE_CHECKING

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import Offset
from penstock.base.steps import RunningSteps, Steps
from penstock.base.world import Timer
from penstock.gateway.line.commands import (
    END,
    RULES,
    SHOWN_MAX,
    Ack,
    Auth,
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
from penstock.gateway.shared.access import check, is_still_allowed
from penstock.gateway.shared.door_quotas import DoorQuota
from penstock.gateway.shared.gateway import Gateway
from penstock.gateway.shared.login import Login
from penstock.gateway.shared.rechecks import Rechecks
from penstock.gateway.shared.topics import find_topic
from penstock.gateway.shared.wire import Wire
from penstock.handlers.sasl import LOGIN_MS_MAX
from penstock.metadata.configs import topic_setting

if TYPE_CHECKING:
    from penstock.gateway.shared.door_logins import DoorLogins

logger = logging.getLogger(__name__)

UNCHECKED_BYTES = 64 * 1024
"""A message of up to this size is received without a check of its topic's `max.message.bytes`."""

SKIPPED_BYTES_MAX = 100 * 2**20
"""A rejected message of up to this size is skipped; after a larger one the connection is closed. The value of Kafka's
`socket.request.max.bytes`."""

PIECES_MAX = 1000
"""Lines and messages of one client that are handled in one tick: a few milliseconds."""

_LOG_IN_FIRST = "log in first: AUTH <user> <password>"

_HTTP = re.compile(rb" HTTP/[0-9](\.[0-9])?$")
"""The end of an HTTP request line. No command ends like this."""

_WORDS: dict[type, str] = {Ack: "ACK", Auth: "AUTH", Produce: "TOPIC", Read: "READ", SetOffset: "SET_OFFSET"}
"""Names of commands in metrics and in the audit."""


class _LoginFailed(KafkaError):
    """The connection is closed after this error."""


class LineConversation:
    """A `Conversation`."""

    def __init__(self, server: "LineServer", wire: Wire) -> None:
        gateway = server.gateway
        self._server = server
        self._context = gateway.context
        self._wire = wire
        self._session = wire.session
        self._session.request = _WORDS[Produce]
        self._login: Login | None = None
        """None if the client has not logged in."""
        self._timer: Timer | None = None
        """Runs until the client must have logged in, and then until its session ends."""
        self._framer = Framer()
        self._announced: Produce | None = None
        """The message whose bytes follow."""
        self._replies = Replies(wire, self._close)
        self._quota = DoorQuota(self._context)
        self._mute_timer: Timer | None = None
        """Runs while the connection is muted because of a quota."""
        self._session.mute = self._mute
        self._produce_buffer = ProduceBuffer(
            gateway, self._session, self._replies, self._written, self._wrote
        )
        self._sender = StreamSender(self._context, wire, self._go_on, self._quota)
        self._next: Command | None = None
        """A command that is executed alone, once all commands before it are answered."""
        self._running: RunningSteps[bytes] | None = None
        self._is_alone = False
        """Whether a command is executed alone now."""
        self._begun: tuple[str, int] | None = None
        """Its name and its start, for metrics."""
        self._taken = 0
        """Lines and messages that were parsed."""
        self._is_yielding = False
        """The next command is parsed in the next tick."""
        self._is_paused = False
        """Whether reading from the connection is paused."""
        self._is_stalled = False
        """Whether received commands may be waiting."""
        self._is_going = False
        self._is_finished = False
        """The client has closed its side of the connection."""
        self._is_over = False
        if server.is_guarded:
            server.rechecks.add(self._check_again)
        if server.logins is not None:
            self._timer = self._context.world.call_later(LOGIN_MS_MAX, self._login_late)

    # -- what the wire calls ---------------------------------------------------------------------------

    def received(self, data: memoryview) -> None:
        if self._is_over:
            return
        self._framer.feed(data)
        if self._is_held:
            self._pause()
        else:
            self._go_on()
        if self.is_guest and not self._is_over:
            self._wire.holds_before_login(self._framer.kept_bytes)

    def drained(self) -> None:
        self._go_on()

    def finished(self) -> None:
        """Execute what the client has sent. A stream sends one more message, as no ACK can follow."""
        self._is_finished = True
        self._go_on()

    def ended(self) -> None:
        self._is_over = True
        if self._server.is_guarded:
            self._server.rechecks.remove(self._check_again)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._quota.leave()
        if self._mute_timer is not None:
            self._mute_timer.cancel()
            self._mute_timer = None
        self._sender.end()
        running, self._running = self._running, None
        if running is not None:
            running.cancel()
        self._replies.end()

    def _close(self) -> None:
        self.ended()
        self._wire.close()

    @property
    def is_guest(self) -> bool:
        return self._server.logins is not None and self._login is None

    @property
    def is_idle(self) -> bool:
        return not (
            self._replies or self._next is not None or self._is_alone or self._sender.stream is not None
        )

    @property
    def unfinished(self) -> int | None:
        """Number of the command whose rest is missing. A message without its first byte does not count: a person may
        be about to type it."""
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
            or self._produce_buffer.is_held
            or self._is_yielding
            or self._mute_timer is not None
            or self._is_over
            or self._wire.is_full
        )

    def _pause(self) -> None:
        if not self._is_paused:
            self._is_paused = True
            self._wire.stop_reading()

    def _go_on(self) -> None:
        """Execute and send as much as possible now."""
        if self._is_going or self._is_over:
            return  # a caller up the stack goes on
        self._is_going = True
        try:
            self._go_on_until_held()
        except Exception:
            logger.exception("line from %s failed: unexpected error", self._wire.peer)
            self._reply_and_close(error("internal error; see the broker's log"))
        finally:
            self._is_going = False

    def _go_on_until_held(self) -> None:
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
                self._is_yielding = self._is_stalled = True
                self._context.world.call_soon(self._yielded)
                break
        self._taken += PIECES_MAX - pieces_left
        self._produce_buffer.write()
        if self._is_held:
            return
        if self._is_paused:
            self._is_paused = False
            self._wire.go_on_reading()
        if self._is_finished and not self._sender.is_looking:
            self._sender.stop()
            if not self._replies:
                self._close()

    def _yielded(self) -> None:
        self._is_yielding = False
        self._go_on()

    def _take(self) -> bool:
        """Handle the next line or message; return False if it is not complete."""
        announced = self._announced
        if announced is None:
            return self._take_line()
        value = self._framer.take(announced.length)
        if value is None:
            return False
        self._announced = None
        self._produce_buffer.gather(announced, value)
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
            elif self.is_guest:
                self._refuse(f"{_LOG_IN_FIRST} ({bad})", None)
            else:
                self._refuse(str(bad), bad.payload_bytes)
            return True
        if self.is_guest and not isinstance(command, Auth):
            self._refuse(_LOG_IN_FIRST, None)
        elif not isinstance(command, Produce):
            self._produce_buffer.write()
            self._next = command
        elif command.length <= UNCHECKED_BYTES or self._has_room(command):
            self._announced = command
        return True

    def _has_room(self, command: Produce) -> bool:
        """Whether the topic allows a message of this size; otherwise it is rejected, and its bytes are skipped."""
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
        self._produce_buffer.write()
        if payload_bytes is None or payload_bytes > SKIPPED_BYTES_MAX:
            self._reply_and_close(error(f"{why}; the connection is closed"))
        else:
            self._framer.skip(payload_bytes)
            self._replies.add_text(error(why))

    def _reply_and_close(self, text: bytes) -> None:
        """Close the connection after this reply, once all commands before it are answered."""
        self._framer = Framer()
        self._sender.stop()
        self._announced = None
        self._is_alone = True  # no command is parsed after this
        self._replies.add_text(text, is_last=True)

    def _written(self) -> None:
        if self._is_stalled or self._is_finished:
            self._go_on()

    # -- commands that are executed alone --------------------------------------------------------------

    def _begin(self, command: Command) -> None:
        self._begun = _WORDS[type(command)], self._context.world.clock_ns()
        if isinstance(command, Ack):
            self._run(self._acknowledge())
        elif isinstance(command, Read):
            self._run(self._open_stream(command))
        elif isinstance(command, Auth):
            self._run(self._log_in(command))
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
        if isinstance(wrong, _LoginFailed):
            self._running = None
            self._context.metrics.line_answered("AUTH", 0, errors=1)
            self._reply_and_close(error(str(wrong)))
        else:
            self._done(error(str(wrong)))

    def _acknowledge(self) -> Steps[bytes]:
        stream = self._sender.stream
        if stream is None:
            raise KafkaError("there is no message to acknowledge", ErrorCode.INVALID_REQUEST)
        self._authorize(Ack(), stream.request)
        yield from stream.acknowledge()
        return OK

    def _open_stream(self, request: Read) -> Steps[bytes]:
        """Ends the current stream, even if the request fails."""
        self._sender.stop()
        self._authorize(request, request)
        self._quota.of(self._session, None)
        self._sender.stream = yield from open_stream(self._context, request)
        return b""

    def _set_offset(self, command: SetOffset) -> Steps[bytes]:
        context = self._context
        self._authorize(command, command)
        topic = find_topic(context, command.topic)
        partitions = [find_partition(context, topic.name, number) for number in sorted(topic.partitions)]
        yield from look_up_bounds(context, partitions)
        offsets = {each.number: _offset_in(command.offset, each) for each in partitions}
        yield from commit(context, command.group, topic, offsets)
        stream = self._sender.stream
        if stream is not None and (stream.request.topic, stream.request.group) == command[:2]:
            self._sender.stop()
            try:
                self._sender.stream = yield from open_stream(context, stream.request)
            except KafkaError as wrong:
                return OK + error(str(wrong))
        return OK

    # -- log-ins and ACLs ------------------------------------------------------------------------------

    def _authorize(self, command: Command, names: Read | SetOffset) -> None:
        """Raise unless the client is authorized for the command, which is about the topic and group of `names`."""
        session = self._session
        if self._context.audit is not None:
            session = session.within(_WORDS[type(command)], None)
        check(self._context, session, RULES[type(command)].needs, lambda each: (getattr(names, each),))

    def _log_in(self, command: Auth) -> Steps[bytes]:
        logins, before = self._server.logins, self._login
        if logins is None:
            raise KafkaError("this listener asks for no log-in", ErrorCode.ILLEGAL_SASL_STATE)
        try:
            login: Login = yield logins.check(command.given, self._session)
            if before is not None and login.user != before.user:
                raise KafkaError(f"this connection is that of {self._session.principal}")
        except KafkaError as wrong:
            raise _LoginFailed(f"{wrong}; the connection is closed") from wrong
        self._login = login
        self._session = self._produce_buffer.session = login.session_of(self._wire.session)
        self._session.request = _WORDS[Produce]
        self._session.mute = self._mute
        self._wire.holds_before_login(0)
        self._begin_session(login, logins.session_ms.get(login.mechanism, 0))
        return OK

    def _begin_session(self, login: Login, session_ms: int) -> None:
        """The client has to log in again before the session ends."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        world = self._context.world
        left = [session_ms] if session_ms > 0 else []
        if login.expires_ms is not None:
            left.append(max(login.expires_ms - world.now_ms(), 0))
        if left:
            self._timer = world.call_later(min(left) + 1, self._session_over)

    # -- quotas ----------------------------------------------------------------------------------------

    def _wrote(self, size: int) -> None:
        """Messages of this size are written."""
        if self._context.quotas is not None and self._quota.of(self._session, None) is not None:
            delay_ms = self._quota.wrote(size)
            if delay_ms:
                self._mute(delay_ms)

    def _mute(self, delay_ms: int) -> None:
        """Handle no command for this time; 0 ends it."""
        if self._mute_timer is not None:
            self._mute_timer.cancel()
            self._mute_timer = None
        if delay_ms:
            self._mute_timer = self._context.world.call_later(delay_ms, self._unmute)
            self._is_stalled = True
        elif not self._is_over:
            self._context.world.call_soon(self._go_on)

    def _unmute(self) -> None:
        self._mute_timer = None
        self._go_on()

    def _login_late(self) -> None:
        self._timer = None
        if self.is_guest:
            self._close()

    def _session_over(self) -> None:
        self._timer = None
        self._reply_and_close(error("the session has ended: connect and log in again"))

    def _check_again(self) -> None:
        """ACLs or users have changed."""
        login, stream = self._login, self._sender.stream
        if login is not None and not login.is_current(self._context.world.now_ms()):
            self._session_over()
        elif stream is not None and not is_still_allowed(
            self._context,
            self._session,
            RULES[Read].needs,
            lambda each: (getattr(stream.request, each),),
        ):
            try:
                self._authorize(stream.request, stream.request)
            except KafkaError as wrong:
                self._sender.stop()
                self._wire.send(error(str(wrong)))


def _offset_in(offset: Offset | None, partition: RoutedPartition) -> Offset:
    """The offset that `SET_OFFSET` sets in a partition."""
    if offset is None:
        return partition.log_start
    return partition.last_stable if offset == END else offset


def _shown(text: str) -> str:
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}..."


class LineServer:
    """A `ProtocolServer`."""

    def __init__(self, gateway: Gateway, logins: "DoorLogins | None" = None) -> None:
        """With `logins`, clients have to log in."""
        self.gateway = gateway
        self.logins = logins
        self.is_guarded = logins is not None or gateway.context.authorizer is not None
        self.rechecks = Rechecks(gateway.context)

    def converse(self, wire: Wire) -> LineConversation:
        return LineConversation(self, wire)
