"""Consumers that request everything, and then do not read their connection for seconds.

The node's memory for such a client must be bounded, however much it requested: before it reads on, the client checks
how many bytes its connection holds. What it then reads is checked as for any consumer, although logs may have been
truncated, cleaned or deleted since the response began.
"""

from typing import Final, cast

from penstock.sim.checkers.violation import Violation
from penstock.sim.clients.client import ClientContext
from penstock.sim.clients.consumers import ConsumerPlan, Rereader
from penstock.sim.world.tcp import Link

SETTINGS: Final = {"client.buffers.max.bytes": str(1 << 20)}
"""The lowest allowed value: responses are read in steps of 8 KB."""

STEP_BYTES: Final = 8 * 1024
HELD_BYTES_MAX: Final = 16 * 1024 + STEP_BYTES + 2048
"""The transport's high watermark, one step, and response fields around the records."""

STALL_US_MAX: Final = 3_000_000


class SlowReader(Rereader):
    """Stalls after some of its fetches."""

    def __init__(self, plan: ConsumerPlan, context: ClientContext) -> None:
        super().__init__(plan, context)
        self._stalled: list[Link] = []

    def _fetch(self) -> None:
        super()._fetch()
        if not self.context.network.is_calm and not self._stalled and self.rng.random() < 0.5:
            self._stall()

    def _stall(self) -> None:
        self._stalled = [
            cast(Link, connection.link)
            for connection in self._connections.values()
            if connection.link is not None
        ]
        for link in self._stalled:
            link.stop_reading()
        self.later(self.rng.randrange(100_000, STALL_US_MAX), self._read_on)

    def _read_on(self) -> None:
        stalled, self._stalled = self._stalled, []
        for link in stalled:
            held = link.far.held_bytes
            if held > HELD_BYTES_MAX:
                raise Violation(
                    f"BoundedMemory: {self.name} did not read, and {link.far.host} holds {held} bytes for it, "
                    f"expected at most {HELD_BYTES_MAX}"
                )
            link.read_on()
