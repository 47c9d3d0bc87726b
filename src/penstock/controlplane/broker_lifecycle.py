"""A broker's place in its cluster: registered, alive, and, before it stops, relieved of what it leads.

    register --> fenced --> (has read its own registration) --> unfenced --> ... --> leaving --> gone
       ^         heartbeats all the while                           |
       +----------- the controller does not know this epoch --------+

The controller is asked through a port, whether it is in this process or elsewhere. A heartbeat goes out at every
interval, and sooner after a failure or while something is waited for: whether the last one was answered or not, since
the controller hears it at once, and answers when its quorum lets it.

A broker that is not heard for a session is deposed, and the last to hear of it. So by its own clock it knows for how
long at least nobody can have been given what it leads: from when it sent a heartbeat that was answered.

    sent        answered            in touch                    lease over     fenced by the controller
    |-----------|----------------------------------------------|--------------|
    |<--------------------- a lease -------------------------->|
    |<----------------------------- a session ------------------------------->|

Out of touch it goes on serving, but has no last word (`penstock.replica.deposed_leader`).
"""

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import Offset
from penstock.base.world import Timer, World
from penstock.metadata import ClusterImage
from penstock.metadata.controller.port import ControllerPort
from penstock.metadata.controller.requests import BrokerHeartbeat, HeartbeatReply, RegisterBroker

logger = logging.getLogger(__name__)

RETRY_MS: Final = 50
"""How soon the controller is asked again after a refusal."""

LEAVE_MS_MAX: Final = 5000
"""How long a stop waits for the controller's leave; then the broker goes without."""

LONELY_MS_MAX: Final = 2000
"""How long it waits while no controller is there: when a whole cluster stops, the last ones would wait in vain."""

REGISTRATION_TIMEOUT_MS: Final = 60_000
"""Kafka's `initial.broker.registration.timeout.ms`."""

SESSION_TIMEOUT_MS: Final = 9000
"""Kafka's `broker.session.timeout.ms`."""

