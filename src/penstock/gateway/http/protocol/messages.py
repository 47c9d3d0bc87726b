"""Requests and responses, as routes see them; and the heads of responses.

A route's handler returns the response, or is a generator of `steps` if it has to wait. The hot path may return a
`Promise`, which costs less. An `HttpError` or `KafkaError` that it raises, or with which its promise fails, becomes a
JSON error with a code and a message. `Heads` makes status lines and headers once a second for each kind of response.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

import msgspec

from penstock.base.promise import Promise
from penstock.base.steps import Steps
from penstock.base.world import World
from penstock.gateway.shared.access import Rule
from penstock.handlers.support.context import Session

JSON = "application/json"

_encode = msgspec.json.Encoder().encode


class Request(NamedTuple):
    """A validated request: its parameters have their types, and its body is that of the route."""

    session: Session
    path: Mapping[str, str]
    """Parameters in the path, decoded."""
    query: Mapping[str, Any]
    """Query parameters, each with its value or its default."""
    headers: Mapping[str, str]
    """Headers, by name in lower case."""
    body: Any
    """Decoded as the route's type of body; None if the route has none."""
    is_head: bool = False
    """HEAD: the response is sent without its body."""

    def names(self, parameter: str) -> Sequence[str]:
        """The name or names that a parameter of the path, the query or the body has."""
        found = self.path.get(parameter)
        if found is None:
            found = self.query.get(parameter) or getattr(self.body, parameter)
        return (found,) if isinstance(found, str) else found


class Response(NamedTuple):
    status: int
    body: bytes = b""
    content_type: str = JSON
    headers: Sequence[tuple[str, str]] = ()


class Out(Protocol):
    """Sends the body of a stream."""

    def write(self, data: bytes) -> None: ...

    def ready(self) -> Any:
        """A `Promise` that is resolved when the client can receive more: yield it between writes."""


class Stream(NamedTuple):
    """A response whose body is written in steps; cancelled when the client disconnects."""

    write: Callable[[Out], Steps[None]]
    content_type: str
    status: int = 200
    headers: Sequence[tuple[str, str]] = ()


class HttpError(Exception):
    """An error response: `{"error": {"code": "not_assigned", "message": "...", ...more}}`."""

    def __init__(
        self, status: int, code: str, message: str, headers: Sequence[tuple[str, str]] = (), **more: Any
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.headers = headers
        self.more = more


Answer: TypeAlias = Response | Stream
Handle: TypeAlias = Callable[[Any, Request], Answer | Steps[Answer] | Promise[Answer]]
"""Called with the `Gateway` and the request."""


class Query(NamedTuple):
    """A query parameter."""

    name: str
    type: type[str] | type[int] | type[bool] | type[list[str]]
    """A list is comma-separated."""
    what: str
    """Its description."""
    default: Any = None
    is_required: bool = False
    min: int | None = None
    max: int | None = None
    """Limit of a number's value, a text's length, or a list's length."""
    one_of: tuple[str, ...] = ()
    """Allowed values of a text, or of each text of a list."""
    pattern: str = ""
    """A regular expression for the whole value, from `^` to `$`."""
    each_max: int | None = None
    """Limit of the length of each text of a list."""
    is_unique: bool = False
    """Whether the texts of a list must differ."""


class Dialect(NamedTuple):
    """Habits of another server's API, for routes that its clients use."""

    media_types: Sequence[str]
    """Content types of bodies, besides JSON. Whatever a client accepts, it gets the first."""
    error_response: Callable[[HttpError], Response]
    """Unknown parameters are ignored, too."""


class Route(NamedTuple):
    method: str
    path: str
    """With parameters in braces: `/topics/{topic}`. A last `{path...}` is the rest of the path, perhaps empty."""
    handle: Handle
    tag: str
    summary: str
    query: Sequence[Query] = ()
    body: Any = None
    """A `msgspec.Struct`, or a union that msgspec decodes from JSON."""
    answer: Any = None
    """Type of a successful response's body, which msgspec encodes."""
    status: int = 200
    errors: Sequence[int] = ()
    """Error statuses, besides those of every route (`errors.ALWAYS`)."""
    content_types: Sequence[str] = (JSON,)
    """Content types of a successful response."""
    rule: Rule | None = None
    """Who may send it. Without a rule it is refused on a node with an authorizer or log-ins."""
    changes: bool = True
    """Whether a request other than GET changes something: a read-only console may not send it."""
    ignores_query: bool = False
    """Takes any query, and does not read it: it is the page's."""
    dialect: Dialect | None = None
    """None for the API of this server."""


H = TypeVar("H", bound=Handle)


class Routes(list[Route]):
    """The routes of a section of the API, in the order of their definition."""

    def __init__(self, tag: str, dialect: Dialect | None = None) -> None:
        super().__init__()
        self._tag = tag
        self._dialect = dialect

    def add(
        self,
        method: str,
        path: str,
        summary: str,
        *,
        query: Sequence[Query] = (),
        body: Any = None,
        answer: Any = None,
        status: int = 200,
        errors: Sequence[int] = (),
        content_types: Sequence[str] = (JSON,),
        rule: Rule | None = None,
        changes: bool = True,
        ignores_query: bool = False,
    ) -> Callable[[H], H]:
        """Decorate the handler of a route."""

        def added(handle: H) -> H:
            self.append(
                Route(
                    method,
                    path,
                    handle,
                    self._tag,
                    summary,
                    query,
                    body,
                    answer,
                    status,
                    errors,
                    content_types,
                    rule,
                    changes and method != "GET",
                    ignores_query,
                    self._dialect,
                )
            )
            return handle

        return added


def json(value: Any, status: int = 200) -> Response:
    return Response(status, _encode(value))


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
    """Status line, date and content type, which no browser may take for another one: responses have texts of anybody.
    The caller adds other headers and the empty line."""

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
                head += lines([("Content-Type", content_type), ("X-Content-Type-Options", "nosniff")])
            self._made[status, content_type] = head
        return head


def lines(headers: Sequence[tuple[str, str]]) -> bytes:
    """Further headers. Raises for a value with a line break, which is an error of the route."""
    found = []
    for name, value in headers:
        if "\r" in value or "\n" in value or "\0" in value:
            raise ValueError(f"the header {name} is {value!r}, expected one line")
        found.append(f"{name}: {value}\r\n")
    return "".join(found).encode("latin-1")


def http_date(second: int) -> str:
    """In the format of RFC 9110, in any locale: Sun, 06 Nov 1994 08:49:37 GMT."""
    then = datetime.fromtimestamp(second, UTC)
    return f"{_DAYS[then.weekday()]}, {then:%d} {_MONTHS[then.month - 1]} {then:%Y %H:%M:%S} GMT"
