"""Moves leadership back to preferred replicas from time to time, for instance after a broker was down.

The preferred replica of a partition is its first one; placement spreads them evenly over brokers.
`leader.imbalance.check.interval.seconds` sets the interval, and `auto.leader.rebalance.enable` switches it on or off.
"""

from typing import Final

from penstock.base.ids import TimestampMs
from penstock.metadata import records as s
from penstock.metadata.configs import broker_flag, broker_setting

from .elections import Elect, PartitionEdit, acceptance
from .view import ControllerView

ELECTIONS_MAX: Final = 1000
"""Elections in one batch, as in Kafka. The rest follow at the next tick."""


class Balancing:
    """Decides when to check for partitions that their preferred replica does not lead."""

    def __init__(self, view: ControllerView, now_ms: TimestampMs) -> None:
        self._due_ms = now_ms + _interval_ms(view)

    def due(self, view: ControllerView, now_ms: TimestampMs) -> list[s.AnyRecord]:
        """Return the elections that restore preferred leaders, if a check is due."""
        if now_ms < self._due_ms:
            return []
        records: list[s.AnyRecord] = []
        if broker_flag("auto.leader.rebalance.enable", view.image, view.settings):
            records = restored(view)
        if len(records) < ELECTIONS_MAX:
            self._due_ms = now_ms + _interval_ms(view)
        return records


def _interval_ms(view: ControllerView) -> int:
    return 1000 * int(
        broker_setting("leader.imbalance.check.interval.seconds", view.image, view.settings) or 300
    )


def restored(view: ControllerView) -> list[s.AnyRecord]:
    records: list[s.AnyRecord] = []
    for topic, number, partition in view.partitions():
        preferred = partition.replicas[0]
        if partition.leader in (preferred, s.NO_LEADER) or preferred not in partition.isr:
            continue
        acceptable = acceptance(view.image, partition)
        edit = PartitionEdit(view, topic, number, partition, acceptable, elect=Elect.PREFERRED)
        record = edit.record() if acceptable(preferred) else None
        if record is not None:
            records.append(record)
        if len(records) == ELECTIONS_MAX:
            break
    return records
