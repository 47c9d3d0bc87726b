"""A broker's life in its cluster: registration, heartbeats, controlled shutdown.

    register --> fenced --> (its image has its registration) --> unfenced --> ... --> controlled shutdown --> stopped
       ^         heartbeats throughout                              |
       +------------------ STALE_BROKER_EPOCH ----------------------+

Requests go through a `ControllerPort`, wherever the controller is. A heartbeat is sent at every interval, whether or
not the previous one was answered, and sooner after a failure or while a reply is expected to change.

The controller fences a broker whose session expires, and the broker is the last to learn that. So it keeps a lease by
its own clock, counted from when an answered heartbeat was sent. During the lease no other replica can have become
leader of its partitions.

    sent        answered                                      lease ends     fenced by the controller
    |-----------|----------------------------------------------|--------------|
    |<----------------------- lease -------------------------->|
    |<------------------------------- session ------------------------------->|

After the lease the broker keeps serving, with retriable errors in place of final ones
(`penstock.replica.deposed_leader`).
"""

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import Offset
from penstock.base.world import Timer, World
from penstock.metadata.controller.port import ControllerPort
from penstock.metadata.controller.requests import BrokerHeartbeat, HeartbeatReply, RegisterBroker
from penstock.metadata.image import ClusterImage

logger = logging.getLogger(__name__)

RETRY_MS: Final = 50
"""Delay before a rejected request is sent again."""

LEAVE_MS_MAX: Final = 5000
"""Time limit of a controlled shutdown; then the broker stops without it."""

NO_CONTROLLER_MS_MAX: Final = 2000
"""Time limit of a controlled shutdown without a controller: when a whole cluster stops, the last brokers have none."""

REGISTRATION_TIMEOUT_MS: Final = 60_000
"""Kafka's `initial.broker.registration.timeout.ms`."""

SESSION_TIMEOUT_MS: Final = 9000
"""Kafka's `broker.session.timeout.ms`."""

_RETRIABLE: Final = frozenset(
    (
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.DUPLICATE_BROKER_REGISTRATION,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    )
)
"""Errors after which a registration is sent again; any other error is final."""


