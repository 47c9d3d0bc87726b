"""Preferred leaders, restored from time to time: after a broker was away, others lead what it led.

The first replica of each partition leads it, where it can; placement has spread them evenly. How often it is looked
is `leader.imbalance.check.interval.seconds`, whether at all `auto.leader.rebalance.enable`.
"""

from typing import Final

from penstock.base.ids import TimestampMs
from penstock.metadata import schema as s
from penstock.metadata.configs import broker_flag, broker_setting

from .elections import Elect, PartitionEdit, acceptance
from .scene import Scene

ELECTIONS_MAX: Final = 1000
"""In one batch; Kafka's number. Those that are left come with the next tick."""


class Balancing:
    """When it is time to look."""

    def __init__(self, scene: Scene, now_ms: TimestampMs) -> None:
        self._due_ms = now_ms + _interval_ms(scene)

    def due(self, scene: Scene, now_ms: TimestampMs) -> list[s.AnyRecord]:
        """The elections that bring preferred leaders back, if it is time."""
        if now_ms < self._due_ms:
            return []
        records: list[s.AnyRecord] = []
        if broker_flag("auto.leader.rebalance.enable", scene.image, scene.settings):
            records = restored(scene)
        if len(records) < ELECTIONS_MAX:
            self._due_ms = now_ms + _interval_ms(scene)
        return records


def _interval_ms(scene: Scene) -> int:
    return 1000 * int(
        broker_setting("leader.imbalance.check.interval.seconds", scene.image, scene.settings) or 300
    )


def restored(scene: Scene) -> list[s.AnyRecord]:
    records: list[s.AnyRecord] = []
    for topic, number, partition in scene.partitions():
        preferred = partition.replicas[0]
        if partition.leader in (preferred, s.NO_LEADER) or preferred not in partition.isr:
            continue
        acceptable = acceptance(scene.image, partition)
        edit = PartitionEdit(scene, topic, number, partition, acceptable, elect=Elect.PREFERRED)
        record = edit.record() if acceptable(preferred) else None
        if record is not None:
            records.append(record)
        if len(records) == ELECTIONS_MAX:
            break
    return records
