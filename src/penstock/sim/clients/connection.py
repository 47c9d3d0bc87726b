"""One connection of a client: sends requests, matches replies in order, and times them out.

Requests made before the connection is open wait for it. A connection that was refused, lost or timed out is not used
again: its owner makes another.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from penstock.security.sasl.client import ClientLogin
from penstock.sim.checkers.history import Event as HistoryEvent
from penstock.sim.checkers.history import Overdue, Replied
from penstock.sim.clients.login_messages import (
    AUTHENTICATE_VERSION,
    HANDSHAKE_VERSION,
    Authenticated,
    sasl_authenticate,
    sasl_handshake,
)
from penstock.sim.clients.messages import R, Request
from penstock.sim.clients.ports import ClientNetwork, Connection, Scheduler
from penstock.sim.world.schedule import Event
from penstock.wire import Api, parse_response_header, request_frame
from penstock.wire.peers import Address

FRAME_BYTES_MAX = 1 << 24

CONNECT_TIMEOUT_US = 4_000_000
"""Longer than a connection takes without faults."""


class BadReply(Exception):
    """A client received a malformed or unexpected reply."""


class Owner(Protocol):
    """A client, as its connections see it."""

    name: str

    def connection_open(self, connection: "RequestConnection") -> None: ...

    def login_begins(self, connection: "RequestConnection") -> None: ...

    def login_ended(self, connection: "RequestConnection", code: int) -> None:
        """The node has accepted or refused the log-in."""

    def connection_over(self, connection: "RequestConnection") -> None:
        """The connection was refused, lost or timed out; its open requests have failed."""

    def reply_arrived(self, connection: "RequestConnection") -> None:
        """Called before each reply is handled."""

    def record(self, event: HistoryEvent) -> None: ...


@dataclass
class Pending:
    correlation_id: int
    api: Api
    version: int
    on_reply: Callable[[memoryview], None]
    on_lost: Callable[[], None]
    timer: Event


class RequestConnection:
    """Implements `NetworkClient`."""

    def __init__(
        self,
        owner: Owner,
        network: ClientNetwork,
        schedule: Scheduler,
        to: Address,
        timeout_us: int,
        login: ClientLogin | None = None,
    ) -> None:
        self.to = to
        self.login = login
        """With what it logs in before it sends requests."""
        self.link: Connection | None = None
        """Set once it is open; still set after it has ended."""
        self.is_over = False
        self._owner = owner
        self._schedule = schedule
        self._timeout_us = timeout_us
        self._pending: deque[Pending] = deque()
        self._received = bytearray()
        self._unsent: list[bytes] = []
        """Requests that wait until the connection is open, and logged in."""
        self._is_logged_in = login is None
        self._correlation_id = 0
        self._patience = schedule.later(CONNECT_TIMEOUT_US, self._give_up)
        network.connect(self, to)

    # -- requests --------------------------------------------------------------------------------------

    def call(
        self, request: Request[R], version: int, on_reply: Callable[[R], None], on_lost: Callable[[], None]
    ) -> None:
        """Send a request; then either `on_reply` or `on_lost` is called, once."""
        self._expect(request, version, on_reply, on_lost, self._pending.append)
        self.send_only(request, version)

    def _expect(
        self,
        request: Request[R],
        version: int,
        on_reply: Callable[[R], None],
        on_lost: Callable[[], None],
        add: Callable[[Pending], None],
    ) -> None:
        """Wait for the reply of the request that is sent next."""
        number = self._correlation_id + 1
        what = f"{request.api.label} {version} with id {number}"
        now_us = self._schedule.now_us
        timer = self._schedule.later(self._timeout_us, lambda: self._time_out(what, now_us))

        def read(body: memoryview) -> None:
            on_reply(request.decode(version, body))

        add(Pending(number, request.api, version, read, on_lost, timer))

    def send_only(self, request: Request[R], version: int) -> None:
        """Send a request that has no reply."""
        frame = self._frame(request, version)
        if self.link is None or not self._is_logged_in:
            self._unsent.append(frame)
        else:
            self.link.send(frame)

    def _frame(self, request: Request[R], version: int) -> bytes:
        self._correlation_id += 1
        return request_frame(
            request.api, version, self._correlation_id, self._owner.name, request.encode(version)
        )

    def _time_out(self, what: str, sent_us: int) -> None:
        link = self.link
        # A process that is paused, or cut off, need not answer.
        is_there = link is not None and link.is_node_there and link.disturbed_us < sent_us
        self._owner.record(Overdue(self._owner.name, what, is_there))
        self._give_up()

    # -- called by the network -------------------------------------------------------------------------

    def connected(self, link: Connection) -> None:
        self._patience.cancel()
        if self.is_over:
            link.close()
            return
        self.link = link
        if self.login is None:
            self._open()
        else:
            self._log_in(self.login)

    def _open(self) -> None:
        assert self.link is not None
        for frame in self._unsent:
            self.link.send(frame)
        self._unsent.clear()
        self._owner.connection_open(self)

    # -- log-in ----------------------------------------------------------------------------------------

    def _log_in(self, login: ClientLogin) -> None:
        exchange = login.begin()

        def shaken(code: int) -> None:
            if code:
                self._end_login(code)
            else:
                send(exchange.first())

        def send(token: bytes) -> None:
            self._call_first(sasl_authenticate(token), AUTHENTICATE_VERSION, answered)

        def answered(answer: Authenticated) -> None:
            token = None if answer.code else exchange.respond(answer.token)
            if token is None:
                self._end_login(answer.code)
            else:
                send(token)

        self._owner.login_begins(self)
        self._call_first(sasl_handshake(login.mechanism), HANDSHAKE_VERSION, shaken)

    def _call_first(self, request: Request[R], version: int, on_reply: Callable[[R], None]) -> None:
        """Send a request of the log-in, before all others."""
        assert self.link is not None
        self._expect(request, version, on_reply, lambda: None, self._pending.appendleft)
        self.link.send(self._frame(request, version))

    def _end_login(self, code: int) -> None:
        self._owner.login_ended(self, code)
        if code:
            self._give_up()
        elif not self.is_over:
            self._is_logged_in = True
            self._open()

    def refused(self) -> None:
        self._give_up()

    def closed(self, link: Connection) -> None:
        self._give_up()

    def received(self, link: Connection, data: bytes) -> None:
        if self.is_over:
            return
        self._received += data
        while not self.is_over and len(self._received) >= 4:
            length = int.from_bytes(self._received[:4], "big", signed=True)
            if not 4 <= length <= FRAME_BYTES_MAX:
                raise BadReply(f"{self._owner.name} received a frame with a length of {length} bytes")
            if len(self._received) < 4 + length:
                return
            frame = memoryview(bytes(self._received))[4 : 4 + length]
            del self._received[: 4 + length]
            self._handle_reply(link, frame)

    def _handle_reply(self, link: Connection, frame: memoryview) -> None:
        found = int.from_bytes(frame[:4], "big", signed=True)
        expected = self._pending[0].correlation_id if self._pending else -1
        self._owner.record(Replied(self._owner.name, link.number, expected, found))
        pending = self._pending.popleft()
        pending.timer.cancel()
        _, body_at = parse_response_header(frame, pending.api, pending.version)
        self._owner.reply_arrived(self)
        pending.on_reply(frame[body_at:])

    # -- the end ---------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the connection, and call `on_lost` for each open request."""
        if self.is_over:
            return
        self.is_over = True
        self._patience.cancel()
        if self.link is not None:
            self.link.close()
        pending, self._pending = self._pending, deque()
        for each in pending:
            each.timer.cancel()
        for each in pending:
            each.on_lost()

    def _give_up(self) -> None:
        if not self.is_over:
            self.close()
            self._owner.connection_over(self)
