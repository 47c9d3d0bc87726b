"""Connections of the doors beside the Kafka port: HTTP and the line protocol.

A connection is the `Wire` of one `Conversation`. It receives into the tick's chunk and sends once per tick, after the
logs are written, as Kafka connections do. Connection limits and idle timeouts are shared with them.

The protocols take longer to load than the node takes to start. They are loaded on a thread while Kafka clients are
already served; early clients wait in the kernel's queue.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol, cast

from penstock.base.client_memory import MOVES, UNCOUNTED_BYTES
from penstock.handlers.sasl import LOGIN_MS_MAX
from penstock.handlers.support.context import Session
from penstock.server.connection import TLS_HANDSHAKE
from penstock.server.door_config import REGISTRY, listener_of
from penstock.server.loop_tick import LoopTick
from penstock.server.process import give_back_freed_memory

if TYPE_CHECKING:
    from penstock.gateway.shared.door_logins import DoorLogins
    from penstock.gateway.shared.gateway import Gateway
    from penstock.gateway.shared.wire import Conversation, ProtocolServer
    from penstock.handlers.support.context import Context
    from penstock.server.connections import Connections

logger = logging.getLogger(__name__)

HTTP, LINE = "http", "line"

OUT_BYTES_MAX = 64 * 1024
"""Unsent bytes of one client from which the connection counts as full."""

UNSENT_BYTES_MAX = 128 * 1024
"""Unsent bytes in the kernel per client (TCP_NOTSENT_LOWAT). The default is megabytes, which would be read and encoded
as JSON for clients that never take them."""

UNTAKEN_BYTES_MAX = 16 * 1024
"""Bytes in the transport from which the client counts as not reading."""

UNFINISHED_MS_MAX = 30_000
"""Time limit for the rest of a request, line or message; extended while it arrives at `UNFINISHED_BYTES_A_SECOND`."""

UNFINISHED_BYTES_A_SECOND = 500
"""As with Apache's `RequestReadTimeout`. Real clients are faster; holding connections costs an attacker traffic."""


class DoorNode(Protocol):
    """The node behind a door."""

    context: "Context"

    def open_gateway(self) -> "Gateway":
        """The gateway of a broker, started."""

    def door_logins(self, name: str) -> "DoorLogins | None":
        """What the clients of a door log in with; None if they need not."""


MakeDoor = Callable[[DoorNode], "ProtocolServer"]


def load(names: Iterable[str], *, is_broker: bool = True) -> dict[str, MakeDoor]:
    """Import the code behind these doors. A node that is only a controller has no gateway: its HTTP door serves health
    and metrics."""
    if not is_broker:
        return dict.fromkeys(names, _load_operations())
    loaders = {HTTP: _load_http, LINE: _load_line, REGISTRY: _load_registry}
    return {name: loaders[name]() for name in names}


def _load_operations() -> MakeDoor:
    from penstock.gateway.http import operations  # noqa: PLC0415  # loaded on a thread, after the start
    from penstock.gateway.http.protocol.routing import Router  # noqa: PLC0415
    from penstock.gateway.http.server import HttpServer  # noqa: PLC0415

    router = Router(operations.ROUTES)
    return lambda node: HttpServer(node, router, give_back_freed_memory, node.door_logins(HTTP))


def _load_http() -> MakeDoor:
    from penstock.gateway.http.protocol.routing import Router  # noqa: PLC0415
    from penstock.gateway.http.routes import FRONT, all_routes  # noqa: PLC0415
    from penstock.gateway.http.schemas import PREFIX, registry_routes  # noqa: PLC0415
    from penstock.gateway.http.server import HttpServer  # noqa: PLC0415  # loaded on a thread, after the start

    router = Router((*all_routes(), *FRONT, *registry_routes(PREFIX)))
    return lambda node: HttpServer(
        node.open_gateway(), router, give_back_freed_memory, node.door_logins(HTTP)
    )


def _load_registry() -> MakeDoor:
    from penstock.gateway.http.protocol.routing import Router  # noqa: PLC0415
    from penstock.gateway.http.schemas import registry_routes  # noqa: PLC0415
    from penstock.gateway.http.schemas.dialect import DIALECT  # noqa: PLC0415
    from penstock.gateway.http.server import HttpServer  # noqa: PLC0415

    router = Router(registry_routes(), DIALECT)
    return lambda node: HttpServer(
        node.open_gateway(), router, give_back_freed_memory, node.door_logins(REGISTRY), has_console=False
    )


def _load_line() -> MakeDoor:
    from penstock.gateway.line.conversation import LineServer  # noqa: PLC0415

    return lambda node: LineServer(node.open_gateway(), node.door_logins(LINE))


