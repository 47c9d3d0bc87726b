"""What leaders on this node wish to be changed in ISRs, on its way to the controller.

    a follower has caught up, or fell behind --> propose --> AlterPartition, all wishes of a turn in one
                                                                 |  one is under way at a time
    the partition is told  <------------------------------------+  what could not be decided is asked again

A leader whose own log is damaged, or whose disk fails, wishes for an ISR without itself: then another replica leads.
A follower whose disk fails asks by itself (`failing_disk`).

Whether the answer or the metadata log is first to say what was decided makes no difference to the partition: it goes
by the partition's epoch.

Who fell behind is looked for twice in `replica.lag.time.max.ms`, so that a follower is out of the ISR at the latest
after one and a half times of it.
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.world import Timer, World
from penstock.metadata import ClusterImage
from penstock.metadata.controller.requests import AlterPartition, IsrChange, IsrChanged
from penstock.metadata.records import RECOVERED

if TYPE_CHECKING:
    from penstock.replica.failing_disk import FailingDisk
    from penstock.replica.partition import Partition
from penstock.metadata.controller.port import ControllerPort

logger = logging.getLogger(__name__)

RETRY_MS: Final = 50
"""Kafka's: after so long a wish that could not be decided is sent again."""

CHANGES_MAX: Final = 1000
"""In one request: what takes the controller some ten milliseconds."""

NAMED_MAX: Final = 5
"""Partitions that are named in the log where many change."""

_WAIT_FOR_THE_LOG: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)
"""The controller knows more than the leader, which will hear it from the metadata log."""

_UNCHANGED: Final = frozenset(
    {
        ErrorCode.INELIGIBLE_REPLICA,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
    }
)
"""The controller says that the leader's view is right, and that the change was not made."""


class _Wish(NamedTuple):
    partition: "Partition"
    change: IsrChange


