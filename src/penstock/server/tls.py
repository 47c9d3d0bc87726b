"""TLS beneath a connection, of Kafka or of a door: decrypts what is received, encrypts what is sent, and nothing else.

    socket --> TlsConnection.buffer_updated --> decrypt --> Connection.buffer_updated
    socket <-- transport.writelines <---------- encrypt <-- Connection: transport.writelines

A `TlsConnection` is the protocol of the socket and the transport of its `Connection`. All bounds of `Connection` hold
as without TLS: what is written is encrypted at once and given to the socket's transport, whose buffer, limits and
pauses are those that the connection sees. Nothing is decrypted while the connection does not receive. OpenSSL's
buffers are filled in steps of one TLS record, and keep their size: some 40 KB for each connection that has moved that
much.

The connection is counted and limited from the moment it is accepted. Until the handshake is done nothing reaches it,
and the handshake has `HANDSHAKE_MS_MAX`. Handshakes cost a millisecond each: in one pass of the loop they take
`HANDSHAKES_NS_MAX`, and the others wait for the next, after everybody else.

Changed keys and certificates (`file_watch.py`) are used for new connections. If they are broken, the old ones stay in
use.
"""

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from penstock.base.metrics import Metrics
from penstock.base.settings import BadSetting
from penstock.base.world import Timer, World
from penstock.handlers.support.context import ANONYMOUS, Session
from penstock.security.principal_mapping import mapper
from penstock.security.x509 import BadCertificate, not_after, subject
from penstock.server.file_watch import FileWatch
from penstock.server.log_limit import LogLimit
from penstock.server.loop_tick import LoopTick
from penstock.server.tls_config import TlsConfig
from penstock.server.tls_context import Loaded, load
from penstock.wire import Buffer

if TYPE_CHECKING:
    from penstock.security.audit import AuditLog

logger = logging.getLogger(__name__)

HANDSHAKE_MS_MAX: Final = 10_000
"""Time limit of a handshake, which takes two round trips."""

HANDSHAKES_NS_MAX: Final = 5_000_000
"""Time for handshakes in one pass of the loop."""

HANDSHAKE_BYTES_MAX: Final = 256 * 1024
"""Bytes of a handshake. A client's certificate chain has some kilobytes; OpenSSL takes 100 KB of it."""

RECORD_BYTES: Final = 16 * 1024
"""The most plain text in a TLS record."""

RECEIVE_BYTES: Final = 64 * 1024
"""Encrypted bytes per receive, into a buffer that all connections share."""

TLS: Final = "TLS"
"""The mechanism of log-ins with certificates, for the audit."""

EXPIRES_SOON_DAYS: Final = 7

_DAY_S: Final = 86_400

_HANDSHAKE_RECORD: Final = 0x16
"""The first byte of everything that a TLS client sends first."""

_REASONS: Final = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client has no certificate, which ssl.client.auth requires",
    "TLSV1_ALERT_UNKNOWN_CA": "the client does not trust this node's certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the client does not accept this node's certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the client does not accept this node's certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the client says that this node's certificate has expired",
    "UNSUPPORTED_PROTOCOL": "the client has no version of TLS in ssl.enabled.protocols",
    "NO_SHARED_CIPHER": "the client and this node have no cipher suite in common",
}

_NEEDED_BY_KAFKA: Final = "security.protocol=SSL or SASL_SSL"
_NEEDED: Final = {"HTTP": "https://", "LINE": "TLS, such as `openssl s_client` or `ncat --ssl`"}
"""What a client without TLS lacks, by the listener."""


class TlsListeners:
    """The listeners of a node that have TLS."""

    def __init__(
        self,
        world: World,
        tick: LoopTick,
        metrics: Metrics,
        configs: Mapping[str, TlsConfig],
        audit: "AuditLog | None" = None,
    ) -> None:
        """Load keys and certificates. Raises `BadSetting`."""
        self._world = world
        self._tick = tick
        self._room = memoryview(bytearray(RECEIVE_BYTES))
        self._handshakes = _Handshakes(world)
        self._of = {name: TlsListener(world, metrics, config, audit) for name, config in configs.items()}

    def __contains__(self, listener: str) -> bool:
        return listener in self._of

    def wrap(self, connection: "Wrapped") -> "TlsConnection":
        """The protocol of a client that has just connected."""
        return TlsConnection(
            self._world,
            self._tick,
            self._room,
            self._handshakes,
            self._of[connection.listener],
            connection,
        )

    def start(self) -> None:
        for each in self._of.values():
            each.start()

    def stop(self) -> None:
        for each in self._of.values():
            each.stop()