class DoorConnection(asyncio.BufferedProtocol):
    """A `Wire`. Beneath it may be TLS (`server/tls.py`)."""

    session: Session

    __slots__ = (
        "_conversation",
        "_door",
        "_idle_looks",
        "_is_closing",
        "_is_finished",
        "_is_paused",
        "_is_sending",
        "_is_silent",
        "_is_stopped",
        "_moved",
        "_out",
        "_out_bytes",
        "_owner",
        "_received_ns",
        "_tick",
        "_transport",
        "_unfinished",
        "_unfinished_bytes",
        "_unfinished_since_ns",
        "_written_bytes",
        "door",
        "is_local",
        "listener",
        "peer",
        "session",
    )

    def __init__(
        self, tick: LoopTick, door: "ProtocolServer", owner: "Connections", name: str = HTTP
    ) -> None:
        """`name` is the door's name in the metrics."""
        self.door = name
        self.listener = listener_of(name)
        """Its name among listeners."""
        self._tick = tick
        self._door = door
        self._owner = owner
        self.peer = "?"
        self.is_local = False
        self._conversation: Conversation | None = None
        self._transport: asyncio.Transport | None = None
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._written_bytes = 0
        """Size of the last write, which the transport keeps until all of it is sent."""
        self._moved = 0
        """For `moved_bytes`: bytes not taken at the last call."""
        self._is_sending = False
        """The connection sends at the end of the tick."""
        self._is_closing = False
        self._is_finished = False
        """The client has closed its sending side."""
        self._is_paused = False
        """The client does not read."""
        self._is_stopped = False
        """Receiving is paused."""
        self._is_silent = True
        """Nothing was received yet."""
        self._idle_looks = 0
        self._received_ns = tick.clock_ns()
        """When something was last received."""
        self._unfinished: int | None = None
        """`Conversation.unfinished` at the last check."""
        self._unfinished_since_ns = 0
        """When it was first seen."""
        self._unfinished_bytes = 0
        """Bytes received since."""

    # -- asyncio callbacks ----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(UNTAKEN_BYTES_MAX)
        peer = transport.get_extra_info("peername")
        self.peer = f"{peer[0]}:{peer[1]}" if peer else "?"
        dialled = transport.get_extra_info("sockname")
        self.is_local = bool(dialled) and _is_loopback(dialled[0])
        self.session = Session("", 0, self.peer, self.listener)
        with suppress(OSError):  # the client may be gone
            transport.get_extra_info("socket").setsockopt(
                socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES_MAX
            )
        refusal = self._owner.made(self)
        if refusal is not None:
            logger.warning("connection from %s closed: %s", self.peer, refusal)
            self.close()
        else:
            self._conversation = self._door.converse(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._out = []
        self._tick.memory.keeps(self, 0)
        self.holds_before_login(0)
        conversation, self._conversation = self._conversation, None
        if conversation is not None:
            self._guard(conversation.ended)
        self._owner.lost(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        tick = self._tick
        return tick.room[: tick.memory.step] if tick.memory.is_pressed else tick.room

    def buffer_updated(self, nbytes: int) -> None:
        self._idle_looks = 0
        self._unfinished_bytes += nbytes
        conversation = self._conversation
        if conversation is None or self._is_closing:
            return
        if self._is_silent:
            self._is_silent = False
            if self._tick.room[:2] == TLS_HANDSHAKE:
                self._owner.spoke_tls(self)
                self.close()
                return
        clock_ns = self._tick.clock_ns
        began_ns = self._received_ns = clock_ns()
        try:
            conversation.received(self._tick.keep(nbytes))
        except Exception:
            self._broken()
        self._tick.metrics.handled(self.door, began_ns, clock_ns())

    def eof_received(self) -> bool:
        conversation = self._conversation
        if conversation is None or self._is_closing:
            return False
        if self._is_finished:  # with TLS, its end and that of the connection
            return True
        self._is_finished = True
        self._guard(conversation.finished)
        self._close_if_finished()
        return True

    def pause_writing(self) -> None:
        self._is_paused = True
        self._report()

    def resume_writing(self) -> None:
        self._is_paused = False
        self._idle_looks = 0
        self._moved = MOVES
        self._report()
        self._drained()

    # -- memory ---------------------------------------------------------------------------------

    def _report(self) -> None:
        """Report the bytes kept for this client to `ClientMemory`."""
        kept = 0
        if self._is_paused and self._transport is not None:
            kept = max(self._written_bytes, self._transport.get_write_buffer_size()) + self._out_bytes
        self._tick.memory.keeps(self, kept if kept > UNCOUNTED_BYTES else 0)

    def moved_bytes(self) -> int:
        """Bytes taken since the last call."""
        before = self._moved
        self._moved = 0 if self._transport is None else self._transport.get_write_buffer_size()
        return max(before - self._moved, 0)

    def may_grow(self) -> None:
        """Nothing to do: the protocol bounds what a client can send."""

    # -- `Wire` -----------------------------------------------------------------------

    @property
    def is_full(self) -> bool:
        return self._is_paused or self._out_bytes > OUT_BYTES_MAX

    def send(self, data: bytes) -> None:
        if self._transport is None or self._is_closing:
            return
        self._out.append(data)
        self._out_bytes += len(data)
        if not self._is_sending:
            self._is_sending = True
            self._tick.send_later(self)

    def close(self) -> None:
        """Close after the output is sent, which follows this tick's writes."""
        self._is_closing = True
        if self._transport is not None and not self._is_sending:
            self._transport.close()

    def delay(self, delay_ms: int, *, closes: bool) -> None:
        """A new connection is above a limit: receive nothing before this time, or close then."""
        self.stop_reading()
        self._tick.call_later(delay_ms, self.abort if closes else self.go_on_reading)

    def stop_reading(self) -> None:
        if not self._is_stopped:
            self._is_stopped = True
            if self._transport is not None and not self._is_finished:
                self._transport.pause_reading()

    def go_on_reading(self) -> None:
        if self._is_stopped:
            self._is_stopped = False
            transport = self._transport
            if transport is not None and not self._is_finished and not transport.is_closing():
                transport.resume_reading()

    def holds_before_login(self, count: int) -> None:
        if not self._owner.login_memory.holds(self, count):
            logger.debug("connection from %s closed: no room for clients that have not logged in", self.peer)
            self.abort()

    # -- sending ---------------------------------------------------------------------------------------

    def send_now(self) -> None:
        self._is_sending = False
        was_full = self._out_bytes > OUT_BYTES_MAX
        out, self._out = self._out, []
        self._written_bytes, self._out_bytes = self._out_bytes, 0
        transport = self._transport
        if transport is None:
            return
        if len(out) == 1:
            transport.write(out[0])
        else:
            transport.writelines(out)
        if self._is_paused:
            self._report()
        if self._is_closing:
            transport.close()
            return
        if was_full:
            self._drained()
        self._close_if_finished()

    def _drained(self) -> None:
        if self._conversation is not None and not self.is_full:
            self._guard(self._conversation.drained)

    def _close_if_finished(self) -> None:
        """Close if the client has closed its sending side and has all replies."""
        if (
            self._is_finished
            and not self._out
            and self._conversation is not None
            and self._conversation.is_idle
        ):
            self.close()

    # -- errors -------------------------------------------------------------------------------

    def _guard(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception:
            self._broken()

    def _broken(self) -> None:
        """Close after an unexpected error in the conversation."""
        logger.exception("unexpected error while handling data from %s", self.peer)
        self.close()

    # -- for `Connections` ---------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        """The client's address, without its port."""
        return self.peer.rpartition(":")[0]

    @property
    def is_closing(self) -> bool:
        """Whether `close` was called; the connection ends when everything is sent."""
        return self._is_closing

    def idle_looks(self) -> int:
        """Number of checks, including this one, since the client last sent something or was answered."""
        if self._conversation is not None and not self._conversation.is_idle and not self._is_paused:
            self._idle_looks = 0
        self._idle_looks += 1
        return self._idle_looks

    def look_at_unfinished(self, now_ns: int) -> None:
        """Give up on a partial request that takes too long."""
        conversation = self._conversation
        if conversation is None or self._is_closing:
            return
        if (
            conversation.is_guest
            and conversation.is_idle
            and now_ns - self._received_ns >= LOGIN_MS_MAX * 1_000_000
        ):
            logger.debug("connection from %s closed: it did not log in", self.peer)
            self.close()
            return
        unfinished = conversation.unfinished
        if unfinished is None or unfinished != self._unfinished:
            self._unfinished = unfinished
            self._unfinished_since_ns = now_ns
            self._unfinished_bytes = 0
            return
        age_ms = (now_ns - self._unfinished_since_ns) // 1_000_000
        if age_ms >= UNFINISHED_MS_MAX + self._unfinished_bytes * 1000 // UNFINISHED_BYTES_A_SECOND:
            logger.debug("connection from %s closed: a partial request took too long", self.peer)
            self._guard(conversation.give_up_waiting)

    def abort(self) -> None:
        """Close at once, as a crash would."""
        if self._transport is not None:
            self._transport.abort()


def _is_loopback(address: str) -> bool:
    return address.startswith(("127.", "::ffff:127.")) or address == "::1"
