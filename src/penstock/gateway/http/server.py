"""The HTTP port: state that all of its connections share.

`BodyRoom` bounds the memory for request bodies of all clients. A body counts from its first received byte until its
request is answered; small bodies do not count. A body that does not fit is refused with 503 instead of delayed: bodies
that each hold a part of the room and wait for each other would wait forever. Freed memory is given back to the system
beside the loop, once much was used and nothing is.
"""

from collections.abc import Callable
from typing import Any

from penstock.base.world import Timer, World
from penstock.gateway.http.protocol import browsers
from penstock.gateway.http.protocol.conversation import HttpConversation
from penstock.gateway.http.protocol.messages import Heads
from penstock.gateway.http.protocol.routing import Router
from penstock.gateway.shared.wire import Wire
from penstock.handlers.support.context import Context
from penstock.metadata import ClusterImage
from penstock.metadata.configs import broker_setting

BYTES_MAX = 256 * 2**20
"""All counted bodies together; 16 of the largest at the default settings."""

SMALL_BYTES = 64 * 1024
"""What one may have without being counted."""

GIVE_BACK_BYTES_MIN = 32 * 2**20
"""What must have been in use for it to be worth the while; as much may lie unused anyhow."""

GIVE_BACK_MS = 1000
"""After the last one: those who were refused come again."""


class BodyRoom:
    def __init__(self, world: World, give_back: Callable[[], None] | None = None) -> None:
        """`give_back` hands freed memory to the system; it runs beside the loop."""
        self._world = world
        self._give_back = give_back
        self.used_bytes = 0
        self._most_bytes = 0
        """Since memory was last given back."""
        self._timer: Timer | None = None

    def take(self, count: int) -> bool:
        """Have room for so many bytes more; whether there was."""
        used_bytes = self.used_bytes + count
        if used_bytes > BYTES_MAX:
            return False
        self.used_bytes = used_bytes
        self._most_bytes = max(self._most_bytes, used_bytes)
        return True

    def free(self, count: int) -> None:
        self.used_bytes -= count
        if (
            not self.used_bytes
            and self._most_bytes >= GIVE_BACK_BYTES_MIN
            and self._give_back is not None
            and self._timer is None
        ):
            self._timer = self._world.call_later(GIVE_BACK_MS, self._quiet)

    def _quiet(self) -> None:
        self._timer = None
        give_back = self._give_back
        if not self.used_bytes and give_back is not None:
            self._most_bytes = 0
            self._world.beside(give_back, lambda _, _error: None)


BATCHES_MAX = 16
"""How many batches of `message.max.bytes` a body may carry: a call may write to several partitions."""

NAMES_MAX = 1000
"""Names of headers that are known in lower case; clients have a few dozen between them."""


class HttpDoor:
    """A `Door`."""

    def __init__(
        self, gateway: Any, router: Router, give_back_memory: Callable[[], None] | None = None
    ) -> None:
        """`gateway` is what routes are called with; it has a `context`. `give_back_memory` hands what was freed to the
        system."""
        self.gateway = gateway
        self.router = router
        self.context: Context = gateway.context
        self.heads = Heads(self.context.world)
        self.bodies = BodyRoom(self.context.world, give_back_memory)
        self.names: dict[bytes, str] = {}
        """Names of headers in lower case, by what was sent."""
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
