"""The HTTP port: state that all of its connections share."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.gateway.http.protocol import browsers
from penstock.gateway.http.protocol.authentication import HttpLogins
from penstock.gateway.http.protocol.conversation import HttpConversation
from penstock.gateway.http.protocol.messages import Heads
from penstock.gateway.http.protocol.request_parser import BodyRoom
from penstock.gateway.http.protocol.routing import Router
from penstock.gateway.shared.access import Rule
from penstock.gateway.shared.rechecks import Rechecks
from penstock.gateway.shared.wire import Wire
from penstock.handlers.support.context import Context
from penstock.metadata.configs import broker_flag, broker_setting
from penstock.metadata.image import ClusterImage

if TYPE_CHECKING:
    from penstock.gateway.shared.door_logins import DoorLogins

BATCHES_MAX = 16
"""How many batches of `message.max.bytes` a body may carry: a call may write to several partitions."""

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
    ) -> None:
        """`gateway` is what routes are called with; it has a `context`. `give_back_memory` hands what was freed to the
        system. With `logins`, clients have to log in."""
        self.gateway = gateway
        self.router = router
        self.context: Context = gateway.context
        self.heads = Heads(self.context.world)
        self.bodies = BodyRoom(self.context.world, give_back_memory)
        self.names: dict[bytes, str] = {}
        """Names of headers in lower case, by what was sent."""
        self.logins = None if logins is None else HttpLogins(logins)
        if self.logins is not None:
            gateway.http_schemes = self.logins.schemes
        self.is_guarded = (
            logins is not None or self.context.authorizer is not None or self.context.audit is not None
        )
        """Whether the rules of routes are enforced."""
        self.rechecks = Rechecks(self.context)
        self._image: ClusterImage | None = None
        """The one that the settings below were looked up in."""
        self._body_bytes_max = 0

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