class BrokerLifecycle:
    def __init__(
        self,
        world: World,
        controller: ControllerPort,
        *,
        heartbeat_interval_ms: int,
        metadata_offset: Callable[[], Offset],
        failed: Callable[[str], None],
        registration_timeout_ms: int = REGISTRATION_TIMEOUT_MS,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        has_lost_majority: Callable[[], bool] = lambda: False,
        is_refused: Callable[[], bool] = lambda: False,
        registered: Callable[[int], None] = lambda _: None,
    ) -> None:
        """`has_lost_majority` is true while no controller can be elected because too many voters are unreachable,
        `is_refused` while controllers refuse this node, or it them. `registered` is called with each
        new broker epoch."""
        self._world = world
        self._controller = controller
        self._interval_ms = heartbeat_interval_ms
        self._metadata_offset = metadata_offset
        self._failed = failed
        self._registration_timeout_ms = registration_timeout_ms
        self._session_timeout_ms = session_timeout_ms
        # Half a session, because a deposed controller may reply for some time. At least two intervals, so that one
        # late heartbeat does not end the lease.
        self._lease_ns = max(session_timeout_ms // 2, 2 * heartbeat_interval_ms) * 1_000_000
        self._has_lost_majority = has_lost_majority
        self._is_refused = is_refused
        self._on_registered = registered
        self._registration: RegisterBroker | None = None
        self._timer: Timer | None = None
        """Sends the next request."""
        self._deadline: Timer | None = None
        """Of the first registration, or of the controlled shutdown."""
        self._registration_error: KafkaError | None = None
        """Of the last attempt to register."""
        self._heartbeats_sent = 0
        self._last_answered = 0
        """Number of the last answered heartbeat; replies to earlier ones are ignored."""
        self._answered_ns = 0
        """When the controller last replied; reset when the controlled shutdown begins."""
        self._silence_ended_ns = 0
        """When the controller replied after longer than a lease. After a pause of this process, a controller that was
        deposed meanwhile may reply at once, so only heartbeats sent after this moment start a lease."""
        self._lease_began_ns: int | None = None
        """When the last answered heartbeat was sent; None before the first."""
        self._is_silence_logged = False
        """The controller has not replied for a session, and this was logged."""
        self._is_fenced = True
        self._is_over = False
        self._on_unfenced: Callable[[], None] | None = None
        self._on_stopped: Callable[[], None] | None = None
        self.epoch = -1
        """The broker epoch of the current registration; -1 without one."""

    @property
    def has_lease(self) -> bool:
        """Whether the lease holds: no other replica can have become leader of a partition that this broker leads."""
        lease_began_ns = self._lease_began_ns
        return (
            lease_began_ns is not None
            and not self._is_fenced
            and self._world.clock_ns() - lease_began_ns < self._lease_ns
        )

    def join(self, registration: RegisterBroker, unfenced: Callable[[], None]) -> None:
        """Register; `unfenced` is called when the controller has unfenced this broker."""
        self._registration = registration
        self._on_unfenced = unfenced
        self._deadline = self._world.call_later(self._registration_timeout_ms, self._registration_timed_out)
        self._register()

    def join_cluster(self, cluster_id: str) -> None:
        """Use this cluster id in the next registration: it was unknown when the broker joined."""
        if self._registration is not None:
            self._registration = self._registration._replace(cluster_id=cluster_id)

    # -- registering -----------------------------------------------------------------------------------

    def _register(self) -> None:
        assert self._registration is not None
        self._cancel_timer()
        self._controller.submit(self._registration).then(self._registered, self._registration_failed)

    def _registered(self, epoch: int) -> None:
        if not self._is_over:
            self._cancel_deadline()
            self.epoch = epoch
            self._on_registered(epoch)
            self._answered_ns = self._world.clock_ns()
            self._send_heartbeat()

    def _registration_failed(self, error: KafkaError) -> None:
        if self._is_over:
            return
        if error.code in _RETRIABLE:
            if error.code is not getattr(self._registration_error, "code", ErrorCode.NOT_CONTROLLER):
                self._log_registration_error(error)
            self._registration_error = error
            self._later(RETRY_MS, self._register)
        else:
            self.stop()
            self._failed(f"the controller rejected this broker's registration: {error}")

    def _log_registration_error(self, error: KafkaError) -> None:
        if error.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            logger.error(
                "the controllers do not let this broker register: its principal is not allowed ClusterAction on the "
                "cluster; add it to super.users of all nodes, or allow it; this broker goes on trying"
            )
        else:
            logger.info("cannot register yet, trying again: %s", error)

    def _registration_timed_out(self) -> None:
        assert self._registration is not None
        is_denied = getattr(self._registration_error, "code", None) is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        if is_denied or self._is_refused():
            # Credentials, certificates and ACLs may be mended without a restart of this node.
            self._deadline = self._world.call_later(
                self._registration_timeout_ms, self._registration_timed_out
            )
            return
        self.stop()
        why: KafkaError | str = self._registration_error or "no reply"
        if getattr(self._registration_error, "code", None) is ErrorCode.DUPLICATE_BROKER_REGISTRATION:
            why = f"another running broker is registered with node.id {self._registration.broker_id}"
        self._failed(
            f"this broker could not register within {self._registration_timeout_ms} ms "
            f"(initial.broker.registration.timeout.ms): {why}"
        )

    # -- heartbeats -----------------------------------------------------------------------------------------

    def _send_heartbeat(self) -> None:
        assert self._registration is not None
        heartbeat = BrokerHeartbeat(
            self._registration.broker_id,
            self.epoch,
            self._metadata_offset(),
            want_shutdown=self._on_stopped is not None,
        )
        self._later(self._interval_ms, self._send_heartbeat)
        self._heartbeats_sent += 1
        sent_ns = self._world.clock_ns()
        number, epoch = self._heartbeats_sent, self.epoch
        self._controller.submit(heartbeat).then(
            partial(self._heartbeat_answered, number, epoch, sent_ns),
            partial(self._heartbeat_failed, number, epoch),
        )

    def follow(self, image: ClusterImage, changed: Iterable[int], *, has_new_acls: bool = False) -> None:
        """Send a heartbeat at once if the controller waits until all brokers have this image: for new ACLs, and if one
        of the changed brokers is in controlled shutdown."""
        if self.epoch < 0 or self._is_fenced or self._on_stopped is not None:
            return
        brokers = (image.brokers.get(each) for each in changed)
        if has_new_acls or any(
            each is not None and each.in_controlled_shutdown and not each.fenced for each in brokers
        ):
            self._later(0, self._send_heartbeat)

    def _is_stale(self, number: int, epoch: int) -> bool:
        """Whether a newer heartbeat was answered, or the broker has registered again or stopped."""
        return self._is_over or number < self._last_answered or epoch != self.epoch

    def _heartbeat_answered(self, number: int, epoch: int, sent_ns: int, reply: HeartbeatReply) -> None:
        if not self._is_stale(number, epoch):
            self._last_answered = number
            self._extend_lease(sent_ns)
            self._follow_reply(reply)

    def _heartbeat_failed(self, number: int, epoch: int, error: KafkaError) -> None:
        if self._is_stale(number, epoch):
            return
        self._last_answered = number
        if error.code is ErrorCode.STALE_BROKER_EPOCH:
            self._register_again(error)
        elif self._on_stopped is not None and (
            self._has_lost_majority() or self._silent_ms() >= NO_CONTROLLER_MS_MAX
        ):
            logger.info("stopping without a controlled shutdown, no controller answers: %s", error)
            self._stopped()
        else:
            self._log_silence(error)
            self._later(RETRY_MS, self._send_heartbeat)

    def _extend_lease(self, sent_ns: int) -> None:
        now_ns = self._world.clock_ns()
        if now_ns - self._answered_ns >= self._lease_ns:
            self._silence_ended_ns = now_ns
        if sent_ns > self._silence_ended_ns:
            self._lease_began_ns = sent_ns
        self._answered_ns = now_ns
        self._is_silence_logged = False

    def _follow_reply(self, reply: HeartbeatReply) -> None:
        if self._on_stopped is not None:
            if reply.should_shut_down:
                self._stopped()
            else:
                self._later(RETRY_MS, self._send_heartbeat)
            return
        if reply.is_fenced:
            if not self._is_fenced:
                logger.warning("the controller has fenced this broker; asking to be unfenced")
            self._is_fenced = True
            self._later(RETRY_MS, self._send_heartbeat)
            return
        if self._on_unfenced is not None:
            call, self._on_unfenced = self._on_unfenced, None
            call()
        elif self._is_fenced:
            logger.info("the controller has unfenced this broker again")
        self._is_fenced = False

    def _register_again(self, error: KafkaError) -> None:
        if self._on_stopped is not None:
            self._stopped()  # the controller has no registration of this broker, so it leads nothing
            return
        logger.warning("%s; registering again", error)
        self.epoch = -1
        self._is_fenced = True
        self._register()

    def _log_silence(self, error: KafkaError) -> None:
        silent_ms = self._silent_ms()
        if silent_ms >= self._session_timeout_ms and not self._is_silence_logged:
            self._is_silence_logged = True
            logger.warning("the controller has not answered for %.0f ms: %s", silent_ms, error)

    def _silent_ms(self) -> float:
        return (self._world.clock_ns() - self._answered_ns) / 1e6

    def _later(self, delay_ms: int, call: Callable[[], None]) -> None:
        self._cancel_timer()
        if not self._is_over:
            self._timer = self._world.call_later(delay_ms, call)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    # -- controlled shutdown ---------------------------------------------------------------------------------------

    def leave(self, stopped: Callable[[], None]) -> None:
        """Ask the controller to move leadership away; `stopped` is called when that is done, or at the time limit."""
        self._on_stopped = stopped
        self._cancel_deadline()
        if self.epoch < 0:
            self._stopped()
            return
        self._deadline = self._world.call_later(LEAVE_MS_MAX, self._shutdown_timed_out)
        self._answered_ns = self._world.clock_ns()
        self._send_heartbeat()

    def _shutdown_timed_out(self) -> None:
        logger.warning("controlled shutdown has not finished in %s ms; stopping without it", LEAVE_MS_MAX)
        self._stopped()

    def _stopped(self) -> None:
        self.stop()
        if self._on_stopped is not None:
            call, self._on_stopped = self._on_stopped, None
            call()

    def stop(self) -> None:
        """Send no more requests, and ignore replies."""
        self._is_over = True
        self._cancel_timer()
        self._cancel_deadline()
