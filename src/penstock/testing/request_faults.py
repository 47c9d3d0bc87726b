"""Requests that fail on purpose: answered with an error, answered late, or not answered at all.

    with broker.fail("Produce", error="NOT_LEADER_OR_FOLLOWER", times=3) as fault:
        producer.produce("orders", b"1")
        producer.flush()
    assert fault.hits == 3

A fault sits between connections and the dispatcher. It sees every request of a Kafka client before the broker does.
The test sets faults from its thread; the broker's thread reads them.
"""

from collections.abc import Callable
from typing import Any, Final, cast

from penstock.base.errors import ErrorCode
from penstock.base.promise import Promise
from penstock.base.world import World
from penstock.handlers.support.context import Session
from penstock.handlers.support.replies import NO_REPLY, Reply
from penstock.server.connection import Dispatcher
from penstock.testing.error_responses import error_response, topic_names, with_topic_error
from penstock.wire import (
    Api,
    Buffer,
    Piece,
    RequestHeader,
    parse_header,
    read_request,
    read_response,
    response_frame,
    write_response,
)
from penstock.wire.frames import LENGTH_BYTES, parse_response_header

_BY_LABEL: Final = {each.label.lower(): each for each in Api} | {each.name.lower(): each for each in Api}

Act = Callable[["FaultedRequest"], Reply]


class Fault:
    """A fault of some requests. It ends after `times` requests, with `cancel`, or at the end of its `with` block."""

    def __init__(
        self,
        act: "Act",
        api: Api | None,
        times: int | None,
        topic: str | None,
        client_id: str | None,
    ) -> None:
        self.hits = 0
        """Number of requests that it was applied to."""
        self.act = act
        self._api = api
        self._left = times
        self._topic = topic
        self._client_id = client_id

    def __enter__(self) -> "Fault":
        return self

    def __exit__(self, *_: object) -> None:
        self.cancel()

    @property
    def is_over(self) -> bool:
        return self._left == 0

    def cancel(self) -> None:
        """End the fault."""
        self._left = 0

    def applies_to(self, request: "FaultedRequest") -> bool:
        """Return whether the fault applies to this request, and count it."""
        if self._left == 0 or self._api not in (None, request.header.api_key):
            return False
        if self._client_id is not None and request.header.client_id != self._client_id:
            return False
        if self._topic is not None and not request.names(self._topic):
            return False
        if self._left is not None:
            self._left -= 1
        self.hits += 1
        return True


class RequestFaults:
    """The faults of one broker. They survive a restart."""

    def __init__(self) -> None:
        self._faults: tuple[Fault, ...] = ()

    @property
    def current(self) -> tuple[Fault, ...]:
        return self._faults

    def add(self, act: "Act", api: str, times: int | None, topic: str | None, client_id: str | None) -> Fault:
        fault = Fault(act, api_of(api), times, topic, client_id)
        self._faults = (*(each for each in self._faults if not each.is_over), fault)
        return fault

    def clear(self) -> None:
        for fault in self._faults:
            fault.cancel()
        self._faults = ()


class FaultyDispatcher:
    """Passes requests to the broker's dispatcher, unless a fault applies."""

    def __init__(
        self,
        inner: Dispatcher,
        faults: RequestFaults,
        world: World,
        topic_id: Callable[[str], bytes | None],
    ) -> None:
        """`topic_id` returns a topic's id, which newer versions of Produce and Fetch use."""
        self.inner = inner
        self.world = world
        self.topic_id = topic_id
        self._faults = faults

    def dispatch(self, session: Session, frame: memoryview) -> Reply:
        if self._faults.current:
            request = FaultedRequest(self, session, frame, parse_header(frame))
            for fault in self._faults.current:
                if fault.applies_to(request):
                    return fault.act(request)
        return self.inner.dispatch(session, frame)

    def closed(self, session: Session) -> None:
        self.inner.closed(session)


class FaultedRequest:
    """One request, as a fault sees it."""

    def __init__(
        self, at: FaultyDispatcher, session: Session, frame: memoryview, header: RequestHeader
    ) -> None:
        self.header = header
        self._at = at
        self._session = session
        self._frame = frame

    def _request(self) -> Any:
        header = self.header
        return read_request(Api(header.api_key), header.api_version, self._frame[header.body_at :])

    def names(self, topic: str) -> bool:
        """Return whether the request contains the topic, by name or id."""
        mentioned = {each.bytes if hasattr(each, "bytes") else each for each in topic_names(self._request())}
        return topic in mentioned or self._at.topic_id(topic) in mentioned - {None}

    def _handle(self) -> Reply:
        return self._at.inner.dispatch(self._session, self._frame)

    def refuse(self, code: ErrorCode) -> Reply:
        """Reply with the error. The broker does not see the request, except for Metadata, which changes nothing."""
        api, version = Api(self.header.api_key), self.header.api_version
        if api is Api.METADATA:
            return _then(self._handle(), lambda frame: self._with_topic_error(frame, code))
        request = self._request()
        if api is Api.PRODUCE and request.acks == 0:
            return self.lose_request()  # as in Kafka: there is no reply that could carry the error
        return self._reply(write_response(api, version, error_response(api, version, request, code)))

    def _with_topic_error(self, reply: list[Piece], code: ErrorCode) -> list[Piece]:
        version = self.header.api_version
        frame = memoryview(b"".join(cast(list[Buffer], reply)))[LENGTH_BYTES:]
        _, body_at = parse_response_header(frame, Api.METADATA, version)
        response = with_topic_error(read_response(Api.METADATA, version, frame[body_at:]), code)
        return self._reply(write_response(Api.METADATA, version, response))

    def _reply(self, body: bytes) -> list[Piece]:
        api = Api(self.header.api_key)
        return [response_frame(api, self.header.api_version, self.header.correlation_id, body)]

    def hold(self, seconds: float) -> Reply:
        """Handle the request now, and delay its reply; later replies of the connection wait too."""
        later: Promise[list[Piece]] = Promise()

        def send(reply: list[Piece]) -> list[Piece]:
            self._at.world.call_later(seconds * 1000, lambda: later.resolve(reply))
            return reply

        return NO_REPLY if _then(self._handle(), send) is NO_REPLY else later

    def lose_request(self) -> Reply:
        self._session.end("a test dropped it before its request was handled")
        return NO_REPLY

    def lose_reply(self) -> Reply:
        self._handle()
        self._session.end("a test dropped it before its reply was sent")
        return NO_REPLY


def _then(reply: Reply, change: Callable[[list[Piece]], list[Piece]]) -> Reply:
    """Apply a function to a reply, now or once it is ready."""
    if isinstance(reply, list):
        return change(reply)
    if not isinstance(reply, Promise):
        return reply
    changed: Promise[list[Piece]] = Promise()
    reply.then(lambda frames: changed.resolve(change(frames)))
    return changed


def api_of(name: str) -> Api | None:
    """Return an API by Kafka's name; None for "*", which means all."""
    if name == "*":
        return None
    found = _BY_LABEL.get(name.lower())
    if found is None:
        known = ", ".join(sorted(each.label for each in Api))
        raise ValueError(f"{name!r} is not a Kafka API. Expected '*' or one of: {known}")
    return found


def error_of(name: str) -> ErrorCode:
    try:
        return ErrorCode[name.upper()]
    except KeyError:
        known = ", ".join(sorted(each.name for each in ErrorCode))
        raise ValueError(f"{name!r} is not a Kafka error. Expected one of: {known}") from None
