"""A partition's followers as its leader knows them, and which of them are in sync.

    log start              high watermark                     log end
    leader    |----------------------|------------------------------|     105
    follower  |----------------------|                                     95     in sync: holds the watermark back
    follower  |-----------------|                                          90     not in sync: does not

The ISR is the controller's to change. Between the leader's wish and the controller's word both count: a follower that
is to join holds the high watermark back already, and one that is to leave still does. That is the maximal ISR; what
all of it has is committed whichever way the wish goes (KIP-497).

A follower is in sync as long as it has been at the log end within `replica.lag.time.max.ms`. When that last was is
known from its fetches: one that asks for the leader's log end is there now; one that asks for where the log ended at
its fetch before was there then. A follower that has nothing to fetch need not say so partition by partition: it is
at the end as long as nothing is written, and `left_behind` notes for how long it was seen there.

Times are milliseconds of a clock that never goes back.
"""

from collections.abc import Callable, Iterable
from typing import Final

from penstock.base.ids import Offset
from penstock.metadata.controller.requests import IsrChange, IsrMember
from penstock.metadata.image import Partition as Placed

UNKNOWN: Final = -1
"""The offset or broker epoch of a follower that has not fetched yet."""

NEVER: Final = -(2**62)
"""Longer ago than any lag that is allowed."""

JOINING_MS_MAX: Final = 1000
"""How long the high watermark waits for a replica that was at the log end and is not in the ISR. The leader asks the
controller for it at once, and waits for it until the controller has decided. One whose disk fails before that fetches
no more, and would hold every producer up for `replica.lag.time.max.ms`."""

IsEligible = Callable[[int, int], bool]
"""Whether a broker, of an epoch, may be in an ISR."""


class Seen:
    """A follower's fetcher: many partitions share it."""

    __slots__ = ("ms",)

    def __init__(self, ms: int) -> None:
        self.ms = ms
        """When it last asked for anything."""


class Follower:
    __slots__ = (
        "broker_epoch",
        "broker_id",
        "caught_up_ms",
        "fetched_end",
        "fetched_ms",
        "log_end",
        "log_start",
        "seen",
    )

    def __init__(self, broker_id: int, caught_up_ms: int) -> None:
        self.broker_id = broker_id
        self.broker_epoch = UNKNOWN
        self.log_end: Offset = UNKNOWN
        """What it asked for last: everything below is in its log."""
        self.log_start: Offset = UNKNOWN
        self.caught_up_ms = caught_up_ms
        """When it was last known to have all that the leader had."""
        self.fetched_end: Offset = UNKNOWN
        """Where the leader's log ended at its last fetch."""
        self.fetched_ms = 0
        self.seen: Seen | None = None

    def is_caught_up(self, log_end: Offset, now_ms: int, lag_ms_max: int) -> bool:
        return self.log_end == log_end or now_ms - self.caught_up_ms <= lag_ms_max

    def fetched(
        self, offset: Offset, log_start: Offset, leader_end: Offset, broker_epoch: int, now_ms: int
    ) -> None:
        if offset >= leader_end:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif offset >= self.fetched_end != UNKNOWN:
            self.caught_up_ms = max(self.caught_up_ms, self.fetched_ms)
        self.fetched_end, self.fetched_ms = leader_end, now_ms
        self.log_end, self.log_start, self.broker_epoch = offset, log_start, broker_epoch


