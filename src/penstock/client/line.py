"""A small client of the line protocol (`docs/line.md`), for scripts and tests.

    with LineClient("127.0.0.1", 9090) as client:
        offset = client.produce("orders", b"paid", key=b"customer-7")
        with client.consume("orders", "billing", to_offset=offset) as messages:
            for message in messages:
                message.ack()

It blocks. Each stream of messages has its own connection, separate from the client's commands.
"""

import socket
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from penstock.base.ids import Offset

from .errors import ClientError, ConnectionLost, TimedOut, Unreachable
from .line_text import decode_key, encode_group, encode_key
from .settings import Closing

if TYPE_CHECKING:
    from ssl import SSLContext

PORT = 9090
ALL_PARTITIONS = -1

TIMEOUT_S = 30.0
"""Longer than the broker's timeout of a write."""

LINE_BYTES_MAX = 4 * 2**20
"""Limit of a line. A line may contain a key, which may be as long as a message, and three times as long
percent-encoded."""

IN_FLIGHT_MAX = 500
"""Messages in flight. The replies to so many fit into the socket's buffers: otherwise client and broker could both
block in send, each waiting for the other to read."""

SEND_BYTES = 256 * 1024
RECEIVE_BYTES = 64 * 1024


class LineError(ClientError):
    """The broker replied `-ERR`, with this message, or sent an unexpected reply."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a stream. The next one is sent once it is acknowledged."""

    _stream: "MessageStream" = field(repr=False)
    partition: int
    offset: Offset
    key: bytes | None
    value: bytes
    """Empty for a tombstone too."""

    def ack(self) -> None:
        """Commit the offset after this message for the group. It is durable when this returns."""
        self._stream.acknowledge(self)


