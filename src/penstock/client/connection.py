"""One connection to a broker, as bytes: no socket, no clock.

    conversation.take()            bytes to send, the greeting first
    conversation.room()            where to receive into, and then
    conversation.received(count)   the calls that these bytes answer
    conversation.send(request)     a Call, once `is_ready`

The greeting is ApiVersions in the latest version known here. A broker that does not have that version answers in the
form of version 0 with error 35 and the versions it has (KIP-511), and gets a second request. Each request then uses
the highest version that both sides have. Responses come in the order of the requests. A response that answers another
request, or cannot be parsed, raises MalformedResponse, and a length beyond the limit BadFrame: the connection must
then be closed.

With credentials the log-in follows the greeting (`login.py`), and only then `is_ready` is true. A refusal raises
LoginFailed. If the broker limits the session, the first request after 85% of it begins another log-in (KIP-368).
Requests that are sent meanwhile are kept until it is done; so after `received` there may be something to `take`.
"""

from collections import deque
from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

from penstock import __version__
from penstock.base.errors import ErrorCode, KafkaError
from penstock.security.sasl.client import ClientLogin
from penstock.wire import (
    KAFKA_RANGES,
    Api,
    MalformedResponse,
    RequestRejected,
    VersionRange,
    cut_frames,
    parse_response_header,
    read_response,
    request_frame,
)
from penstock.wire.request import Request, through_kio

from .buffer_pool import BufferPool
from .errors import NotServed, refused
from .login import log_in

T = TypeVar("T")

_CORRELATION_ID_MAX = 2**31 - 1
_LENGTH_BYTES = 4

BUFFER_BYTES = 64 * 1024
COPIED_BYTES = 8 * 1024
"""Received bytes up to this many are copied, and their buffer is reused."""
BELIEVED_BYTES = 4 << 20
"""Room that the length field of a frame alone reserves: one or two fetched megabytes arrive without being copied."""

SESSION_SHARE = 0.85
"""Part of a session's lifetime after which the next request logs in again. Kafka's clients take 0.85 to 0.95."""


class Call(Generic[T]):
    """A request in flight, and then its reply."""

    __slots__ = ("correlation_id", "error", "is_done", "reply", "request", "version")

    def __init__(self, request: Request[T], version: int, correlation_id: int) -> None:
        self.request = request
        self.version = version
        self.correlation_id = correlation_id
        self.is_done = False
        self.reply: T | None = None
        self.error: KafkaError | None = None
        """Why there is no reply: the connection has ended, or the response rejects the request."""

    def result(self) -> T:
        if self.error is not None:
            raise self.error
        if not self.is_done:
            raise RuntimeError(f"{self.request.api.label} is not answered yet")
        return self.reply  # type: ignore[return-value]  # done without an error: the reader's value


def _greeting() -> Request[Any]:
    return through_kio(
        Api.API_VERSIONS,
        lambda make: make.ApiVersionsRequest(
            client_software_name="penstock", client_software_version=__version__
        ),
    )


