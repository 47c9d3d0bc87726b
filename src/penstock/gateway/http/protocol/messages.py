"""Requests and responses, as routes see them.

A route is a plain function: it returns the response, or is written as `steps` where something must happen first. A
route that is called very often may return a `Promise` instead, which costs less. An `HttpError` or a `KafkaError` that
it raises, or with which its `Promise` fails, becomes JSON with a code and a sentence.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import msgspec

from penstock.base.promise import Promise
from penstock.base.steps import Steps
from penstock.handlers.support.context import Session

JSON = "application/json"

_encode = msgspec.json.Encoder().encode


class Request(NamedTuple):
    """What a client asks for, found good: its parameters have their types, its body is what the route wants."""

    session: Session
    path: Mapping[str, str]
    """Parameters in the path, decoded."""
    query: Mapping[str, Any]
    """Parameters behind it, each with its value or its default."""
    headers: Mapping[str, str]
    """By their names in lower case."""
    body: Any
    """As the route's type of body; None where it has none."""
    is_head: bool = False
    """HEAD: the answer is wanted without its body."""


class Response(NamedTuple):
    status: int
    body: bytes = b""
    content_type: str = JSON
    headers: Sequence[tuple[str, str]] = ()


class Out(Protocol):
    """Where a stream writes to."""

    def write(self, data: bytes) -> None: ...

    def ready(self) -> Any:
        """A `Promise` that is answered when the client has room for more: yield it between writes."""


class Stream(NamedTuple):
    """A response whose body is written in steps, for as long as the client stays; cancelled when it leaves."""

    write: Callable[[Out], Steps[None]]
    content_type: str
    status: int = 200
    headers: Sequence[tuple[str, str]] = ()


class HttpError(Exception):
    """What is wrong, for the client: `{"error": {"code": "not_assigned", "message": "...", ...more}}`."""

    headers: Sequence[tuple[str, str]] = ()

    def __init__(self, status: int, code: str, message: str, **more: Any) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.more = more


Answer: TypeAlias = Response | Stream
Handle: TypeAlias = Callable[[Any, Request], Answer | Steps[Answer] | Promise[Any]]
"""Called with the `Gateway` and the request. A `Promise` is answered with an `Answer`, or with what is wrong."""


class Query(NamedTuple):
    """A parameter behind the `?`."""

    name: str
    type: type[str] | type[int] | type[bool] | type[list[str]]
    """A list is texts with commas in between."""
    what: str
    """A sentence about it."""
    default: Any = None
    is_required: bool = False
    min: int | None = None
    max: int | None = None
    """Of a number's value, of a text's length, or of how many texts a list has."""
    one_of: tuple[str, ...] = ()
    """What a text, or each of a list, may be."""
    pattern: str = ""
    """What it looks like: a regular expression for all of it, from `^` to `$`."""
    each_max: int | None = None
    """Of the length of each text of a list."""
    is_unique: bool = False
    """Of a list: no text comes twice."""


class Route(NamedTuple):
    method: str
    path: str
    """With parameters in braces: `/topics/{topic}`."""
    handle: Handle
    tag: str
    summary: str
    query: Sequence[Query] = ()
    body: Any = None
    """A `msgspec.Struct`, or a union that msgspec decodes from JSON."""
    answer: Any = None
    """What the body of a good response is, as msgspec encodes it."""
    status: int = 200
    errors: Sequence[int] = ()
    """Statuses that it may end with, besides what any request may (`errors.ALWAYS`)."""
    content_types: Sequence[str] = (JSON,)
    """Of a good response."""


def json(value: Any, status: int = 200) -> Response:
    return Response(status, _encode(value))