class InSync:
    """Of one partition, while it is led here and has other replicas."""

    __slots__ = ("committed", "followers", "is_handing_over", "maximal", "node_id", "wish")

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.followers: dict[int, Follower] = {}
        """By broker, all replicas but this one."""
        self.committed: tuple[int, ...] = ()
        """The ISR, as far as the controller is known to have it."""
        self.wish: IsrChange | None = None
        """What the controller was asked for and has not decided, or has refused in a way that the metadata log will
        explain. There is one at most."""
        self.maximal: frozenset[int] = frozenset()
        """All that may be in sync."""
        self.is_handing_over = False
        """Damage was found in what the leader has: another replica is to lead."""

    def place(self, placed: Placed, now_ms: int, *, is_new_epoch: bool) -> None:
        """Take over what the metadata log says. In a new epoch nothing is known of followers but who is in sync, and
        these have their time to show up."""
        self.is_handing_over &= not is_new_epoch
        for broker_id in placed.replicas:
            if broker_id == self.node_id:
                continue
            if is_new_epoch or broker_id not in self.followers:
                self.followers[broker_id] = Follower(broker_id, now_ms if broker_id in placed.isr else 0)
        for broker_id in [each for each in self.followers if each not in placed.replicas]:
            del self.followers[broker_id]
        self.settle(placed.isr)

    def settle(self, isr: tuple[int, ...]) -> None:
        """The controller has decided. Who has left the ISR is waited for again when it has fetched again: one that
        left by itself, because its disk fails, was at the log end of late."""
        for broker_id in self.committed:
            if broker_id not in isr and (follower := self.followers.get(broker_id)) is not None:
                follower.caught_up_ms, follower.seen = NEVER, None
                # Its next fetch asks again for what it asked for before it failed: that proves nothing.
                follower.fetched_end = UNKNOWN
        self.committed, self.wish = isr, None
        self.maximal = frozenset(isr)

    def wish_for(self, change: IsrChange) -> None:
        self.wish = change
        self.maximal = frozenset((*self.committed, *(each.broker_id for each in change.isr)))

    def forget_wish(self) -> None:
        """The controller has refused it, and nothing has changed."""
        self.settle(self.committed)

    def members(self, isr: Iterable[int], broker_epoch: int) -> tuple[IsrMember, ...]:
        """With the broker epochs in which they fetch; -1, which is any, for who has not fetched."""
        return tuple(
            IsrMember(each, broker_epoch if each == self.node_id else self.followers[each].broker_epoch)
            for each in isr
            if each == self.node_id or each in self.followers
        )

    @property
    def others_in_sync(self) -> tuple[int, ...]:
        """The ISR without this node."""
        return tuple(each for each in self.committed if each != self.node_id)

    # -- what follows from it --------------------------------------------------------------------------

    def committed_end(self, log_end: Offset, now_ms: int, lag_ms_max: int, is_eligible: IsEligible) -> Offset:
        """First offset that is not on every replica that is in sync or about to be.

        A follower that was at the end of late is waited for, though it is not in the ISR: or a busy leader would be
        ahead of it for ever.
        """
        end, joining_ms_max = log_end, min(lag_ms_max, JOINING_MS_MAX)
        for broker_id, follower in self.followers.items():
            if follower.log_end < end and (
                broker_id in self.maximal
                or (
                    follower.is_caught_up(log_end, now_ms, joining_ms_max)
                    and is_eligible(broker_id, follower.broker_epoch)
                )
            ):
                end = follower.log_end
        return end

    def may_join(
        self, follower: Follower, high_watermark: Offset, epoch_start: Offset, is_eligible: IsEligible
    ) -> bool:
        """Whether the controller is to be asked for this follower. It must have what is committed, and, since nobody
        knows how much of what came before this leader was, all of that."""
        return (
            self.wish is None
            and follower.broker_id not in self.committed
            and follower.log_end >= high_watermark
            and follower.log_end >= epoch_start
            and is_eligible(follower.broker_id, follower.broker_epoch)
        )

    def lagging(self, log_end: Offset, now_ms: int, lag_ms_max: int) -> list[int]:
        """Who has to leave the ISR."""
        if self.wish is not None:
            return []
        return [
            broker_id
            for broker_id in self.committed
            if broker_id != self.node_id
            and not (
                (follower := self.followers.get(broker_id))
                and follower.is_caught_up(log_end, now_ms, lag_ms_max)
            )
        ]

    def left_behind(self, log_end: Offset) -> None:
        """Something is written at what was the log end: who was there was there when it last fetched anything."""
        for follower in self.followers.values():
            if follower.log_end == log_end and (seen := follower.seen) is not None:
                follower.caught_up_ms = max(follower.caught_up_ms, seen.ms)
                follower.fetched_end, follower.fetched_ms = log_end, max(follower.fetched_ms, seen.ms)

    def low_watermark(self, log_start: Offset, is_alive: Callable[[int], bool]) -> Offset:
        """Below it no replica that is alive has anything."""
        return min(
            (
                each.log_start
                for each in self.followers.values()
                if each.log_start < log_start and is_alive(each.broker_id)
            ),
            default=log_start,
        )
