"""A broker's place in its cluster: registered, alive, and, before it stops, relieved of what it leads.

    register --> fenced --> (has read its own registration) --> unfenced --> ... --> leaving --> gone
                 heartbeats all the while

The controller is asked through a port, whether it is in this process or elsewhere.
"""

import logging
from collections.abc import Callable
from typing import Any, Final

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import Offset
from penstock.base.world import Timer, World
from penstock.handlers.context import ControllerPort
from penstock.metadata.controller.requests import BrokerHeartbeat, HeartbeatReply, RegisterBroker

logger = logging.getLogger(__name__)

RETRY_MS: Final = 50
"""How soon the controller is asked again after a refusal."""

LEAVE_MS_MAX: Final = 5000
"""How long a stop waits for the controller's leave; then the broker goes without."""


class Lifecycle:
    def __init__(
        self,
        world: World,
        controller: ControllerPort,
        *,
        heartbeat_interval_ms: int,
        metadata_offset: Callable[[], Offset],
        failed: Callable[[str], None],
    ) -> None:
        self._world = world
        self._controller = controller
        self._interval_ms = heartbeat_interval_ms
        self._metadata_offset = metadata_offset
        self._failed = failed
        self._registration: RegisterBroker | None = None
        self._timer: Timer | None = None
        """Until the next question to the controller."""
        self._leave_timer: Timer | None = None
        self._when_unfenced: Callable[[], None] | None = None
        self._when_gone: Callable[[], None] | None = None
        self.epoch = -1
        """The broker epoch: of this registration, and of no other."""

    def join(self, registration: RegisterBroker, unfenced: Callable[[], None]) -> None:
        """Register; `unfenced` is called once the cluster counts on this broker."""
        self._registration = registration
        self._when_unfenced = unfenced
        self._register()

    def _register(self) -> None:
        assert self._registration is not None
        self._controller.submit(self._registration).then(self._registered)

    def _registered(self, answer: Any) -> None:
        if not isinstance(answer, KafkaError):
            self.epoch = answer
            self._beat()
        elif answer.code in (ErrorCode.NOT_CONTROLLER, ErrorCode.DUPLICATE_BROKER_REGISTRATION):
            self._later(RETRY_MS, self._register)
        else:
            self._failed(f"the controller refuses this broker: {answer}")

    # -- alive -----------------------------------------------------------------------------------------

    def _beat(self) -> None:
        assert self._registration is not None
        heartbeat = BrokerHeartbeat(
            self._registration.broker_id,
            self.epoch,
            self._metadata_offset(),
            want_shutdown=self._when_gone is not None,
        )
        self._controller.submit(heartbeat).then(self._heard)

    def _heard(self, answer: Any) -> None:
        if isinstance(answer, HeartbeatReply):
            self._act_on(answer)
        elif answer.code is ErrorCode.STALE_BROKER_EPOCH and self._when_gone is None:
            logger.warning("%s; registering anew", answer)
            self._register()
        else:
            self._later(RETRY_MS, self._beat)

    def _act_on(self, reply: HeartbeatReply) -> None:
        if self._when_gone is not None:
            if reply.should_shut_down:
                self._gone()
            else:
                self._later(RETRY_MS, self._beat)
            return
        if reply.is_fenced:
            self._later(RETRY_MS, self._beat)
            return
        if self._when_unfenced is not None:
            call, self._when_unfenced = self._when_unfenced, None
            call()
        self._later(self._interval_ms, self._beat)

    def _later(self, delay_ms: int, call: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._world.call_later(delay_ms, call)

    # -- leaving ---------------------------------------------------------------------------------------

    def leave(self, gone: Callable[[], None]) -> None:
        """Hand over what is led here; `gone` is called when the controller lets go, or after a while."""
        self._when_gone = gone
        if self.epoch < 0:
            self._gone()
            return
        self._leave_timer = self._world.call_later(LEAVE_MS_MAX, self._give_up)
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
        for timer in (self._timer, self._leave_timer):
            if timer is not None:
                timer.cancel()
