"""Steps that a client takes one after the other, a request each, over connections and processes of the node.

A step stays the first until it says that it is done. It is taken again when it asks for that, and on a new connection.
"""

from collections import deque
from collections.abc import Callable

from penstock.sim.clients.client import Client
from penstock.wire import Api
from penstock.wire.peers import Address


class StepQueue:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._steps: deque[Callable[[], None]] = deque()
        self._asked = 0
        """Counts what was asked, and interruptions. What is heard of something earlier is nothing."""
        self._is_at_work = False
        """Whether the first step has been taken, and waits for its answer, or to be taken again."""
        self._paused_until_us = 0
        self._is_resumed = False
        """Whether the connection has come so far that a step may be taken: its versions are known."""

    def pause(self, duration_us: int) -> None:
        """Take no step for a while. What is heard meanwhile counts."""
        self._paused_until_us = self._client.context.schedule.now_us + duration_us
        self._client.later(duration_us, self._go_on)

    def _interrupt(self) -> None:
        """Whatever is under way, its answer is not waited for."""
        self._asked += 1
        self._is_at_work = False

    def _go_on(self) -> None:
        if self._client.context.schedule.now_us < self._paused_until_us:
            return
        if self._steps and not self._is_at_work and self._is_resumed and self._client.link is not None:
            self._is_at_work = True
            self._steps[0]()

    def _done(self) -> None:
        """The first step is done: there may be another."""
        self._steps.popleft()
        self._is_at_work = False
        self._go_on()

    def _again(self, pause_us: int = 0) -> None:
        """The same step once more, a little later."""
        asked = self._asked

        def again() -> None:
            if asked == self._asked and self._client.link is not None:
                self._is_at_work = False
                self._go_on()

        client = self._client
        client.later(pause_us + client.context.patience * client.rng.randrange(2_000, 30_000), again)

    def _ask(
        self,
        api: Api,
        body: bytes,
        heard: Callable[[int, memoryview], None],
        to: Address | None = None,
    ) -> None:
        self._asked += 1
        asked = self._asked

        def heard_still(version: int, body: memoryview) -> None:
            if asked == self._asked:
                heard(version, body)

        self._client.ask(api, body, heard_still, to=to)

    def _version(self, api: Api) -> int:
        return self._client.versions[api]
