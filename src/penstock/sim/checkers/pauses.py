"""Liveness with a bound. Without these rules a run finds only waits that never end, since the end of the faults ends
all others.

    AckedInTime        a batch of an idempotent producer is acknowledged within an allowance, while exactly one disk is
                       in trouble and everything else works, and has worked for the whole wait
    ReplicatedInTime   the high watermark reaches a log end, or a follower copies what is below it, within an
                       allowance, while everything works

The allowance of the first covers consecutive steps: the replica leaves the ISR or hands over leadership; the client
gets an error, backs off, refreshes metadata and retries. A slow disk may add some syncs. The allowance of the second
covers a connection attempt that began just before the network was healed, and a backoff. A replica that lost its log
may take longer to copy it, so a follower that gets further below the high watermark counts.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from penstock.base.ids import LeaderEpoch, Offset
from penstock.replica.partition import Partition
from penstock.server.node import Node
from penstock.sim.checkers.history import Acked, Batch, Event, Sent
from penstock.sim.checkers.violation import Violation
from penstock.sim.faults.disk_troubles import Trouble
from penstock.sim.world.machine import Machine, State

LOOK_EVERY: Final = 50
"""Events between two checks."""

ALLOWANCE_US: Final = 10_000_000
"""Far less than the default `replica.lag.time.max.ms` of 30 s, after which a leader drops a stalled follower. Clients
here wait up to 5 s for a reply, and sessions last up to 9 s."""

SLOW_SYNCS: Final = 4
"""How many consecutive syncs of a slow disk a batch may wait for."""


REPLICATED_US_MAX: Final = 5_000_000
"""More than `DIAL_MS_MAX`, a backoff and a delayed packet. After `replica.lag.time.max.ms`, longer in most runs, the
leader drops the follower and goes on without it."""


class AckedInTime:
    """Sees every event, and checks the machines between events."""

    def __init__(
        self,
        producers: Iterable[str],
        machines: Sequence[Machine],
        now_us: Callable[[], int],
        is_network_whole: Callable[[], bool],
    ) -> None:
        """`producers` are idempotent, and retry until a batch is acknowledged."""
        self._producers = frozenset(producers)
        self._machines = machines
        self._now_us = now_us
        self._is_network_whole = is_network_whole
        self._waiting: dict[str, dict[int, tuple[Batch, int]]] = {}
        """Unacknowledged batches by producer and number, with the time of the first send."""
        self._well_since_us = 0

    def see(self, event: Event) -> None:
        if isinstance(event, Sent):
            batch = event.batch
            if batch.producer in self._producers:
                self._waiting.setdefault(batch.producer, {}).setdefault(batch.number, (batch, self._now_us()))
        elif isinstance(event, Acked):
            self._waiting.get(event.batch.producer, {}).pop(event.batch.number, None)

    def look(self) -> None:
        now_us = self._now_us()
        troubled = [each for each in self._machines if each.trouble is not None]
        if len(troubled) != 1 or not self._is_well_but(troubled[0]):
            self._well_since_us = now_us
            return
        trouble = troubled[0].trouble
        assert trouble is not None
        allowance_us = ALLOWANCE_US
        if trouble.kind is Trouble.SLOW:
            allowance_us += round(SLOW_SYNCS * trouble.sync_s * 1_000_000)
        if now_us - self._well_since_us <= allowance_us:
            return
        for waiting in self._waiting.values():
            for batch, sent_us in waiting.values():
                waited_us = now_us - max(sent_us, self._well_since_us)
                if waited_us > allowance_us:
                    raise Violation(
                        f"AckedInTime: {batch} has waited for {waited_us // 1000} ms while the only fault is that "
                        f"{troubled[0].host} has a disk that {trouble}"
                    )

    def _is_well_but(self, troubled: Machine) -> bool:
        """Return whether all other machines are up, connected and in sync."""
        return self._is_network_whole() and all(
            each is troubled or _is_well(each, troubled.number) for each in self._machines
        )


def _is_well(machine: Machine, troubled: int) -> bool:
    node = machine.node
    if machine.state is not State.UP or machine.is_paused or not isinstance(node, Node):
        return False
    return all(
        machine.number in partition.isr and _has_enough(partition.replicas, troubled)
        for topic in node.context.image.topics.values()
        for partition in topic.partitions.values()
        if machine.number in partition.replicas
    )


def _has_enough(replicas: tuple[int, ...], troubled: int) -> bool:
    """Return whether acks=all has enough replicas without the one in trouble."""
    return troubled not in replicas or len(replicas) > 2


class _Wait(NamedTuple):
    """A led partition whose high watermark is behind."""

    log_end: Offset
    """Its log end when that was first seen."""
    copied: Offset
    """The sum of the log ends of followers below the high watermark, at `since_us`."""
    since_us: int


class ReplicatedInTime:
    """Checks the machines between events."""

    def __init__(
        self, machines: Sequence[Machine], now_us: Callable[[], int], is_network_whole: Callable[[], bool]
    ) -> None:
        self._machines = machines
        self._now_us = now_us
        self._is_network_whole = is_network_whole
        self._waiting: dict[tuple[Partition, LeaderEpoch], _Wait] = {}
        self._syncs_end_us = 0
        """When the last sync that a slow disk began must have ended."""

    def look(self) -> None:
        now_us = self._now_us()
        for machine in self._machines:
            trouble = machine.trouble
            if trouble is not None and trouble.kind is Trouble.SLOW:
                self._syncs_end_us = now_us + round(SLOW_SYNCS * trouble.sync_s * 1_000_000)
        if now_us < self._syncs_end_us or not self._is_well():
            self._waiting.clear()
            return
        for machine in self._machines:
            assert isinstance(machine.node, Node)
            for at, partition in machine.node.context.replicas.partitions.items():
                if partition.is_leader:
                    waited_us = self._waited_us(partition, now_us)
                    if waited_us > REPLICATED_US_MAX:
                        raise Violation(
                            f"ReplicatedInTime: the high watermark of {at} at {machine.host} has been "
                            f"{partition.high_watermark} for {waited_us // 1000} ms, while the log end is "
                            f"{partition.log.log_end} and everything works"
                        )

    def _waited_us(self, partition: Partition, now_us: int) -> int:
        key = partition, partition.leader_epoch
        wait = self._waiting.get(key)
        if wait is not None and partition.high_watermark >= wait.log_end:
            del self._waiting[key]
            wait = None
        if partition.high_watermark >= partition.log.log_end:
            return 0
        followers = () if partition.isr is None else partition.isr.followers.values()
        copied = sum(each.log_end for each in followers if each.log_end < partition.high_watermark)
        if wait is None:
            self._waiting[key] = wait = _Wait(partition.log.log_end, copied, now_us)
        elif copied > wait.copied:
            self._waiting[key] = wait = wait._replace(copied=copied, since_us=now_us)
        return now_us - wait.since_us

    def _is_well(self) -> bool:
        return self._is_network_whole() and all(
            each.state is State.UP
            and not each.is_paused
            and each.trouble is None
            and isinstance(each.node, Node)
            for each in self._machines
        )