class TlsListener:
    """Keys and certificates of one listener."""

    def __init__(
        self, world: World, metrics: Metrics, config: TlsConfig, audit: "AuditLog | None" = None
    ) -> None:
        self.audit = audit
        self._world = world
        self._config = config
        self.failures = LogLimit(world)
        self.name_of = mapper(config.mapping_rules, config.mapping_setting)
        self.is_principal_by_log_in = config.is_principal_by_log_in
        self.meter = metrics.tls_listener(config.listener)
        self._files = FileWatch(
            world, config.files, lambda: load(config), self._reloaded, self._reload_failed
        )
        self._use(self._files.first())

    @property
    def name(self) -> str:
        return self._config.listener

    def _use(self, loaded: Loaded) -> None:
        self.context = loaded.context
        """For new connections."""
        self.meter.not_after_ms = int(loaded.not_after.timestamp() * 1000)
        self.meter.is_stale = False
        days = (self.meter.not_after_ms - self._world.now_ms()) // (_DAY_S * 1000)
        level = logging.INFO if days >= EXPIRES_SOON_DAYS else logging.WARNING
        logger.log(
            level,
            "listener %s has the certificate of %s, which %s in %d days, on %s",
            self.name,
            loaded.subject,
            "expires" if days >= 0 else "expired",
            days,
            loaded.not_after.date(),
        )

    # -- changed files -------------------------------------------------------------------------

    def start(self) -> None:
        self._files.start()

    def stop(self) -> None:
        self._files.stop()

    def _reloaded(self, loaded: Loaded) -> None:
        self.meter.reloads += 1
        self._use(loaded)

    def _reload_failed(self, error: Exception) -> None:
        self.meter.reload_errors += 1
        self.meter.is_stale = True
        logger.error(
            "listener %s keeps its old key and certificates, because the new ones cannot be used: %s",
            self.name,
            error,
            exc_info=None if isinstance(error, BadSetting) else error,
        )


# -- handshakes ----------------------------------------------------------------------------------------


