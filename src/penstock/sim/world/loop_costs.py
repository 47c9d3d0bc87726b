"""A cost model for CPU time on the event loop. Virtual time stands still while a node works, so work is charged.

Each record decoded on a node's loop costs RECORD_US. The cost advances the node's clock (`clock_ns`) until the event
ends. The rule `HeldLoop` limits the cost of one event to HELD_US_MAX. Work beside the loop costs nothing, since the
loop serves other clients meanwhile.

`Log.stage` is the only place that decodes records on the loop; `charging` wraps its validation.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from penstock.base.ids import TimestampMs
from penstock.records import HasLoopTime, ProduceRules, RecordBatch, validate_produced
from penstock.sim.checkers.violation import Violation
from penstock.storage import log as log_module

RECORD_US: Final = 10
"""About ten times the measured 1.3 us, for slow machines."""

HELD_US_MAX: Final = 20_000


class LoopCosts:
    """The cost of the current event."""

    def __init__(self) -> None:
        self.us = 0
        self.most_us = 0
        """Highest cost of one event so far."""

    def begin(self) -> None:
        self.us = 0

    def end(self, host: str) -> None:
        us, self.us = self.us, 0
        self.most_us = max(self.most_us, us)
        if us > HELD_US_MAX:
            raise Violation(
                f"HeldLoop: {host} held its event loop for {us // 1000} ms, at most {HELD_US_MAX // 1000} allowed"
            )


@contextmanager
def charging(costs: LoopCosts | None) -> Iterator[None]:
    """Charge decoded records to `costs`; do nothing if it is None."""
    if costs is None:
        yield
        return

    def validate(
        batch: RecordBatch, rules: ProduceRules, now_ms: TimestampMs, has_loop_time: HasLoopTime | None = None
    ) -> None:
        validate_produced(
            batch, rules, now_ms, has_loop_time
        )  # where it raises, nothing, or little, was decoded
        if rules.check_records or rules.compacted:
            costs.us += batch.count * RECORD_US

    before = validate_produced
    log_module.validate_produced = validate  # type: ignore[attr-defined]
    try:
        yield
    finally:
        log_module.validate_produced = before  # type: ignore[attr-defined]
