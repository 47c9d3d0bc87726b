"""The HTTP port: state that all of its connections share."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.gateway.http.protocol import browsers
from penstock.gateway.http.protocol.authentication import HttpLogins
from penstock.gateway.http.protocol.console_requests import ConsoleCookies
from penstock.gateway.http.protocol.conversation import HttpConversation
from penstock.gateway.http.protocol.messages import Heads
from penstock.gateway.http.protocol.request_parser import BodyRoom
from penstock.gateway.http.protocol.routing import Router
from penstock.gateway.shared.access import Rule
from penstock.gateway.shared.console_mode import OFF, READ_ONLY, console_mode
from penstock.gateway.shared.rechecks import Rechecks
from penstock.gateway.shared.wire import Wire
from penstock.handlers.support.context import Context
from penstock.metadata.configs import broker_flag, broker_setting
from penstock.metadata.image import ClusterImage

if TYPE_CHECKING:
    from penstock.gateway.shared.door_logins import DoorLogins

BATCHES_MAX = 16
"""How many batches of `message.max.bytes` a body may carry: a call may write to several partitions."""

LOG_IN = b"/session"
LOG_IN_BYTES_MAX = 16 * 1024
"""The body of a log-in: a name and a password."""

NAMES_MAX = 1000
"""Names of headers that are known in lower case; clients have a few dozen between them."""


class HttpServer:
    """A `ProtocolServer`."""

    def __init__(
        self,
        gateway: Any,
        router: Router,
        give_back_memory: Callable[[], None] | None = None,
        logins: "DoorLogins | None" = None,
        *,
        has_console: bool = True,
    ) -> None:
        """`gateway` is what routes are called with; it has a `context`. `give_back_memory` hands what was freed to the
        system. With `logins`, clients have to log in. Only the port that `has_console` takes its cookies, and says at
        /session how to log in."""
        self.gateway = gateway
        self.router = router
        self.context: Context = gateway.context
        self.heads = Heads(self.context.world)
        self.bodies = BodyRoom(self.context.world, give_back_memory)
        self.names: dict[bytes, str] = {}
        """Names of headers in lower case, by what was sent."""
        self.rechecks = Rechecks(self.context)
        self.logins = None if logins is None else self._logins(logins, has_console=has_console)
        if self.logins is not None and has_console:
            gateway.http_schemes = self.logins.schemes
            gateway.http_logins = self.logins
        self.is_guarded = (
            logins is not None or self.context.authorizer is not None or self.context.audit is not None
        )
        """Whether the rules of routes are enforced."""
        self._image: ClusterImage | None = None
        """The one that the settings below were looked up in."""
        self._body_bytes_max = 0

    def _logins(self, logins: "DoorLogins", *, has_console: bool) -> HttpLogins:
        from penstock.gateway.shared.console_sessions import ConsoleSessions  # noqa: PLC0415  # of nodes with log-ins

        context = self.context
        protocol = broker_setting("http.security.protocol", context.image, context.settings) or ""
        cookies = ConsoleCookies(has_tls=protocol.endswith("SSL"))
        is_on = has_console and console_mode(context) != OFF
        sessions = ConsoleSessions(context, logins, self.rechecks.check_all) if is_on else None
        return HttpLogins(logins, sessions, cookies)

    def is_read_only(self) -> bool:
        """Whether the console may change nothing."""
        return console_mode(self.context) == READ_ONLY

    def converse(self, wire: Wire) -> HttpConversation:
        return HttpConversation(self, wire)

    def body_bytes_max(self) -> int:
        """The largest body that is taken: room for some full batches, within what any request may have."""
        image, settings = self.context.image, self.context.settings
        if image is not self._image:
            self._image = image
            self._body_bytes_max = min(
                int(broker_setting("socket.request.max.bytes", image, settings) or 0),
                BATCHES_MAX * int(broker_setting("message.max.bytes", image, settings) or 0),
            )
        return self._body_bytes_max

    def log_in_bytes_max(self, method: bytes, target: bytes) -> int:
        """How large the body of a request may be that comes before a log-in, since it is one; 0 for other requests."""
        return LOG_IN_BYTES_MAX if method == b"POST" and target == LOG_IN else 0

    def is_open(self, rule: Rule | None) -> bool:
        """Whether the request needs neither a log-in nor an ACL."""
        if rule is None or not (rule.is_open or rule.opened_by):
            return False
        return rule.is_open or broker_flag(rule.opened_by, self.context.image, self.context.settings)

    def hosts(self) -> list[str]:
        """Names of this server that browsers may use."""
        listed = broker_setting("http.hosts", self.context.image, self.context.settings) or ""
        return [browsers.name_of(each.strip().lower()) for each in listed.split(",") if each.strip()]

    def name(self, raw: bytes) -> str:
        """A header's name that was not met before."""
        name = raw.lower().decode("latin-1")
        if len(self.names) < NAMES_MAX:
            self.names[raw] = name
        return name
