"""Sends requests to the active controller, whether it is in this process, on another node, or still being elected.

    submit --> the controller here, while it is active
           \\-> the quorum's leader, over the wire --> reply --> (this node's image shows the change) --> promise
           \\-> no leader, or no reply: again every RETRY_MS, until `request.timeout.ms` has passed

A request is sent again after NOT_CONTROLLER, after a lost connection, and when the leader has changed. The first
attempt may have been executed all the same. As with Kafka's brokers, the second attempt then returns
TOPIC_ALREADY_EXISTS for a topic that the first one created, and UNKNOWN_TOPIC_OR_PARTITION for one that it deleted.
Nothing is executed twice: registrations are identified by their incarnation, changes of ISRs and features by the
expected old value, and producer ids that were lost with a reply are never used.

Heartbeats are sent once: the next one follows soon and carries newer state. A heartbeat without a reply within one
interval counts as lost, so that heartbeats do not queue up.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.promise import Promise
from penstock.base.world import Timer, World
from penstock.controlplane.active_controller import ActiveController
from penstock.controlplane.controller_wire import to_wire
from penstock.controlplane.image_wait import image_shows
from penstock.controlplane.wire_conversion import check_encodable
from penstock.metadata.controller.requests import AlterPartition, BrokerHeartbeat, RegisterBroker
from penstock.metadata.image import ClusterImage
from penstock.wire.peers import Address, PeerFailed, Peers

RETRY_MS: Final = 50
"""Interval of retries. An election takes a few times as long."""

_PURPOSES: Final[dict[type, str]] = {
    RegisterBroker: "heartbeat",
    BrokerHeartbeat: "heartbeat",
    AlterPartition: "alter-partition",
}
"""Heartbeats and ISR changes have their own connections, as in Kafka: they never wait behind a slow reply."""


class ControllerRouter:
    """A `ControllerPort`."""

    def __init__(
        self,
        world: World,
        local: ActiveController | None,
        peers: Peers | None,
        *,
        leader_address: Callable[[], Address | None],
        image: Callable[[], ClusterImage],
        watchers: Callable[[], dict[Callable[[], None], None]],
        timeout_ms: Callable[[], int],
        heartbeat_interval_ms: int,
    ) -> None:
        """`local` is None on a node that is no controller, `peers` on a node without peers. `leader_address` returns
        where the quorum's leader listens: None if it is unknown or this node. `image` and `watchers` return those of
        the node's context."""
        self._world = world
        self._local = local
        self._peers = peers
        self._leader_address = leader_address
        self._image = image
        self._watchers = watchers
        self._timeout_ms = timeout_ms
        self._heartbeat_wait_ms = heartbeat_interval_ms
        self._pending: dict[_PendingRequest, None] = {}
        """Requests without a reply, in the order of submission."""
        self._timer: Timer | None = None
        """Runs while requests are pending."""
        self._is_closed = False

    def submit(self, request: Any) -> Promise[Any]:
        promise: Promise[Any] = Promise()
        if self._is_closed:
            promise.fail(_no_controller())
            return promise
        is_heartbeat = isinstance(request, BrokerHeartbeat)
        wait_ms = self._heartbeat_wait_ms if is_heartbeat else self._timeout_ms()
        pending = _PendingRequest(self._world, request, promise, wait_ms, is_sent_once=is_heartbeat)
        self._send(pending)
        if not promise.is_settled:
            pending.start_timer(self._timed_out)
            self._pending[pending] = None
            self._retry_later()
        return promise

    def look_again(self) -> None:
        """The leader may have changed: send requests that wait for a leader, or that were sent to another one."""
        for pending in list(self._pending):
            if not pending.is_decided and (not pending.is_sent or self._has_moved(pending)):
                self._send(pending)

    def close(self) -> None:
        """The node stops: fail all pending requests."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for pending in list(self._pending):
            self._fail(pending, _no_controller())

    # -- sending ---------------------------------------------------------------------------------------

    def _send(self, pending: "_PendingRequest") -> None:
        if self._local is not None and self._local.is_active:
            attempt = pending.start_attempt(None)
            reply = self._local.submit(pending.request)
            reply.then(partial(self._replied_here, pending, attempt), partial(self._failed, pending, attempt))
            return
        address = self._leader_address()
        if address is None or self._peers is None:
            self._attempt_failed(pending, _no_controller())
            return
        wait_ms = pending.left_ms()
        request = to_wire(pending.request, wait_ms)
        if request is None:
            self._fail(pending, _no_controller())
            return
        try:
            check_encodable(request)
        except KafkaError as error:
            self._fail(pending, error)
            return
        purpose = _PURPOSES.get(type(pending.request), "controller")
        attempt = pending.start_attempt(address)
        response = self._peers.ask(address, request, timeout_ms=wait_ms, purpose=purpose)
        response.then(partial(self._replied_there, pending, attempt), partial(self._failed, pending, attempt))

    def _has_moved(self, pending: "_PendingRequest") -> bool:
        """Whether the active controller is another node than the one that the request was sent to."""
        if self._local is not None and self._local.is_active:
            return pending.sent_to is not None
        address = self._leader_address()
        return address is not None and address != pending.sent_to

    def _replied_here(self, pending: "_PendingRequest", attempt: int, reply: Any) -> None:
        if pending.is_current(attempt):
            self._resolve(pending, reply)

    def _replied_there(self, pending: "_PendingRequest", attempt: int, reply: Any) -> None:
        if pending.is_current(attempt):
            self._await_image(pending, reply)

    def _failed(self, pending: "_PendingRequest", attempt: int, error: KafkaError) -> None:
        if not pending.is_current(attempt):
            return
        if isinstance(error, PeerFailed) or error.code is ErrorCode.NOT_CONTROLLER:
            self._attempt_failed(pending, error)
        else:
            self._fail(pending, error)

    def _attempt_failed(self, pending: "_PendingRequest", error: KafkaError) -> None:
        """Send the request again later, unless it is sent only once."""
        pending.is_sent = False
        if pending.is_sent_once:
            self._fail(pending, error)

    # -- waiting for the image -------------------------------------------------------------------------

    def _await_image(self, pending: "_PendingRequest", reply: Any) -> None:
        if image_shows(pending.request, reply, self._image()):
            self._resolve(pending, reply)
            return
        pending.decided(reply)

        def image_changed() -> None:
            if pending.promise.is_settled:
                self._watchers().pop(image_changed, None)
            elif image_shows(pending.request, reply, self._image()):
                self._watchers().pop(image_changed, None)
                self._resolve(pending, reply)

        self._watchers()[image_changed] = None

    # -- settling --------------------------------------------------------------------------------------

    def _resolve(self, pending: "_PendingRequest", reply: Any) -> None:
        self._pending.pop(pending, None)
        pending.cancel_timer()
        if not pending.promise.is_settled:
            pending.promise.resolve(reply)

    def _fail(self, pending: "_PendingRequest", error: KafkaError) -> None:
        self._pending.pop(pending, None)
        pending.cancel_timer()
        if not pending.promise.is_settled:
            pending.promise.fail(error)

    def _timed_out(self, pending: "_PendingRequest") -> None:
        if pending.is_decided:
            # The change is committed; this node's image lags behind and will show it.
            self._resolve(pending, pending.reply)
        elif pending.is_sent:
            why = f"the controller has not answered in {pending.wait_ms} ms"
            self._fail(pending, KafkaError(why, ErrorCode.REQUEST_TIMED_OUT))
        else:
            self._fail(pending, _no_controller())

    def _retry_later(self) -> None:
        if self._timer is None:
            self._timer = self._world.call_later(RETRY_MS, self._retry)

    def _retry(self) -> None:
        self._timer = None
        self.look_again()
        if self._pending:
            self._retry_later()


class _PendingRequest:
    """A request without a reply. It may be sent several times; only the latest attempt counts."""

    __slots__ = (
        "_attempt",
        "_began_ns",
        "_timer",
        "_world",
        "is_decided",
        "is_sent",
        "is_sent_once",
        "promise",
        "reply",
        "request",
        "sent_to",
        "wait_ms",
    )

    def __init__(
        self, world: World, request: Any, promise: Promise[Any], wait_ms: int, *, is_sent_once: bool
    ) -> None:
        self.request = request
        self.promise = promise
        self.wait_ms = wait_ms
        self.is_sent_once = is_sent_once
        self.is_sent = False
        """An attempt is under way."""
        self.sent_to: Address | None = None
        """Target of the latest attempt; None for the controller in this process."""
        self.is_decided = False
        """The controller has replied, and this node's image does not show the change yet."""
        self.reply: Any = None
        self._world = world
        self._began_ns = world.clock_ns()
        self._timer: Timer | None = None
        self._attempt = 0

    def start_timer(self, timed_out: "Callable[[_PendingRequest], None]") -> None:
        self._timer = self._world.call_later(self.wait_ms, lambda: timed_out(self))

    def cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def left_ms(self) -> float:
        return max(1.0, self.wait_ms - (self._world.clock_ns() - self._began_ns) / 1e6)

    def start_attempt(self, to: Address | None) -> int:
        """Count an attempt; replies to earlier attempts are ignored from now on."""
        self.is_sent, self.sent_to = True, to
        self._attempt += 1
        return self._attempt

    def is_current(self, attempt: int) -> bool:
        return attempt == self._attempt and not self.promise.is_settled

    def decided(self, reply: Any) -> None:
        self.is_decided, self.reply = True, reply


def _no_controller() -> KafkaError:
    return KafkaError("no active controller is known", ErrorCode.NOT_CONTROLLER)