_PASSING: Final = frozenset(
    (
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.DUPLICATE_BROKER_REGISTRATION,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    )
)
"""What may be different in a moment; a registration that is refused with anything else will be refused again."""


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
        registered: Callable[[int], None] = lambda _: None,
    ) -> None:
        """`has_lost_majority` is true while no controller can be elected because too many voters are unreachable.
        `registered` is called with each new broker epoch."""
        self._world = world
        self._controller = controller
        self._interval_ms = heartbeat_interval_ms
        self._metadata_offset = metadata_offset
        self._failed = failed
        self._registration_timeout_ms = registration_timeout_ms
        self._session_timeout_ms = session_timeout_ms
        # Half a session, since a controller that is itself deposed may answer for some time; but no heartbeat alone
        # may end it by being late.
        self._lease_ns = max(session_timeout_ms // 2, 2 * heartbeat_interval_ms) * 1_000_000
        self._has_lost_majority = has_lost_majority
        self._when_registered = registered
        self._registration: RegisterBroker | None = None
        self._timer: Timer | None = None
        """Until the next question to the controller."""
        self._limit: Timer | None = None
        """On the first registration, and later on a stop: how long it may take."""
        self._refusal: KafkaError | None = None
        """The controller's last word on the registration."""
        self._beats = 0
        self._answered = 0
        """The last heartbeat that was answered: answers to earlier ones are old news."""
        self._answered_ns = 0
        """When the controller was last heard; while this broker leaves, not before it began to."""
        self._back_ns = 0
        """When the controller was heard again after a silence. Who stood still itself, beside a controller that was
        deposed meanwhile, is answered at once: the next heartbeat shows whether it is heeded."""
        self._vouched_ns: int | None = None
        """When the last heartbeat was sent that was answered, and was no part of a silence."""
        self._is_missed = False
        """The controller has not answered for a session, and that was said."""
        self._is_fenced = True
        self._is_over = False
        self._when_unfenced: Callable[[], None] | None = None
        self._when_gone: Callable[[], None] | None = None
        self.epoch = -1
        """The broker epoch: of this registration, and of no other."""

    @property
    def is_in_touch(self) -> bool:
        """Whether nobody else can have been given what this broker leads, but by a decision of which it will hear."""
        vouched_ns = self._vouched_ns
        return (
            vouched_ns is not None
            and not self._is_fenced
            and self._world.clock_ns() - vouched_ns < self._lease_ns
        )

    def join(self, registration: RegisterBroker, unfenced: Callable[[], None]) -> None:
        """Register; `unfenced` is called once the cluster counts on this broker."""
        self._registration = registration
        self._when_unfenced = unfenced
        self._limit = self._world.call_later(self._registration_timeout_ms, self._not_registered)
        self._register()

    def join_cluster(self, cluster_id: str) -> None:
        """The cluster's id is known; it was not when this broker joined."""
        if self._registration is not None:
            self._registration = self._registration._replace(cluster_id=cluster_id)

    # -- registering -----------------------------------------------------------------------------------

    def _register(self) -> None:
        assert self._registration is not None
        self._cancel_timer()
        self._controller.submit(self._registration).then(self._registered)

    def _registered(self, answer: Any) -> None:
        if self._is_over:
            return
        if not isinstance(answer, KafkaError):
            self._cancel_limit()
            self.epoch = answer
            self._when_registered(answer)
            self._answered_ns = self._world.clock_ns()
            self._beat()
        elif answer.code in _PASSING:
            if answer.code is not getattr(self._refusal, "code", ErrorCode.NOT_CONTROLLER):
                logger.info("not registered yet: %s", answer)
            self._refusal = answer
            self._later(RETRY_MS, self._register)
        else:
            self.stop()
            self._failed(f"the controller refuses this broker: {answer}")

    def _not_registered(self) -> None:
        assert self._registration is not None
        self.stop()
        why: KafkaError | str = self._refusal or "it has not answered"
        if getattr(self._refusal, "code", None) is ErrorCode.DUPLICATE_BROKER_REGISTRATION:
            why = f"another broker with node.id {self._registration.broker_id} is registered and alive"
        self._failed(
            f"no controller has taken this broker in {self._registration_timeout_ms} ms "
            f"(initial.broker.registration.timeout.ms): {why}"
        )

    # -- alive -----------------------------------------------------------------------------------------

    def _beat(self) -> None:
        assert self._registration is not None
        heartbeat = BrokerHeartbeat(
            self._registration.broker_id,
            self.epoch,
            self._metadata_offset(),
            want_shutdown=self._when_gone is not None,
        )
        self._later(self._interval_ms, self._beat)
        self._beats += 1
        sent_ns = self._world.clock_ns()
        self._controller.submit(heartbeat).then(partial(self._heard, self._beats, self.epoch, sent_ns))

    def follow(self, image: ClusterImage, changed: Iterable[int]) -> None:
        """The image has these brokers otherwise than before. One that leaves waits until the controller knows that all
        others have read of it: it is told at once, rather than with the next heartbeat."""
        if self.epoch < 0 or self._is_fenced or self._when_gone is not None:
            return
        brokers = (image.brokers.get(each) for each in changed)
        if any(each is not None and each.in_controlled_shutdown and not each.fenced for each in brokers):
            self._later(0, self._beat)

    def _heard(self, beat: int, epoch: int, sent_ns: int, answer: Any) -> None:
        if self._is_over or beat < self._answered or epoch != self.epoch:
            return
        self._answered = beat
        if isinstance(answer, HeartbeatReply):
            self._note_answer(sent_ns)
            self._act_on(answer)
        elif answer.code is ErrorCode.STALE_BROKER_EPOCH:
            self._be_forgotten(answer)
        elif self._when_gone is not None and (
            self._has_lost_majority() or self._silent_ms() >= LONELY_MS_MAX
        ):
            logger.info("no controller is there to let this broker go: %s", answer)
            self._gone()
        else:
            self._miss(answer)
            self._later(RETRY_MS, self._beat)

    def _note_answer(self, sent_ns: int) -> None:
        now_ns = self._world.clock_ns()
        if now_ns - self._answered_ns >= self._lease_ns:
            self._back_ns = now_ns
        if sent_ns > self._back_ns:
            self._vouched_ns = sent_ns
        self._answered_ns = now_ns
        self._is_missed = False

    def _act_on(self, reply: HeartbeatReply) -> None:
        if self._when_gone is not None:
            if reply.should_shut_down:
                self._gone()
            else:
                self._later(RETRY_MS, self._beat)
            return
        if reply.is_fenced:
            if not self._is_fenced:
                logger.warning("the controller has fenced this broker; it asks to be taken back")
            self._is_fenced = True
            self._later(RETRY_MS, self._beat)
            return
        if self._when_unfenced is not None:
            call, self._when_unfenced = self._when_unfenced, None
            call()
        elif self._is_fenced:
            logger.info("the controller counts on this broker again")
        self._is_fenced = False

    def _be_forgotten(self, answer: KafkaError) -> None:
        if self._when_gone is not None:
            self._gone()  # nothing is led here any more, for all the cluster knows
            return
        logger.warning("%s; registering anew", answer)
        self.epoch = -1
        self._is_fenced = True
        self._register()

    def _miss(self, answer: KafkaError) -> None:
        silent_ms = self._silent_ms()
        if silent_ms >= self._session_timeout_ms and not self._is_missed:
            self._is_missed = True
            logger.warning("the controller has not answered for %.0f ms: %s", silent_ms, answer)

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

    def _cancel_limit(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None

    # -- leaving ---------------------------------------------------------------------------------------

    def leave(self, gone: Callable[[], None]) -> None:
        """Hand over what is led here; `gone` is called when the controller lets go, or after a while."""
        self._when_gone = gone
        self._cancel_limit()
        if self.epoch < 0:
            self._gone()
            return
        self._limit = self._world.call_later(LEAVE_MS_MAX, self._give_up)
        self._answered_ns = self._world.clock_ns()
        self._beat()

    def _give_up(self) -> None:
        logger.warning(
            "the controller has not let this broker go in %s ms; it goes nevertheless", LEAVE_MS_MAX
        )
        self._gone()

    def _gone(self) -> None:
        self.stop()
        if self._when_gone is not None:
            call, self._when_gone = self._when_gone, None
            call()

    def stop(self) -> None:
        """Ask nothing any more, and act on no answer."""
        self._is_over = True
        self._cancel_timer()
        self._cancel_limit()
