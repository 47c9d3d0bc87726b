"""What a client is told: lines and messages as bytes, and replies that leave in the order of the commands."""

from collections import deque
from collections.abc import Callable

from penstock.client.line_text import encode_key
from penstock.gateway.line.stream import Message
from penstock.gateway.shared.wire import Wire

ERROR_CHARACTERS_MAX = 400

ERROR = b"-ERR "
OK = b"+OK\n"
EMPTY = b"+EMPTY\n"


class Reply:
    """What is sent for one or more commands, when it is known."""

    __slots__ = ("is_last", "text")

    def __init__(self, text: bytes | None = None, *, is_last: bool = False) -> None:
        self.text = text
        self.is_last = is_last
        """The connection is closed after it."""


class Replies:
    """Of one client: each waits until it is known, and all before it are sent."""

    __slots__ = ("_close", "_waiting", "_wire", "is_over")

    def __init__(self, wire: Wire, close: Callable[[], None]) -> None:
        """`close` is called when the last one is sent."""
        self._wire = wire
        self._close = close
        self._waiting: deque[Reply] = deque()
        self.is_over = False
        """Nobody listens any more."""

    def __bool__(self) -> bool:
        """Whether any waits."""
        return bool(self._waiting)

    def add(self, reply: Reply) -> None:
        self._waiting.append(reply)

    def say(self, text: bytes, *, is_last: bool = False) -> None:
        """A reply that is known at once."""
        self._waiting.append(Reply(text, is_last=is_last))
        self.send()

    def send(self) -> None:
        """Let go of the replies that are known, as far as none before them is missing."""
        waiting = self._waiting
        while waiting and (text := waiting[0].text) is not None:
            is_last = waiting.popleft().is_last
            self._wire.send(text)
            if is_last:
                self._close()

    def end(self) -> None:
        self.is_over = True
        self._waiting.clear()


def in_bytes(message: Message) -> bytes:
    record = message.record
    value = record.value or b""
    head = b"+MSG %d %d %d %b\n" % (record.offset, len(value), message.partition, encode_key(record.key))
    return head + value


def error(why: str) -> bytes:
    """One line, whatever is in it."""
    words = " ".join(why.split())[:ERROR_CHARACTERS_MAX]
    return b"-ERR %b\n" % words.encode("utf-8", "backslashreplace")
