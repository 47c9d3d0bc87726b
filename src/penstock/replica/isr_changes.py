"""Sends the ISR changes that leaders on this broker propose to the controller.

    a follower caught up, or fell behind --> propose --> AlterPartition, all proposals of a tick in one request
                                                             |  one request in flight at a time
    the partition applies the decision <--------------------+  undecided proposals are sent again

A leader whose log is damaged, or whose disk fails, proposes an ISR without itself: then another replica leads. A
follower whose disk fails asks the controller itself (`failing_disk`).

The decision reaches the partition twice, in the response and through the metadata log. The order does not matter: the
partition compares partition epochs.

Lagging followers are looked for twice in `replica.lag.time.max.ms`, so a follower leaves the ISR after 1.5 times that
at the latest."""

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.promise import Promise
from penstock.base.world import Timer, World
from penstock.metadata.controller.port import ControllerPort
from penstock.metadata.controller.requests import AlterPartition, IsrChange, IsrChanged
from penstock.metadata.image import ClusterImage
from penstock.metadata.records import RECOVERED

if TYPE_CHECKING:
    from penstock.replica.failing_disk import FailingDisk
    from penstock.replica.partition import Partition

logger = logging.getLogger(__name__)

RETRY_MS: Final = 50
"""How long Kafka waits before it sends an undecided proposal again."""

CHANGES_MAX: Final = 1000
"""In one request, which takes the controller some ten milliseconds."""

NAMED_MAX: Final = 5
"""How many partitions a log line names."""

_STALE: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)
"""The controller has newer metadata. The proposal stays pending until that metadata arrives."""

_UNCHANGED: Final = frozenset(
    {
        ErrorCode.INELIGIBLE_REPLICA,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
    }
)
"""The leader's metadata is current, and the controller rejects the change."""


class _Proposal(NamedTuple):
    partition: "Partition"
    change: IsrChange

    @property
    def is_pending(self) -> bool:
        """Whether the partition still leads in the same epoch and has no decision yet."""
        isr = self.partition.isr
        return isr is not None and isr.pending is self.change


