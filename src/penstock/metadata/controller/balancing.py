"""Preferred leaders, restored from time to time: after a broker was away, others lead what it led.

The first replica of each partition leads it, where it can; placement has spread them evenly. How often it is looked
is `leader.imbalance.check.interval.seconds`, whether at all `auto.leader.rebalance.enable`.
"""

from typing import Final

from penstock.base.ids import TimestampMs
from penstock.metadata import records as s
from penstock.metadata.configs import broker_flag, broker_setting

from .elections import Elect, PartitionEdit, acceptance
from .view import ControllerView

ELECTIONS_MAX: Final = 1000
"""In one batch; Kafka's number. Those that are left come with the next tick."""


class Balancing:
    """When it is time to look."""

    def __init__(self, view: ControllerView, now_ms: TimestampMs) -> None:
        self._due_ms = now_ms + _interval_ms(view)

    def due(self, view: ControllerView, now_ms: TimestampMs) -> list[s.AnyRecord]:
        """The elections that bring preferred leaders back, if it is time."""
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
