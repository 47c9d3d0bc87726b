"""A cost model for CPU on the event loop: virtual time stands still while a node works, so work is charged instead.

Each record that is decoded on a node's loop costs RECORD_US. The charge moves the node's own clock (`clock_ns`) until
the event is over, and no event may cost more than HELD_US_MAX: that is the rule `HeldLoop`. What a node does beside
its loop costs nothing here, since others are served meanwhile.

Records are decoded on the loop in one place, `Log.context`; while costs are charged, that is watched.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from penstock.base.ids import TimestampMs
from penstock.records import HasLoopTime, ProduceRules, RecordBatch, validate_produced
from penstock.sim.checkers.violation import Violation
from penstock.storage import log as log_module

RECORD_US: Final = 10
"""Some machine that is ten times as slow as the one on which a record was found to take 1.3 us."""

HELD_US_MAX: Final = 20_000


class LoopCosts:
    """What the event that happens now has cost its node."""

    def __init__(self) -> None:
        self.us = 0
        self.most_us = 0
        """Of one event so far."""

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
    """Charge what is decoded; None for not at all."""
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