class IsrChanges:
    def __init__(
        self,
        world: World,
        controller: ControllerPort,
        node_id: int,
        broker_epoch: Callable[[], int],
        image: Callable[[], ClusterImage],
        lag_ms_max: int,
        has_lease: Callable[[], bool] = lambda: True,
    ) -> None:
        """`lag_ms_max` is `replica.lag.time.max.ms`. `has_lease` returns whether this broker's lease holds, so that
        the controller cannot have elected other leaders."""
        self.lag_ms_max = lag_ms_max
        self.has_lease = has_lease
        self.failing: FailingDisk | None = None
        """Takes replicas with a failing disk out of the ISR."""
        self.shrinks = self.expands = 0
        """ISRs led here that became smaller, or larger."""
        self.failures = 0
        """Proposals that the controller rejected."""
        self._world = world
        self._controller = controller
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._image = image
        self._proposals: list[_Proposal] = []
        """To be sent next."""
        self._is_sending = False
        """A request is in flight, or about to be sent."""
        self._leading: dict[Partition, None] = {}
        """Partitions with followers."""
        self._timer: Timer | None = None
        self._checked_ms = 0
        self._is_stopped = False

    def now_ms(self) -> int:
        """By a monotonic clock."""
        return self._world.clock_ns() // 1_000_000

    def stop(self) -> None:
        """Send nothing more."""
        self._is_stopped = True
        self._proposals.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # -- brokers ---------------------------------------------------------------------------------------

    def is_eligible(self, broker_id: int, broker_epoch: int) -> bool:
        """Whether a broker may join an ISR: it is neither fenced nor shutting down, and has this broker epoch."""
        broker = self._image().brokers.get(broker_id)
        return broker is not None and broker.is_active and broker_epoch in (-1, broker.epoch)

    def is_alive(self, broker_id: int) -> bool:
        broker = self._image().brokers.get(broker_id)
        return broker is not None and not broker.fenced

    def is_former(self, broker_id: int, broker_epoch: int) -> bool:
        """Whether the broker has registered again since this broker epoch."""
        if broker_epoch < 0:
            return False
        broker = self._image().brokers.get(broker_id)
        return broker is not None and broker.epoch > broker_epoch

    def count(self, before: int, after: int) -> None:
        """Count a change of an ISR's size."""
        self.shrinks += after < before
        self.expands += after > before

    # -- lagging followers -----------------------------------------------------------------------------

    def watch(self, partition: "Partition") -> None:
        """Look for lagging followers of a partition that is led here."""
        self._leading[partition] = None
        if self._timer is None and not self._is_stopped:
            self._checked_ms = self.now_ms()
            self._timer = self._world.call_later(self.lag_ms_max / 2, self._check)

    def unwatch(self, partition: "Partition") -> None:
        self._leading.pop(partition, None)

    def _check(self) -> None:
        self._timer = None
        if not self._leading or self._is_stopped:
            return
        now_ms = self.now_ms()
        # After a pause of this process no fetch has been processed, so no follower can be called lagging.
        if now_ms - self._checked_ms <= self.lag_ms_max:
            for partition in list(self._leading):
                partition.drop_lagging(now_ms)
        self._checked_ms = now_ms
        self._timer = self._world.call_later(self.lag_ms_max / 2, self._check)

    # -- AlterPartition --------------------------------------------------------------------------------

    def propose(
        self, partition: "Partition", members: tuple[int, ...], recovery_state: int = RECOVERED
    ) -> None:
        """Propose an ISR. `Partition.isr_decided` or `isr_refused` is called with the decision."""
        isr = partition.isr
        assert isr is not None
        change = IsrChange(
            partition.topic_id,
            partition.number,
            partition.leader_epoch,
            partition.partition_epoch,
            isr.members(members, self._broker_epoch()),
            recovery_state,
        )
        isr.propose(change)
        self._proposals.append(_Proposal(partition, change))
        if not self._is_sending and not self._is_stopped:
            self._is_sending = True
            self._world.call_soon(self._send)

    def _send(self) -> None:
        proposals, self._proposals = self._proposals[:CHANGES_MAX], self._proposals[CHANGES_MAX:]
        proposals = [each for each in proposals if each.is_pending]
        if self._is_stopped or not (proposals or self._proposals):
            self._is_sending = False
            return
        if not proposals:
            self._world.call_soon(self._send)
            return
        logger.info("proposing ISRs: %s", _shown(proposals))
        request = AlterPartition(
            self._node_id, self._broker_epoch(), tuple(each.change for each in proposals)
        )
        response: Promise[Any] = self._controller.submit(request)
        response.then(partial(self._decided, proposals), partial(self._failed, proposals))

    def _failed(self, proposals: list[_Proposal], error: KafkaError) -> None:
        if not self._is_stopped:
            logger.warning("ISRs of %d partitions could not be changed: %s", len(proposals), error)
            self._go_on(proposals)

    def _decided(self, proposals: list[_Proposal], response: tuple[IsrChanged, ...]) -> None:
        if self._is_stopped:
            return
        undecided: list[_Proposal] = []
        decisions = {(each.topic_id, each.partition): each for each in response}
        for proposal in proposals:
            decision = decisions.get((proposal.change.topic_id, proposal.change.partition))
            if decision is None or not self._apply(proposal, decision):
                undecided.append(proposal)
        self._go_on(undecided)

    def _go_on(self, undecided: list[_Proposal]) -> None:
        """Send undecided proposals again after a while, and others now."""
        self._proposals = [each for each in undecided if each.is_pending] + self._proposals
        if undecided:
            self._world.call_later(RETRY_MS, self._send)
        elif self._proposals:
            self._world.call_soon(self._send)
        else:
            self._is_sending = False

    def _apply(self, proposal: _Proposal, decision: IsrChanged) -> bool:
        """Apply a decision to its partition; False if the controller could not decide."""
        if not proposal.is_pending:
            return True  # the metadata log was faster
        partition = proposal.partition
        code = decision.result.code
        if code is ErrorCode.NONE:
            partition.isr_decided(decision.leader_epoch, decision.partition_epoch, decision.isr)
            return True
        if code not in _STALE and code not in _UNCHANGED:
            logger.warning("the ISR of %s could not be changed: %s", partition.name, decision.result.message)
            return False
        self.failures += 1
        logger.info("the ISR of %s is not changed: %s", partition.name, decision.result.message)
        if code in _UNCHANGED:
            partition.isr_refused()
        return True


def _shown(proposals: list[_Proposal]) -> str:
    """The first few: when a broker comes back, thousands change."""
    named = [
        f"{each.partition.name} {[member.broker_id for member in each.change.isr]}"
        for each in proposals[:NAMED_MAX]
    ]
    more = len(proposals) - len(named)
    return ", ".join(named) + (f" and {more} more" if more else "")