class IsrChanges:
    def __init__(
        self,
        world: World,
        controller: ControllerPort,
        node_id: int,
        broker_epoch: Callable[[], int],
        image: Callable[[], ClusterImage],
        lag_ms_max: int,
        is_in_touch: Callable[[], bool] = lambda: True,
    ) -> None:
        """`lag_ms_max` is `replica.lag.time.max.ms`; `is_in_touch` says whether the controller is known to count
        on this node, so that nobody else can have been given what it leads."""
        self.lag_ms_max = lag_ms_max
        self.is_in_touch = is_in_touch
        self.failing: FailingDisk | None = None
        """Takes note of replicas whose disk fails."""
        self.shrinks = self.expands = 0
        """ISRs that became smaller, or larger, while they were led here."""
        self.failures = 0
        """Wishes that were refused."""
        self._world = world
        self._controller = controller
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._image = image
        self._wishes: list[_Wish] = []
        """What is to be sent next."""
        self._is_sending = False
        """A request is under way, or about to be."""
        self._leading: dict[Partition, None] = {}
        """Partitions with followers."""
        self._timer: Timer | None = None
        self._looked_ms = 0
        self._is_stopped = False

    def now_ms(self) -> int:
        """By a clock that never goes back."""
        return self._world.clock_ns() // 1_000_000

    def stop(self) -> None:
        """Ask for nothing more."""
        self._is_stopped = True
        self._wishes.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # -- who may be in sync ----------------------------------------------------------------------------

    def is_eligible(self, broker_id: int, broker_epoch: int) -> bool:
        """Whether a broker may join an ISR: it is there, does not stop, and is the one that fetches."""
        broker = self._image().brokers.get(broker_id)
        return broker is not None and broker.is_active and broker_epoch in (-1, broker.epoch)

    def is_alive(self, broker_id: int) -> bool:
        broker = self._image().brokers.get(broker_id)
        return broker is not None and not broker.fenced

    def is_former(self, broker_id: int, broker_epoch: int) -> bool:
        """Whether a request with this epoch comes from a former life of the broker."""
        if broker_epoch < 0:
            return False
        broker = self._image().brokers.get(broker_id)
        return broker is not None and broker.epoch > broker_epoch

    def count(self, before: int, after: int) -> None:
        """Take note of how an ISR changed."""
        self.shrinks += after < before
        self.expands += after > before

    # -- who fell behind -------------------------------------------------------------------------------

    def watch(self, partition: "Partition") -> None:
        """Look after a partition that is led here and has followers."""
        self._leading[partition] = None
        if self._timer is None and not self._is_stopped:
            self._looked_ms = self.now_ms()
            self._timer = self._world.call_later(self.lag_ms_max / 2, self._look)

    def unwatch(self, partition: "Partition") -> None:
        self._leading.pop(partition, None)

    def _look(self) -> None:
        self._timer = None
        if not self._leading or self._is_stopped:
            return
        now_ms = self.now_ms()
        # A node that itself stood still cannot tell who else did: it heard nobody.
        if now_ms - self._looked_ms <= self.lag_ms_max:
            for partition in list(self._leading):
                partition.drop_lagging(now_ms)
        self._looked_ms = now_ms
        self._timer = self._world.call_later(self.lag_ms_max / 2, self._look)

    # -- asking the controller -------------------------------------------------------------------------

    def propose(self, partition: "Partition", isr: tuple[int, ...], recovery_state: int = RECOVERED) -> None:
        """Ask for an ISR; `Partition.isr_decided` is told."""
        followers = partition.followers
        assert followers is not None
        change = IsrChange(
            partition.topic_id,
            partition.number,
            partition.leader_epoch,
            partition.partition_epoch,
            followers.members(isr, self._broker_epoch()),
            recovery_state,
        )
        followers.wish_for(change)
        self._wishes.append(_Wish(partition, change))
        if not self._is_sending and not self._is_stopped:
            self._is_sending = True
            self._world.call_soon(self._send)

    def _send(self) -> None:
        wishes, self._wishes = self._wishes[:CHANGES_MAX], self._wishes[CHANGES_MAX:]
        wishes = [each for each in wishes if _is_wanted(each)]
        if self._is_stopped or not (wishes or self._wishes):
            self._is_sending = False
            return
        if not wishes:
            self._world.call_soon(self._send)
            return
        logger.info("other ISRs are asked for: %s", _shown(wishes))
        request = AlterPartition(self._node_id, self._broker_epoch(), tuple(each.change for each in wishes))

        def answered(answer: tuple[IsrChanged, ...] | KafkaError) -> None:
            self._answered(wishes, answer)

        self._controller.submit(request).then(answered)

    def _answered(self, wishes: list[_Wish], answer: tuple[IsrChanged, ...] | KafkaError) -> None:
        if self._is_stopped:
            return
        again: list[_Wish] = []
        if isinstance(answer, KafkaError):
            logger.warning("ISRs of %d partitions could not be changed: %s", len(wishes), answer)
            again = wishes
        else:
            decided = {(each.topic_id, each.partition): each for each in answer}
            for wish in wishes:
                partition, change = wish
                reply = decided.get((change.topic_id, change.partition))
                if reply is None or not self._settle(partition, change, reply):
                    again.append(wish)
        self._wishes = [each for each in again if _is_wanted(each)] + self._wishes
        if again:
            self._world.call_later(RETRY_MS, self._send)
        elif self._wishes:
            self._world.call_soon(self._send)
        else:
            self._is_sending = False

    def _settle(self, partition: "Partition", change: IsrChange, reply: IsrChanged) -> bool:
        """Tell a partition; False if the controller could not decide."""
        if not _is_wanted(_Wish(partition, change)):
            return True  # the metadata log was first
        code = reply.result.code
        if code is ErrorCode.NONE:
            partition.isr_decided(reply.leader_epoch, reply.partition_epoch, reply.isr)
            return True
        if code not in _WAIT_FOR_THE_LOG and code not in _UNCHANGED:
            logger.warning("the ISR of %s could not be changed: %s", partition.name, reply.result.message)
            return False
        self.failures += 1
        logger.info("the ISR of %s is not changed: %s", partition.name, reply.result.message)
        if code in _UNCHANGED:
            partition.isr_refused()
        return True


def _shown(wishes: list[_Wish]) -> str:
    """A few of them: when a broker comes back, thousands change."""
    named = [
        f"{each.partition.name} {[member.broker_id for member in each.change.isr]}"
        for each in wishes[:NAMED_MAX]
    ]
    more = len(wishes) - len(named)
    return ", ".join(named) + (f" and {more} more" if more else "")


def _is_wanted(wish: _Wish) -> bool:
    """Whether the partition is still led in the same way, and has not heard of the decision yet."""
    followers = wish.partition.followers
    return followers is not None and followers.wish is wish.change
