"""The first lines of responses, made once a second for each kind of response."""

from collections.abc import Sequence
from datetime import UTC, datetime

from penstock.base.world import World

REASONS = {
    200: "OK",
    201: "Created",
    202: "Accepted",
    204: "No Content",
    206: "Partial Content",
    301: "Moved Permanently",
    302: "Found",
    303: "See Other",
    304: "Not Modified",
    307: "Temporary Redirect",
    308: "Permanent Redirect",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    406: "Not Acceptable",
    408: "Request Timeout",
    409: "Conflict",
    410: "Gone",
    411: "Length Required",
    412: "Precondition Failed",
    413: "Content Too Large",
    415: "Unsupported Media Type",
    416: "Range Not Satisfiable",
    417: "Expectation Failed",
    422: "Unprocessable Content",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    501: "Not Implemented",
    503: "Service Unavailable",
    504: "Gateway Timeout",
    505: "HTTP Version Not Supported",
}

KEEP_ALIVE = b"Connection: keep-alive\r\n"
CLOSE = b"Connection: close\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class Heads:
    """Status line, date and content type; the other lines and the empty one are the caller's."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._second = -1
        self._date = b""
        self._made: dict[tuple[int, str], bytes] = {}

    def of(self, status: int, content_type: str) -> bytes:
        second = self._world.now_ms() // 1000
        if second != self._second:
            self._second = second
            self._date = http_date(second).encode()
            self._made.clear()
        head = self._made.get((status, content_type))
        if head is None:
            head = b"HTTP/1.1 %d %s\r\nDate: %s\r\n" % (status, REASONS.get(status, "").encode(), self._date)
            if content_type:
                head += lines([("Content-Type", content_type)])
            self._made[status, content_type] = head
        return head


def lines(headers: Sequence[tuple[str, str]]) -> bytes:
    """Further lines. What would end a line before its end is a mistake of the route, not to be sent."""
    found = []
    for name, value in headers:
        if "\r" in value or "\n" in value or "\0" in value:
            raise ValueError(f"the header {name} is {value!r}, expected one line")
        found.append(f"{name}: {value}\r\n")
    return "".join(found).encode("latin-1")


def http_date(second: int) -> str:
    """As RFC 9110 wants it, whatever the locale: Sun, 06 Nov 1994 08:49:37 GMT."""
    then = datetime.fromtimestamp(second, UTC)
    return f"{_DAYS[then.weekday()]}, {then:%d} {_MONTHS[then.month - 1]} {then:%Y %H:%M:%S} GMT"