class Conversation:
    def __init__(
        self,
        peer: str,
        client_id: str,
        response_bytes_max: int,
        login: ClientLogin | None = None,
        now_ms: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """`now_ms` is a clock for the lifetime of a session; it is needed with `login` only."""
        self.peer = peer
        """The broker's name in errors."""
        self.versions: dict[int, VersionRange] = {}
        """The versions that the broker serves, by API key."""
        self.is_ready = False
        """The greeting and the log-in have been answered, requests may be sent. Stays true during later log-ins."""
        self._login = login
        self._now_ms = now_ms
        self._steps: Generator[Request[Any], Any, float] | None = None
        """A log-in that is under way."""
        self._begun_ms = 0.0
        """When its latest request was sent."""
        self._renew_ms: float | None = None
        """When the next log-in is due; None for never."""
        self._held: list[tuple[Call[Any], bytes]] = []
        """Requests that wait for the end of a log-in."""
        self._client_id = client_id
        self._response_bytes_max = response_bytes_max
        self._next_id = 0
        self._outgoing: list[bytes] = []
        self._pending: deque[Call[Any]] = deque()
        self._buffer = bytearray(BUFFER_BYTES)
        self._buffers = BufferPool()
        self._filled = 0
        self._wanted = _LENGTH_BYTES
        """Bytes at which the first frame in the buffer is whole, or its length is known."""
        self._own: Call[Any] = self._submit(_greeting(), KAFKA_RANGES[Api.API_VERSIONS].max)
        """The last request of the greeting or of a log-in."""

    @property
    def pending(self) -> int:
        """Requests in flight."""
        return len(self._pending) + len(self._held)

    def version_for(self, request: Request[Any]) -> int:
        """The highest version that the broker and the request have in common."""
        api = request.api
        theirs = self.versions.get(api)
        if theirs is None:
            raise NotServed(f"{self.peer} does not serve {api.label}")
        version = min(theirs.max, request.version_max)
        if version < max(theirs.min, request.version_min):
            raise NotServed(
                f"{self.peer} serves {api.label} {theirs.min} to {theirs.max}, "
                f"expected one of {request.version_min} to {request.version_max}"
            )
        return version

    def send(self, request: Request[T]) -> Call[T]:
        if not self.is_ready:
            raise RuntimeError("the broker has not been greeted yet")
        version = self.version_for(request)
        if self._renew_ms is not None and self._now_ms() >= self._renew_ms:
            self._begin_login()
        if self._steps is None:
            return self._submit(request, version)
        call = Call(request, version, -1)
        self._held.append((call, request.write(version)))
        call.is_done = not request.has_response
        return call

    def _submit(self, request: Request[T], version: int) -> Call[T]:
        call = Call(request, version, -1)
        self._transmit(call, request.write(version))
        return call

    def _transmit(self, call: Call[Any], body: bytes) -> None:
        request = call.request
        call.correlation_id = self._next_id
        self._next_id = 0 if self._next_id == _CORRELATION_ID_MAX else self._next_id + 1
        self._outgoing.append(
            request_frame(request.api, call.version, call.correlation_id, self._client_id, body)
        )
        if request.has_response:
            self._pending.append(call)
        else:
            call.is_done = True

    def take(self) -> bytes:
        """Remove and return the bytes to send."""
        outgoing = b"".join(self._outgoing)
        self._outgoing.clear()
        return outgoing

    def room(self) -> memoryview:
        """The buffer to receive into; call `received` with the number of bytes."""
        if self._filled == len(self._buffer):
            # Memory for a frame grows as its bytes arrive: its length field may be wrong.
            grown = self._buffers.take_or_make(min(self._wanted, max(BELIEVED_BYTES, 4 * self._filled)))
            grown[: self._filled] = self._buffer
            self._buffer = grown
        return memoryview(self._buffer)[self._filled :]

    def received(self, count: int) -> list[Call[Any]]:
        """Process received bytes; return the calls that are answered now."""
        self._filled += count
        if self._filled < self._wanted:
            return []
        whole = memoryview(self._buffer)[: self._filled]
        is_copied = self._filled <= COPIED_BYTES
        if is_copied:
            whole = memoryview(bytes(whole))
        frames, rest_at, wanted = cut_frames(whole, 0, len(whole), self._response_bytes_max)
        rest = whole[rest_at:]
        if not is_copied or wanted > len(self._buffer):
            # The replies keep slices of the old one.
            old, size = self._buffer, max(BUFFER_BYTES, len(rest), min(wanted, BELIEVED_BYTES))
            self._buffer = self._buffers.take_or_make(size)
            self._buffers.keep(old)
        self._buffer[: len(rest)] = rest
        self._filled, self._wanted = len(rest), wanted or _LENGTH_BYTES
        answered = [self._answer(frame) for frame in frames]
        return [call for call in answered if call is not None]

    def _answer(self, frame: memoryview) -> Call[Any] | None:
        if not self._pending:
            raise MalformedResponse(f"{self.peer} sent {len(frame)} bytes that answer nothing")
        call = self._pending[0]
        api = call.request.api
        correlation_id, body_at = parse_response_header(frame, api, call.version)
        if correlation_id != call.correlation_id:
            raise MalformedResponse(
                f"{self.peer} answered request {correlation_id}, expected {call.correlation_id} ({api.label})"
            )
        self._pending.popleft()
        body = frame[body_at:]
        if call is self._own:
            if api is Api.API_VERSIONS:
                self._be_greeted(call, body)
            else:
                self._advance_login(call.request.read(body, call.version))
            return None
        try:
            call.reply = call.request.read(body, call.version)
        except RequestRejected as error:
            call.error = error
        call.is_done = True
        return call

    def _be_greeted(self, call: Call[Any], body: memoryview) -> None:
        is_refused = len(body) >= 2 and int.from_bytes(body[:2], "big") == ErrorCode.UNSUPPORTED_VERSION
        reply = read_response(Api.API_VERSIONS, 0 if is_refused else call.version, body)
        theirs = {each.api_key: VersionRange(each.min_version, each.max_version) for each in reply.api_keys}
        if is_refused:
            served = theirs.get(Api.API_VERSIONS, VersionRange(0, 0))
            if served.max >= call.version:
                raise refused(f"{self.peer} greeted in version {call.version}", int(reply.error_code))
            self._own = self._submit(call.request, max(0, served.max))
            return
        if reply.error_code:
            raise refused(f"{self.peer} asked for its versions", int(reply.error_code))
        self.versions = theirs
        if self._login is None:
            self.is_ready = True
        else:
            self._begin_login()

    def _begin_login(self) -> None:
        assert self._login is not None
        self._renew_ms = None
        self._steps = log_in(self.peer, self._login)
        self._advance_login(None)

    def _advance_login(self, reply: Any) -> None:
        assert self._steps is not None
        try:
            request = self._steps.send(reply)
        except StopIteration as end:
            self._logged_in(end.value)
        else:
            self._begun_ms = self._now_ms()
            self._own = self._submit(request, self.version_for(request))

    def _logged_in(self, session_ms: float) -> None:
        self._steps = None
        # The broker counts from when it had the last request of the log-in, which is after this client sent it.
        self._renew_ms = self._begun_ms + SESSION_SHARE * session_ms if session_ms > 0 else None
        self.is_ready = True
        held, self._held = self._held, []
        for call, body in held:
            self._transmit(call, body)

    def fail(self, error: KafkaError) -> None:
        """The connection has ended: fail all pending calls."""
        for call in (*self._pending, *(call for call, _ in self._held)):
            call.error = error
            call.is_done = True
        self._pending.clear()
        self._held.clear()
