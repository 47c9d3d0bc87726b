"""The ISR of a partition that this broker leads, and its followers.

    log start              high watermark                     log end
    leader    |----------------------|------------------------------|     105
    follower  |----------------------|                                     95     in the ISR: holds the watermark back
    follower  |-----------------|                                          90     not in the ISR: does not

Only the controller changes the ISR. Between the leader's proposal and the controller's decision both count: a follower
that is to join holds the high watermark back already, and one that is to leave still does. That is the maximal ISR;
what all of it has is committed whatever the controller decides (KIP-497).

A follower stays in sync as long as it has been at the log end within `replica.lag.time.max.ms`. Its fetches show when
it was there: a fetch from the current log end is there now; a fetch from the log end at the time of the previous fetch
was there then. In a fetch session idle partitions are in no request: a follower at the log end stays there as long as
nothing is written, and `note_caught_up` notes until when.

Times are milliseconds of a monotonic clock.
"""

from collections.abc import Callable, Iterable
from typing import Final

from penstock.base.ids import Offset
from penstock.metadata.controller.requests import IsrChange, IsrMember
from penstock.metadata.image import PartitionRegistration

UNKNOWN: Final = -1
"""The offset or broker epoch of a follower that has not fetched yet."""

NEVER: Final = -(2**62)
"""Longer ago than any allowed lag."""

JOINING_MS_MAX: Final = 1000
"""How long the high watermark waits for a follower that was at the log end and is not in the ISR. The leader proposes
it at once, and then waits until the controller has decided. A follower whose disk fails before that stops fetching;
without this limit it would hold up producers for `replica.lag.time.max.ms`."""

IsEligible = Callable[[int, int], bool]
"""Whether a broker with this id and broker epoch may be in an ISR."""


class FetchTime:
    """When a follower's fetcher last fetched anything. Shared by its partitions."""

    __slots__ = ("ms",)

    def __init__(self, ms: int) -> None:
        self.ms = ms


class Follower:
    __slots__ = (
        "broker_epoch",
        "broker_id",
        "caught_up_ms",
        "fetched_end",
        "fetched_ms",
        "last_fetch",
        "log_end",
        "log_start",
    )

    def __init__(self, broker_id: int, caught_up_ms: int) -> None:
        self.broker_id = broker_id
        self.broker_epoch = UNKNOWN
        self.log_end: Offset = UNKNOWN
        """Its last fetch offset: it has everything below."""
        self.log_start: Offset = UNKNOWN
        self.caught_up_ms = caught_up_ms
        """When it was last known to be at the leader's log end."""
        self.fetched_end: Offset = UNKNOWN
        """The leader's log end at its last fetch."""
        self.fetched_ms = 0
        self.last_fetch: FetchTime | None = None

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


class Isr:
    """The ISR and the followers of one partition with several replicas, on its leader."""

    __slots__ = ("committed", "followers", "is_handing_over", "maximal", "node_id", "pending")

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.followers: dict[int, Follower] = {}
        """By broker: all replicas but this one."""
        self.committed: tuple[int, ...] = ()
        """The ISR, as far as the controller is known to have it."""
        self.pending: IsrChange | None = None
        """The proposal that the controller has not decided, or has rejected as stale: then it is cleared when newer
        metadata arrives. There is at most one."""
        self.maximal: frozenset[int] = frozenset()
        """The brokers of `committed` and of `pending`."""
        self.is_handing_over = False
        """The leader's log is damaged: another replica is to lead."""

    def apply(self, placed: PartitionRegistration, now_ms: int, *, is_new_epoch: bool) -> None:
        """Apply a partition record of the metadata log. In a new leader epoch nothing is known of the followers, and
        members of the ISR get `replica.lag.time.max.ms` to fetch."""
        self.is_handing_over &= not is_new_epoch
        for broker_id in placed.replicas:
            if broker_id == self.node_id:
                continue
            if is_new_epoch or broker_id not in self.followers:
                self.followers[broker_id] = Follower(broker_id, now_ms if broker_id in placed.isr else 0)
        for broker_id in [each for each in self.followers if each not in placed.replicas]:
            del self.followers[broker_id]
        self.decided(placed.isr)

    def decided(self, isr: tuple[int, ...]) -> None:
        """The controller has decided. A follower that left the ISR counts as caught up only after it has fetched
        again: one that left because its disk fails was at the log end a moment ago."""
        for broker_id in self.committed:
            if broker_id not in isr and (follower := self.followers.get(broker_id)) is not None:
                follower.caught_up_ms, follower.last_fetch = NEVER, None
                # Its next fetch repeats the offset from before the failure, which proves nothing.
                follower.fetched_end = UNKNOWN
        self.committed, self.pending = isr, None
        self.maximal = frozenset(isr)

    def propose(self, change: IsrChange) -> None:
        self.pending = change
        self.maximal = frozenset((*self.committed, *(each.broker_id for each in change.isr)))

    def discard_pending(self) -> None:
        """The controller has rejected the proposal, and nothing has changed."""
        self.decided(self.committed)

    def members(self, isr: Iterable[int], broker_epoch: int) -> tuple[IsrMember, ...]:
        """Each with the broker epoch in which it fetches; -1, which matches any, if it has not fetched."""
        return tuple(
            IsrMember(each, broker_epoch if each == self.node_id else self.followers[each].broker_epoch)
            for each in isr
            if each == self.node_id or each in self.followers
        )

    @property
    def others(self) -> tuple[int, ...]:
        """The ISR without this broker."""
        return tuple(each for each in self.committed if each != self.node_id)

    # -- consequences ----------------------------------------------------------------------------------

    def committed_end(self, log_end: Offset, now_ms: int, lag_ms_max: int, is_eligible: IsEligible) -> Offset:
        """First offset that is not on every replica of the maximal ISR: the next high watermark.

        A follower outside the ISR that was at the log end a moment ago counts too. Otherwise a busy leader would stay
        ahead of it for ever, and it could never join.
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
        """Whether to propose an ISR with this follower. It must have everything below the high watermark, and below
        the start of the leader epoch: how much of that is committed is not known."""
        return (
            self.pending is None
            and follower.broker_id not in self.committed
            and follower.log_end >= high_watermark
            and follower.log_end >= epoch_start
            and is_eligible(follower.broker_id, follower.broker_epoch)
        )

    def lagging(self, log_end: Offset, now_ms: int, lag_ms_max: int) -> list[int]:
        """The followers that must leave the ISR."""
        if self.pending is not None:
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

    def note_caught_up(self, log_end: Offset) -> None:
        """The log is about to grow: followers at its end were there until their fetcher last fetched."""
        for follower in self.followers.values():
            if follower.log_end == log_end and (last := follower.last_fetch) is not None:
                follower.caught_up_ms = max(follower.caught_up_ms, last.ms)
                follower.fetched_end, follower.fetched_ms = log_end, max(follower.fetched_ms, last.ms)

    def low_watermark(self, log_start: Offset, is_alive: Callable[[int], bool]) -> Offset:
        """The lowest log start of all live replicas."""
        return min(
            (
                each.log_start
                for each in self.followers.values()
                if each.log_start < log_start and is_alive(each.broker_id)
            ),
            default=log_start,
        )
