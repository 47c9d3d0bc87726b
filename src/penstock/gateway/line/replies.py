"""Replies to a client: their bytes, and their order, which is that of the commands."""

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
    """The reply to one or more commands, once `text` is set."""

    __slots__ = ("is_last", "text")

    def __init__(self, text: bytes | None = None, *, is_last: bool = False) -> None:
        self.text = text
        self.is_last = is_last
        """Whether the connection is closed after this reply."""


class Replies:
    """The replies of one client. Each is sent when it is set, and all replies before it are sent."""

    __slots__ = ("_close", "_waiting", "_wire", "is_over")

    def __init__(self, wire: Wire, close: Callable[[], None]) -> None:
        """`close` is called after a reply with `is_last`."""
        self._wire = wire
        self._close = close
        self._waiting: deque[Reply] = deque()
        self.is_over = False
        """Whether the connection is closed."""

    def __bool__(self) -> bool:
        """Whether replies wait."""
        return bool(self._waiting)

    def add(self, reply: Reply) -> None:
        self._waiting.append(reply)

    def add_text(self, text: bytes, *, is_last: bool = False) -> None:
        """Add a reply that is known already."""
        self._waiting.append(Reply(text, is_last=is_last))
        self.send()

    def send(self) -> None:
        """Send the replies that are set, up to the first that is not."""
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
    """An error reply, in one line."""
    words = " ".join(why.split())[:ERROR_CHARACTERS_MAX]
    return b"-ERR %b\n" % words.encode("utf-8", "backslashreplace")