class LineClient(Closing):
    """Not thread-safe."""

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = PORT,
        *,
        timeout_s: float = TIMEOUT_S,
        user: str | None = None,
        password: str = "",
        tls: "SSLContext | None" = None,
    ) -> None:
        """Connects at the first command, and again at the next command after the connection failed.

        timeout_s: timeout of a reply. A stream at the end of the log waits for messages without a timeout.
        user, password: to log in with, for a broker that asks for it.
        tls: for a broker with TLS, such as `ssl.create_default_context(cafile="ca.pem")`.
        """
        self._host, self._port = host, port
        self._timeout_s = timeout_s
        self._tls = tls
        self._login = b"" if user is None else b"AUTH %b %b\n" % (encode_group(user), encode_group(password))
        self._connection: _Connection | None = None

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    # -- commands --------------------------------------------------------------------------------------

    def produce(self, topic: str, value: bytes, key: bytes | None = None) -> Offset:
        """Send a message; return its offset once it is durable. The protocol has no tombstones: a value without bytes
        is an empty value."""
        [offset] = self.produce_many(topic, [(key, value)])
        return offset

    def produce_many(
        self, topic: str, messages: Iterable[bytes | tuple[bytes | None, bytes]]
    ) -> list[Offset]:
        """Send messages, as values or as values with keys, many in flight at a time; return their offsets.

        If the broker rejects some, the others are still written, and the first error is raised at the end. A TypeError
        for something that is not a message, or an error of the iterator, is raised at once; earlier messages may have
        been written.
        """
        connection = self._open()
        offsets: list[Offset] = []
        refusal: LineError | None = None
        in_flight = 0

        def settle(leave: int) -> None:
            nonlocal in_flight, refusal
            while in_flight > leave:
                in_flight -= 1
                try:
                    offsets.append(int(connection.reply(b"+OFFSET")))
                except LineError as error:
                    refusal = refusal or error
                except ClientError as error:
                    # The broker sends the reason before it closes a connection.
                    raise refusal or error from error

        head = b"TOPIC %b " % _word(topic)
        try:
            for each in messages:
                key, value = _key_and_value(each)
                connection.write(b"%b%b %d\n%b" % (head, encode_key(key), len(value), value))
                in_flight += 1
                if in_flight >= IN_FLIGHT_MAX:
                    connection.flush()
                    settle(IN_FLIGHT_MAX // 2)
            connection.flush()
            settle(0)
        except BaseException:
            # Replies that are still to come would be read as those to the next command.
            connection.close()
            raise
        if refusal is not None:
            raise refusal
        return offsets

    def set_offset(self, topic: str, group: str, offset: Offset | Literal["BEGIN", "END"] | None) -> None:
        """Set a group's offset, to the same number in all partitions, to the beginning of each (also with None), or to
        the end of each."""
        if not isinstance(offset, int) and offset not in (None, "BEGIN", "END"):
            raise TypeError(f"offset is {offset!r}, expected a number, BEGIN or END")
        connection = self._open()
        to = b"BEGIN" if offset is None else str(offset).encode()
        connection.write(b"SET_OFFSET %b:%b %b\n" % (_word(topic), encode_group(group), to))
        connection.flush()
        connection.reply(b"+OK")

    def consume(
        self,
        topic: str,
        group: str,
        partition: int = ALL_PARTITIONS,
        to_offset: Offset | None = None,
        *,
        until_empty: bool = False,
    ) -> "MessageStream":
        """Messages from the group's offset on: without end, up to an offset in each partition, or up to the current
        end."""
        request = b"%b:%b:%d" % (_word(topic), encode_group(group), partition)
        if to_offset is not None:
            request += b":%d" % to_offset
        return MessageStream(self._dial(), request, until_empty=until_empty)

    def _open(self) -> "_Connection":
        if self._connection is None or not self._connection.is_open:
            self._connection = self._dial()
        return self._connection

    def _dial(self) -> "_Connection":
        connection = _Connection(self._host, self._port, self._timeout_s, self._tls)
        if self._login:
            try:
                connection.write(self._login)
                connection.flush()
                connection.reply(b"+OK")
            except BaseException:
                connection.close()
                raise
        return connection


class MessageStream(Closing, Iterator[Message]):
    """The stream that `consume` returns. After it is closed, the next stream starts at the first unacknowledged
    message."""

    def __init__(self, connection: "_Connection", request: bytes, *, until_empty: bool) -> None:
        self._connection = connection
        self._until_empty = until_empty
        self._waiting: Message | None = None
        """The message that is not acknowledged yet."""
        self.end_offset: Offset | None = None
        """The next offset, after a stream with an end."""
        self._say(request)

    def close(self) -> None:
        self._connection.close()

    def __next__(self) -> Message:
        connection = self._connection
        if self._waiting is not None:
            raise LineError(
                f"message {self._waiting.offset} of partition {self._waiting.partition} is not acknowledged"
            )
        if not connection.is_open:
            raise StopIteration
        # The broker sends a heartbeat once a second while there is no message.
        word, rest = connection.line()
        while word == b"+EMPTY" and not self._until_empty:
            word, rest = connection.line()
        if word == b"+MSG":
            return self._message(rest)
        if word == b"+END":
            self.end_offset = int(rest)
        self.close()
        if word in (b"+END", b"+EMPTY"):
            raise StopIteration
        raise _unexpected(word, rest)

    def _message(self, rest: bytes) -> Message:
        try:
            offset, length, partition, key = rest.split(b" ")
            value = self._connection.take(int(length))
            message = Message(self, int(partition), int(offset), decode_key(key), value)
        except ValueError:
            self.close()
            raise _unexpected(b"+MSG", rest) from None
        self._waiting = message
        return message

    def acknowledge(self, message: Message) -> None:
        if message is not self._waiting:
            raise LineError(f"message {message.offset} of partition {message.partition} waits for no ACK")
        self._say(b"ACK")
        self._connection.reply(b"+OK")
        self._waiting = None

    def _say(self, line: bytes) -> None:
        self._connection.write(line + b"\n")
        self._connection.flush()


class _Connection:
    """Lines and counted bytes on a socket. Any failure closes it, because the next reply could not be matched."""

    def __init__(self, host: str, port: int, timeout_s: float, tls: "SSLContext | None" = None) -> None:
        self._address = f"{host}:{port}"
        try:
            self._socket = socket.create_connection((host, port), timeout_s)
        except OSError as error:
            raise Unreachable(f"{self._address} cannot be reached: {error}") from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            try:
                self._socket = tls.wrap_socket(self._socket, server_hostname=host)
            except OSError as error:
                self._socket.close()
                raise Unreachable(f"{self._address} cannot be reached with TLS: {error}") from error
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._received = bytearray()
        self.is_open = True

    def close(self) -> None:
        self.is_open = False
        with suppress(OSError):
            self._socket.close()

    def write(self, data: bytes) -> None:
        self._out.append(data)
        self._out_bytes += len(data)
        if self._out_bytes > SEND_BYTES:
            self.flush()

    def flush(self) -> None:
        out, self._out, self._out_bytes = self._out, [], 0
        if not self.is_open:
            raise ConnectionLost(f"the connection to {self._address} is closed")
        try:
            self._socket.sendall(b"".join(out))
        except TimeoutError as error:
            self.close()
            raise TimedOut(f"{self._address} takes nothing more") from error
        except OSError as error:
            self.close()
            raise ConnectionLost(f"the connection to {self._address} is lost: {error}") from error

    def reply(self, word: bytes) -> bytes:
        """The rest of the line after the expected word. Raises LineError with the broker's message for another
        word."""
        found, rest = self.line()
        if found == word:
            return rest
        error = _unexpected(found, rest)
        if found != b"-ERR":
            self.close()
        raise error

    def line(self) -> tuple[bytes, bytes]:
        """The next line: its first word, and the rest."""
        searched = 0
        while (end := self._received.find(b"\n", searched)) < 0:
            searched = len(self._received)
            if searched > LINE_BYTES_MAX:
                self.close()
                raise LineError(f"{self._address} sent a line without an end")
            self._receive()
        line = bytes(self._received[:end])
        del self._received[: end + 1]
        word, _, rest = line.partition(b" ")
        return word, rest

    def take(self, count: int) -> bytes:
        while len(self._received) < count:
            self._receive()
        data = bytes(self._received[:count])
        del self._received[:count]
        return data

    def _receive(self) -> None:
        if not self.is_open:
            raise ConnectionLost(f"the connection to {self._address} is closed")
        try:
            data = self._socket.recv(RECEIVE_BYTES)
        except TimeoutError as error:
            self.close()
            raise TimedOut(f"{self._address} does not answer") from error
        except OSError as error:
            self.close()
            raise ConnectionLost(f"the connection to {self._address} is lost: {error}") from error
        if not data:
            self.close()
            raise ConnectionLost(f"{self._address} has closed the connection")
        self._received += data


def _word(topic: str) -> bytes:
    if any(each.isspace() or each == ":" for each in topic) or not topic:
        raise LineError(f"{topic!r} is no name of a topic")
    return topic.encode()


def _key_and_value(message: object) -> tuple[bytes | None, bytes]:
    """Check the types of a message at run time, for callers without a type checker."""
    key, value = message if isinstance(message, tuple) and len(message) == 2 else (None, message)
    if value is None:
        raise TypeError("value is None, expected bytes: the line protocol has no tombstones")
    if not isinstance(value, bytes | bytearray):
        raise TypeError(f"value is {type(value).__name__}, expected bytes")
    if key is not None and not isinstance(key, bytes | bytearray):
        raise TypeError(f"key is {type(key).__name__}, expected bytes or None")
    return key if key is None else bytes(key), bytes(value)


def _unexpected(word: bytes, rest: bytes) -> LineError:
    text = rest.decode("utf-8", "backslashreplace")
    if word == b"-ERR":
        return LineError(text)
    return LineError(
        f"the broker said what was not expected: {word.decode('utf-8', 'backslashreplace')} {text}"
    )