class _Handshakes:
    """Spreads handshakes over passes of the loop."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._spent_ns = 0
        """In this pass of the loop."""
        self._is_scheduled = False
        self._waiting: deque[TlsConnection] = deque()

    def step(self, connection: "TlsConnection") -> None:
        """Go on with a handshake now, or when those that wait longer had their turn."""
        if self._waiting or self._spent_ns > HANDSHAKES_NS_MAX:
            connection.wait_for_turn()
            self._waiting.append(connection)
        else:
            self._run(connection)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._world.call_soon(self._next)

    def _run(self, connection: "TlsConnection") -> None:
        began_ns = self._world.clock_ns()
        connection.handshake()
        self._spent_ns += self._world.clock_ns() - began_ns

    def _next(self) -> None:
        self._is_scheduled = False
        self._spent_ns = 0
        while self._waiting and self._spent_ns <= HANDSHAKES_NS_MAX:
            self._run(self._waiting.popleft())
        if self._waiting:
            self._is_scheduled = True
            self._world.call_soon(self._next)


# -- connections ---------------------------------------------------------------------------------------


class Wrapped(Protocol):
    """The connection above TLS."""

    listener: str
    session: Session

    def connection_made(self, transport: asyncio.BaseTransport) -> None: ...

    def connection_lost(self, exc: Exception | None) -> None: ...

    def get_buffer(self, sizehint: int) -> memoryview: ...

    def buffer_updated(self, nbytes: int) -> None: ...

    def eof_received(self) -> bool: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...


class TlsConnection(asyncio.BufferedProtocol):
    __slots__ = (
        "_connection",
        "_handshake_bytes",
        "_handshakes",
        "_incoming",
        "_is_established",
        "_is_failed",
        "_is_paused",
        "_is_plain",
        "_listener",
        "_outgoing",
        "_room",
        "_tick",
        "_timer",
        "_tls",
        "_transport",
        "_unread",
        "_world",
    )

    def __init__(
        self,
        world: World,
        tick: LoopTick,
        room: memoryview,
        handshakes: _Handshakes,
        listener: TlsListener,
        connection: Wrapped,
    ) -> None:
        self._world = world
        self._tick = tick
        self._room = room
        self._handshakes = handshakes
        self._listener = listener
        self._connection = connection
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = listener.context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._transport: asyncio.Transport | None = None
        self._timer: Timer | None = None
        """Ends the handshake; None once it is done."""
        self._handshake_bytes = 0
        """Received before the handshake was done."""
        self._is_plain = False
        """What came first was not TLS."""
        self._is_established = False
        self._is_failed = False
        self._is_paused = False
        """The connection above does not receive."""
        self._unread = b""
        """Encrypted bytes that were received before it paused."""

    # -- the socket's protocol -----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._timer = self._world.call_later(HANDSHAKE_MS_MAX, self._handshake_late)
        self._connection.connection_made(cast(asyncio.BaseTransport, self))

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_handshake()
        if self._handshake_bytes and not self._is_established:
            self._fail("the client closed the connection before the end of the handshake")
        self._transport = None
        self._unread = b""
        self._connection.connection_lost(exc)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._room[:RECORD_BYTES] if self._tick.memory.is_pressed else self._room

    def buffer_updated(self, nbytes: int) -> None:
        if self._is_established:
            self._feed(self._room[:nbytes])
            return
        if self._is_failed:
            return
        if not self._handshake_bytes:
            self._is_plain = self._room[0] != _HANDSHAKE_RECORD
        self._handshake_bytes += nbytes
        self._incoming.write(self._room[:nbytes])
        if self._handshake_bytes > HANDSHAKE_BYTES_MAX:
            self._fail(f"the handshake has more than {HANDSHAKE_BYTES_MAX} bytes")
        else:
            self._handshakes.step(self)

    def eof_received(self) -> bool:
        return self._connection.eof_received()

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()

    # -- the handshake -------------------------------------------------------------------------

    def wait_for_turn(self) -> None:
        if self._transport is not None:
            self._transport.pause_reading()

    def handshake(self) -> None:
        """Go on with what was received."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush(transport)
            if not self._is_paused:
                transport.resume_reading()
        except ssl.SSLError as error:
            self._flush(transport)  # the alert
            self._fail(self._reason(error))
        else:
            self._flush(transport)
            self._established(transport)

    def _established(self, transport: asyncio.Transport) -> None:
        self._end_handshake()
        try:
            principal = self._principal()
        except BadCertificate as error:
            self._fail(f"the subject of the client's certificate cannot be read: {error}")
            return
        if principal is None:
            return
        self._is_established = True
        self._listener.meter.handshakes += 1
        self._connection.session.principal = principal
        if self._listener.audit is not None and principal != ANONYMOUS:
            self._listener.audit.logged_in(self._connection.session, TLS)
        if not self._is_paused:
            self._go_on()

    def _principal(self) -> str | None:
        """The client's principal; None if no rule gives it a name."""
        certificate = self._tls.getpeercert(binary_form=True)
        if certificate is None:
            return ANONYMOUS
        if self._tls.session_reused and not_after(certificate).timestamp() * 1000 <= self._world.now_ms():
            # OpenSSL checks certificates in full handshakes only; sessions of TLS 1.2 can be resumed without one.
            self._fail("the client resumes a session, and its certificate has expired since")
            return None
        if self._listener.is_principal_by_log_in:
            return ANONYMOUS
        found = subject(certificate)
        name = self._listener.name_of(found)
        if name is None:
            self._fail(f"no rule of ssl.principal.mapping.rules matches the client's certificate, {found}")
            return None
        return f"User:{name}"

    def _reason(self, error: ssl.SSLError) -> str:
        if self._is_plain:
            return (
                f"the client does not use TLS; it needs {_NEEDED.get(self._listener.name, _NEEDED_BY_KAFKA)}"
            )
        if isinstance(error, ssl.SSLCertVerificationError):
            return f"the client's certificate is not valid: {error.verify_message}"
        reason = error.reason or "unknown reason"
        return _REASONS.get(reason) or f"OpenSSL says {reason.replace('_', ' ').lower()}"

    def _handshake_late(self) -> None:
        self._timer = None
        if not self._handshake_bytes:
            logger.debug("connection from %s closed: nothing received", self._connection.session.peer)
            self.abort()
        else:
            self._fail(f"the handshake took longer than {HANDSHAKE_MS_MAX // 1000} s")

    def _end_handshake(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fail(self, why: str) -> None:
        if self._is_failed:
            return
        self._is_failed = True
        self._end_handshake()
        listener = self._listener
        listener.meter.handshakes_failed += 1
        listener.failures.warning(
            logger,
            "a TLS handshake failed on listener %s, from %s: %s",
            listener.name,
            self._connection.session.peer,
            why,
        )
        if listener.audit is not None:
            listener.audit.login_failed(self._connection.session, TLS, why)
        if self._transport is not None:
            self._transport.close()

    # -- receiving -----------------------------------------------------------------------------

    def _feed(self, data: memoryview) -> None:
        """Decrypt record by record, and keep what comes after a pause."""
        for at in range(0, len(data), RECORD_BYTES):
            self._incoming.write(data[at : at + RECORD_BYTES])
            if not self._decrypt():
                self._unread = bytes(data[at + RECORD_BYTES :])
                return

    def _decrypt(self) -> bool:
        """Pass on what is complete; return whether the connection takes more."""
        connection, incoming, read = self._connection, self._incoming, self._tls.read
        try:
            while not self._is_paused and self._transport is not None:
                if not incoming.pending and not self._tls.pending():
                    return True
                room = connection.get_buffer(-1)
                size = read(len(room), cast(bytearray, room))
                if not size:
                    self._closed_by_client()
                    return False
                connection.buffer_updated(cast(int, size))
        except ssl.SSLWantReadError:
            if self._outgoing.pending and self._transport is not None:
                self._flush(self._transport)  # the answer to a KeyUpdate
            return True
        except ssl.SSLError as error:
            logger.debug("connection from %s closed: %s", connection.session.peer, error.reason)
            if self._transport is not None:
                self._flush(self._transport)  # the alert
                self._transport.close()
        return False

    def _closed_by_client(self) -> None:
        if self._transport is not None and not self._connection.eof_received():
            self._transport.close()

    def _go_on(self) -> None:
        """Decrypt what was received before a pause, then receive again."""
        transport = self._transport
        if self._is_paused or transport is None or not self._is_established:
            return
        if self._decrypt():
            unread, self._unread = self._unread, b""
            self._feed(memoryview(unread))
        if not self._is_paused and not self._unread and not transport.is_closing():
            transport.resume_reading()

    # -- the connection's transport ------------------------------------------------------------

    def pause_reading(self) -> None:
        self._is_paused = True
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._is_paused = False
        # Not at once: the connection may be within `buffer_updated`.
        self._world.call_soon(self._go_on)

    def write(self, data: Buffer) -> None:
        transport = self._transport
        if transport is None or not self._is_established or not data:
            return
        if len(data) > RECORD_BYTES:
            self.writelines((data,))
            return
        try:
            self._tls.write(data)
        except ssl.SSLError as error:
            self._cannot_encrypt(transport, error)
        else:
            transport.write(self._outgoing.read())

    def writelines(self, pieces: Iterable[Buffer]) -> None:
        transport = self._transport
        if transport is None or not self._is_established:
            return
        try:
            encrypted = self._encrypt(pieces)
        except ssl.SSLError as error:
            self._cannot_encrypt(transport, error)
        else:
            transport.writelines(encrypted)

    def _cannot_encrypt(self, transport: asyncio.Transport, error: ssl.SSLError) -> None:
        logger.debug("connection from %s closed: %s", self._connection.session.peer, error.reason)
        transport.abort()

    def _encrypt(self, pieces: Iterable[Buffer]) -> list[bytes]:
        """Small pieces share a record; large ones are cut."""
        write, read = self._tls.write, self._outgoing.read
        encrypted: list[bytes] = []
        small: list[Buffer] = []
        small_bytes = 0
        for piece in pieces:
            size = len(piece)
            if small_bytes + size <= RECORD_BYTES:
                small.append(piece)
                small_bytes += size
                continue
            if small_bytes:
                write(b"".join(small))
                encrypted.append(read())
                small, small_bytes = [], 0
            if size <= RECORD_BYTES:
                small, small_bytes = [piece], size
                continue
            view = memoryview(piece)
            for at in range(0, size, RECORD_BYTES):
                write(view[at : at + RECORD_BYTES])
                encrypted.append(read())
        if small_bytes:
            write(small[0] if len(small) == 1 else b"".join(small))
            encrypted.append(read())
        return encrypted

    def _flush(self, transport: asyncio.Transport) -> None:
        data = self._outgoing.read()
        if data:
            transport.write(data)

    def close(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self._is_established:
            with suppress(OSError, ValueError):  # it does not wait for the client's close_notify
                self._tls.unwrap()
            self._flush(transport)
        transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def is_closing(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default if self._transport is None else self._transport.get_extra_info(name, default)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if self._transport is not None:
            self._transport.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()
