"""A queue of steps, one request each, which a client takes in order across reconnects and restarts of nodes.

A step stays first until it calls `_done`. It is repeated when it calls `_again`, and on a new connection.
"""

from collections import deque
from collections.abc import Callable

from penstock.sim.clients.client import Client
from penstock.sim.clients.messages import R, Request
from penstock.wire.peers import Address


class StepQueue:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._steps: deque[Callable[[], None]] = deque()
        self._requests = 0
        """Counts requests and interruptions. Replies to earlier requests are ignored."""
        self._is_at_work = False
        """Whether the first step was taken, and waits for its reply or to be repeated."""
        self._paused_until_us = 0
        self._is_resumed = False
        """Whether the versions of the connection are known, so that steps may be taken."""

    def pause(self, duration_us: int) -> None:
        """Take no step for a while. Replies are still handled."""
        self._paused_until_us = self._client.context.schedule.now_us + duration_us
        self._client.later(duration_us, self._go_on)

    def _interrupt(self) -> None:
        """Ignore the reply to the current request."""
        self._requests += 1
        self._is_at_work = False

    def _go_on(self) -> None:
        if self._client.context.schedule.now_us < self._paused_until_us:
            return
        if self._steps and not self._is_at_work and self._is_resumed and self._client.link is not None:
            self._is_at_work = True
            self._steps[0]()

    def _done(self) -> None:
        """Finish the first step, and take the next one."""
        self._steps.popleft()
        self._is_at_work = False
        self._go_on()

    def _again(self, pause_us: int = 0) -> None:
        """Repeat the first step after a short pause."""
        number = self._requests

        def again() -> None:
            if number == self._requests and self._client.link is not None:
                self._is_at_work = False
                self._go_on()

        client = self._client
        client.later(pause_us + client.context.patience * client.rng.randrange(2_000, 30_000), again)

    def _call(self, request: Request[R], on_reply: Callable[[R], None], to: Address | None = None) -> None:
        self._requests += 1
        number = self._requests

        def if_current(reply: R) -> None:
            if number == self._requests:
                on_reply(reply)

        self._client.call(request, if_current, to=to)
