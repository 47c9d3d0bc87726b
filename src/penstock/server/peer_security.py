"""Secures connections to other nodes: TLS, log-ins, and what happens while one of them fails. Imported only by nodes
that use either.

    PeerConnections --> handshake()      TLS for a new connection, by the files as they are now
                    --> login            sent by the conversation, before the session ends again
                    --> refused(...)     one ERROR line in ten seconds, and no connection for a moment

A node that another one refuses goes on trying, since what is wrong may be mended without its restart: a file is
replaced, a user is made. It tries after 0.1 s, then after twice as long each time, up to `PAUSE_MS_MAX`. Requests
within the pause fail at once.
"""

import logging
import ssl
from typing import Final

from penstock.base.settings import BadSetting
from penstock.base.world import World
from penstock.client.errors import AuthenticationFailed, LoginFailed
from penstock.client.security import ClientSecurity, ClientTls
from penstock.client.tls import client_context, explain, is_no_tls
from penstock.server.file_watch import FileWatch
from penstock.server.log_limit import LogLimit
from penstock.wire.peers import Address, PeerFailed

logger = logging.getLogger(__name__)

PAUSE_MS_MIN: Final = 100
PAUSE_MS_MAX: Final = 1000


class TlsDialling:
    """A `base.world.DialTls`: TLS of one new connection."""

    __slots__ = ("context", "error")

    def __init__(self, context: ssl.SSLContext) -> None:
        self.context = context
        self.error: OSError | None = None


class PeerSecurity:
    def __init__(self, world: World, security: ClientSecurity, what: str) -> None:
        """`what` is the role of the other nodes: brokers or controllers. Reads keys and certificates; raises
        BadSetting."""
        self._world = world
        self._tls = security.tls
        self._what = what
        self.login = security.login
        self._failures, self._endings = LogLimit(world), LogLimit(world)
        self._pauses: dict[Address, _Pause] = {}
        """Nodes that refused the last connection."""
        self._context: ssl.SSLContext | None = None
        self._files: FileWatch[ssl.SSLContext] | None = None
        if security.tls is not None:
            tls = security.tls
            self._files = FileWatch(world, tls.files, lambda: _load(tls), self._use, self._not_loaded)
            self._context = self._files.first()

    # -- keys and certificates ---------------------------------------------------------------------------

    def start(self) -> None:
        if self._files is not None:
            self._files.start()

    def stop(self) -> None:
        if self._files is not None:
            self._files.stop()

    def _use(self, context: ssl.SSLContext) -> None:
        self._context = context
        self._pauses.clear()
        logger.info("new connections to %s use the changed key store or trust store", self._what)

    def _not_loaded(self, error: Exception) -> None:
        logger.error(
            "connections to %s keep the old key and certificates, because the new ones cannot be used: %s",
            self._what,
            error,
            exc_info=None if isinstance(error, BadSetting) else error,
        )

    def handshake(self) -> TlsDialling | None:
        """TLS of a new connection; None without TLS."""
        return None if self._context is None else TlsDialling(self._context)

    # -- failures ----------------------------------------------------------------------------------------

    @property
    def is_refused(self) -> bool:
        """Whether some node refuses this one, or is refused by it."""
        return bool(self._pauses)

    def paused(self, address: Address) -> PeerFailed | None:
        """Why no connection is made now."""
        pause = self._pauses.get(address)
        if pause is None or self._world.clock_ns() >= pause.until_ns:
            return None
        return PeerFailed(pause.why)

    def made(self, address: Address) -> None:
        """A connection is usable: both sides have authenticated each other."""
        if self._pauses.pop(address, None) is not None:
            logger.info("connected to node %s, which had refused this node", address)

    def failed(self, address: Address, error: object) -> str | None:
        """A connection failed or was lost before it was usable. Returns why if security is the reason."""
        if self._tls is not None and isinstance(error, OSError) and is_no_tls(error):
            return self._ended(address)
        why = self._reason(address, error)
        if why is None:
            return None
        self._pauses.setdefault(address, _Pause()).extend(self._world, why)
        self._failures.error(
            logger, "%s; this node goes on trying, and connects once that is mended", why.rstrip(".")
        )
        return why

    def _ended(self, address: Address) -> str:
        """The other node has no TLS, or it was stopped at this moment: nothing to wait for then."""
        why = f"node {address} has ended the connection during the TLS handshake"
        self._endings.warning(
            logger,
            "%s; if it goes on, its listener has no TLS: expected the protocol SSL or SASL_SSL in "
            "listener.security.protocol.map, as here",
            why,
        )
        return why

    def _reason(self, address: Address, error: object) -> str | None:
        peer = f"node {address}"
        if isinstance(error, LoginFailed):
            return f"{error}; create this user, or correct username and password in sasl.jaas.config"
        if isinstance(error, AuthenticationFailed):
            return str(error)
        if self._tls is None or not isinstance(error, ssl.SSLError):
            return None
        explained = explain(error, peer, self._tls)
        return str(explained) if explained is not None else f"no TLS with {peer}: {error.reason}"


class _Pause:
    """No connections to one node for a moment."""

    __slots__ = ("_ms", "until_ns", "why")

    def __init__(self) -> None:
        self._ms = 0
        self.until_ns = 0
        self.why = ""

    def extend(self, world: World, why: str) -> None:
        now_ns = world.clock_ns()
        if now_ns >= self.until_ns:  # several connections may fail together
            self._ms = min(max(2 * self._ms, PAUSE_MS_MIN), PAUSE_MS_MAX)
            self.until_ns = now_ns + self._ms * 1_000_000
        self.why = why


def _load(tls: ClientTls) -> ssl.SSLContext:
    context = client_context(tls)
    context.sslsocket_class = ssl.SSLSocket
    return context
