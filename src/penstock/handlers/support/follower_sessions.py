"""A follower's fetch session, as the leader keeps it: what changed since the follower was last told, and nothing else.

A follower may copy thousands of partitions, of which a few are written to. So a session is told by its partitions
when something happens to them (it is their `DelayedFollowerFetch`), and looks only at those that are `due`:

    written to                          the follower waits for it, and is answered
    another high watermark, or ISR      told with the next answer; the follower has nothing to do with it
    asked for with other words          the follower has come on
    not in the ISR, or in error         looked at each time, until it is put right

A partition is quiet once the follower is at its end, in the ISR, and knows the high watermark and the log start. That
it is there needs no saying, fetch after fetch: `FetchTime` says when the follower last fetched anything.
"""

from collections.abc import Iterable
from typing import Protocol

from penstock.base.ids import Offset, TimestampMs
from penstock.handlers.support.fetch_sessions import IncrementalSession, RequestedPartition
from penstock.replica import Partition
from penstock.replica.isr import FetchTime
from penstock.wire import FetchPartition, FetchResult, TopicKey

Key = tuple[TopicKey, int]


class Waker(Protocol):
    """A fetch that waits."""

    def wrote(self, bytes_more: int) -> None: ...

    def moved(self) -> None: ...

    def changed(self) -> None: ...

    def superseded(self) -> None: ...


class FollowedPartition:
    """A partition of a session: what the follower wants of it, and what it was told last. A `DelayedFollowerFetch`."""

    __slots__ = (
        "asked",
        "high_watermark",
        "is_held_back",
        "is_said",
        "key",
        "log_start",
        "partition",
        "session",
    )

    def __init__(self, session: "FollowerSession", key: Key, asked: FetchPartition) -> None:
        self.session = session
        self.key = key
        self.asked = asked
        self.is_said = True
        """The follower has said something of it that was not looked at yet."""
        self.is_held_back = False
        """There is more than the leader may give now: what is written meanwhile is no reason to answer."""
        self.partition: Partition | None = None
        """The one that tells of its changes; None while none does."""
        self.high_watermark: Offset = -1
        self.log_start: Offset = -1

    def attend(self, partition: Partition) -> None:
        """Be told by this one."""
        if self.partition is not partition:
            self.leave()
            self.partition = partition
            partition.tail(self)

    def leave(self) -> None:
        if self.partition is not None:
            self.partition.untail(self)
            self.partition = None

    def tell(self, result: FetchResult) -> bool:
        """Whether the follower does not know all of this yet; it does now."""
        if result.error_code:
            self.high_watermark = -1  # so that the error's end is told too
            return True
        is_news = (
            bool(result.records)
            or result.high_watermark != self.high_watermark
            or result.log_start_offset != self.log_start
            or result.diverging_epoch is not None
        )
        self.high_watermark, self.log_start = result.high_watermark, result.log_start_offset
        return is_news

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is to be done until something happens."""
        partition = self.partition
        return (
            partition is not None
            and partition.isr is not None
            and not self.is_said
            and self.asked.fetch_offset == partition.log.log_end
            and self.high_watermark == partition.high_watermark
            and self.log_start == partition.log.log_start
            and self.session.replica_id in partition.isr.committed
        )

    # -- a tail ----------------------------------------------------------------------------------------

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
        self.waiting: Waker | None = None
        self.followed: dict[Key, FollowedPartition] = {}
        self.due: dict[Key, FollowedPartition] = {}
        """What is to be looked at, in the order in which they have their turn."""

    def __len__(self) -> int:
        return len(self.followed)

    def update(self, wanted: Iterable[RequestedPartition]) -> None:
        for topic, asked in wanted:
            key = topic, asked.partition
            held = self.followed.get(key)
            if held is None:
                held = self.followed[key] = FollowedPartition(self, key, asked)
            else:
                held.asked = asked
                held.is_said = True
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
        """It had its turn."""
        if self.due.pop(followed.key, None) is not None:
            self.due[followed.key] = followed

    def tell(
        self, read: Iterable[tuple[FollowedPartition, FetchResult]]
    ) -> list[tuple[TopicKey, FetchResult]]:
        """What of this the follower does not know yet."""
        news = []
        for followed, result in read:
            if followed.tell(result):
                news.append((followed.key[0], result))
            if followed.is_quiet:
                self.due.pop(followed.key, None)
            elif result.records:
                self.rotate(followed)
        return news
