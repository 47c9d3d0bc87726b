"""A follower's fetch session at the leader: only partitions with changes are read and sent.

A follower may replicate thousands of partitions of which few are written to. Partitions notify the session of changes
(`FollowedPartition` is a `DelayedFollowerFetch`), and a fetch reads only partitions that are `due`:

    written to                                 wakes the waiting fetch
    new high watermark or ISR                  sent with the next response
    requested with another offset              the follower has made progress
    not in the ISR, or with an error           read in each fetch, until that changes

A partition is not due once the follower is at its log end, in the ISR, and has the high watermark and log start
offset. It then needs no update by fetches: the session's last fetch time counts for all its partitions.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from penstock.base.ids import Offset, TimestampMs
from penstock.handlers.support.fetch_sessions import IncrementalSession, RequestedPartition
from penstock.replica import Partition
from penstock.replica.isr import FetchTime
from penstock.wire import FetchPartition, FetchResult, TopicKey

if TYPE_CHECKING:
    from penstock.handlers.support.follower_fetch import DelayedReplicaFetch

Key = tuple[TopicKey, int]


class FollowedPartition:
    """A partition of a session: the follower's last request for it, and the offsets of the last response. A
    `DelayedFollowerFetch`."""

    __slots__ = (
        "high_watermark",
        "is_held_back",
        "is_updated",
        "key",
        "log_start",
        "partition",
        "requested",
        "session",
    )

    def __init__(self, session: "FollowerSession", key: Key, requested: FetchPartition) -> None:
        self.session = session
        self.key = key
        self.requested = requested
        self.is_updated = True
        """The follower has sent a request for it that was not handled yet."""
        self.is_held_back = False
        """The throttle holds back its records: new ones do not wake the fetch."""
        self.partition: Partition | None = None
        """The partition that notifies of changes; None if there is none."""
        self.high_watermark: Offset = -1
        self.log_start: Offset = -1

    def attend(self, partition: Partition) -> None:
        """Be notified by this partition."""
        if self.partition is not partition:
            self.leave()
            self.partition = partition
            partition.tail(self)

    def leave(self) -> None:
        if self.partition is not None:
            self.partition.untail(self)
            self.partition = None

    def update(self, result: FetchResult) -> bool:
        """Whether the response must include this result, which is remembered as sent."""
        if result.error_code:
            self.high_watermark = -1  # so that the next result is included, and ends the error
            return True
        has_changed = (
            bool(result.records)
            or result.high_watermark != self.high_watermark
            or result.log_start_offset != self.log_start
            or result.diverging_epoch is not None
        )
        self.high_watermark, self.log_start = result.high_watermark, result.log_start_offset
        return has_changed

    @property
    def is_quiet(self) -> bool:
        """Whether a fetch need not read it until it changes."""
        partition = self.partition
        return (
            partition is not None
            and partition.isr is not None
            and not self.is_updated
            and self.requested.fetch_offset == partition.log.log_end
            and self.high_watermark == partition.high_watermark
            and self.log_start == partition.log.log_start
            and self.session.replica_id in partition.isr.committed
        )

    # -- DelayedFollowerFetch -------------------------------------------------------------------------

    def wrote(self, bytes_more: int) -> None:
        self.session.due[self.key] = self
        waiting = self.session.waiting
        if waiting is not None and not self.is_held_back:
            waiting.wrote(bytes_more)

    def moved(self) -> None:
        self.session.due[self.key] = self
        waiting = self.session.waiting
        if waiting is not None:
            waiting.moved()

    def changed(self) -> None:
        self.leave()
        self.session.due[self.key] = self
        waiting = self.session.waiting
        if waiting is not None:
            waiting.changed()


class FollowerSession(IncrementalSession):
    def __init__(
        self, session_id: int, uses_ids: bool, now_ms: TimestampMs, replica_id: int, seen_ms: int
    ) -> None:
        super().__init__(session_id, uses_ids, now_ms)
        self.replica_id = replica_id
        self.seen = FetchTime(seen_ms)
        self.waiting: DelayedReplicaFetch | None = None
        self.followed: dict[Key, FollowedPartition] = {}
        self.due: dict[Key, FollowedPartition] = {}
        """Partitions to read, in order."""

    def __len__(self) -> int:
        return len(self.followed)

    def update(self, requests: Iterable[RequestedPartition]) -> None:
        for topic, requested in requests:
            key = topic, requested.partition
            held = self.followed.get(key)
            if held is None:
                held = self.followed[key] = FollowedPartition(self, key, requested)
            else:
                held.requested = requested
                held.is_updated = True
            self.due[key] = held

    def forget(self, topic: TopicKey, indexes: Iterable[int]) -> None:
        for index in indexes:
            held = self.followed.pop((topic, index), None)
            if held is not None:
                self.due.pop(held.key, None)
                held.leave()

    def close(self) -> None:
        for each in self.followed.values():
            each.leave()
        self.followed.clear()
        self.due.clear()
        if self.waiting is not None:
            self.waiting.superseded()

    def rotate(self, followed: FollowedPartition) -> None:
        """Read it last in the next fetch."""
        if self.due.pop(followed.key, None) is not None:
            self.due[followed.key] = followed

    def changed(
        self, read: Iterable[tuple[FollowedPartition, FetchResult]]
    ) -> list[tuple[TopicKey, FetchResult]]:
        """The results that the response must include."""
        changed = []
        for followed, result in read:
            if followed.update(result):
                changed.append((followed.key[0], result))
            if followed.is_quiet:
                self.due.pop(followed.key, None)
            elif result.records:
                self.rotate(followed)
        return changed
