"""What a reader fetches again and again, remembered, so that it need not say it each time (KIP-227).

    client                                        broker
    epoch 0, all partitions              -->      a session is made: id 7
    id 7, epoch 1, what changed          -->      only partitions with something new are in the reply
    id 7, epoch -1                       -->      the session ends; a plain fetch

A session is bound to no connection. There is room for `max.incremental.fetch.session.cache.slots` of them; when it
is taken, one that has not been used for two minutes makes way, or else a smaller one that is as old; and where
none can go, the fetch is served without a session.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import TimestampMs
from penstock.wire import FetchPartition, FetchRequest, FetchResult, TopicKey

if TYPE_CHECKING:
    from random import Random

NO_SESSION: Final = 0
"""The id of a reply that opens none."""
FIRST_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_EPOCH_MAX = 2**31 - 1
_ID_MAX = 2**31 - 1

EVICTION_MS: Final = 120_000
"""Kafka's `FetchSession.evictionMs`: one younger than this is not pushed out."""


class Wanted(NamedTuple):
    """A partition that is asked for."""

    topic: TopicKey
    partition: FetchPartition


class Told:
    """What a session's client asked of a partition, and what it was told last."""

    __slots__ = ("high_watermark", "log_start", "wanted")

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.high_watermark = -1
        self.log_start = -1

    def is_news(self, result: FetchResult) -> bool:
        """Whether a reply must have it; remembered as told."""
        if result.error_code:
            # Tell it again, whatever comes next: the client must learn that the error is over.
            self.high_watermark = -1
            return True
        changed = (
            bool(result.records)
            or result.high_watermark != self.high_watermark
            or result.log_start_offset != self.log_start
            or result.diverging_epoch is not None
        )
        self.high_watermark = result.high_watermark
        self.log_start = result.log_start_offset
        return changed


class FetchSession:
    def __init__(self, session_id: int, uses_ids: bool, now_ms: TimestampMs) -> None:
        self.id = session_id
        self.uses_ids = uses_ids
        self.epoch = 1
        """What the next request must say."""
        self.created_ms = self.used_ms = now_ms
        self.told: dict[tuple[TopicKey, int], Told] = {}

    def update(self, wanted: Iterable[Wanted]) -> None:
        for each in wanted:
            key = each.topic, each.partition.partition
            held = self.told.get(key)
            if held is None:
                self.told[key] = Told(each)
            else:
                held.wanted = each

    def forget(self, topic: TopicKey, indexes: Iterable[int]) -> None:
        for index in indexes:
            self.told.pop((topic, index), None)

    def wanted(self) -> Iterator[tuple[TopicKey, Sequence[FetchPartition]]]:
        """In the order in which they have their turn, as a request has them."""
        for each in self.told.values():
            topic, partition = each.wanted
            yield topic, (partition,)

    def news(self, results: Iterable[tuple[TopicKey, FetchResult]]) -> list[tuple[TopicKey, FetchResult]]:
        """What of a fetch the client does not know yet. A partition that had records goes to the end of the line."""
        news = []
        for topic, result in results:
            key = topic, result.partition
            told = self.told.get(key)
            if told is None or told.is_news(result):
                news.append((topic, result))
            if told is not None and result.records:
                del self.told[key]
                self.told[key] = told
        return news


class FetchSessions:
    """All of a node's, by id."""

    def __init__(self, slots: int, rng: "Random") -> None:
        self._slots = slots
        self._rng = rng
        self._sessions: dict[int, FetchSession] = {}
        """The one that was used longest ago first."""

    def __len__(self) -> int:
        return len(self._sessions)

    def resume(self, request: FetchRequest, uses_ids: bool, now_ms: TimestampMs) -> FetchSession:
        """The session of an incremental request, with what the request changes."""
        session = self._sessions.get(request.session_id)
        if session is None:
            raise KafkaError(
                f"there is no fetch session {request.session_id}", ErrorCode.FETCH_SESSION_ID_NOT_FOUND
            )
        if session.uses_ids != uses_ids:
            raise KafkaError(
                f"fetch session {session.id} was opened with {'ids' if session.uses_ids else 'names'} of topics",
                ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
            )
        if session.epoch != request.session_epoch:
            raise KafkaError(
                f"fetch session {session.id} expects epoch {session.epoch}, got {request.session_epoch}",
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
            )
        session.epoch = 1 if session.epoch == _EPOCH_MAX else session.epoch + 1
        session.used_ms = now_ms
        del self._sessions[session.id]
        self._sessions[session.id] = session
        for topic, indexes in request.forgotten:
            session.forget(topic, indexes)
        session.update(all_wanted(request))
        return session

    def open(self, request: FetchRequest, uses_ids: bool, now_ms: TimestampMs) -> FetchSession | None:
        """A new session for a full request; None if there is no room, or nothing to remember."""
        if not request.topics or not self._make_room(request, now_ms):
            return None
        while (session_id := self._rng.randint(1, _ID_MAX)) in self._sessions:
            pass
        session = FetchSession(session_id, uses_ids, now_ms)
        session.update(all_wanted(request))
        self._sessions[session_id] = session
        return session

    def close(self, session_id: int) -> None:
        self._sessions.pop(session_id, None)

    def _make_room(self, request: FetchRequest, now_ms: TimestampMs) -> bool:
        if len(self._sessions) < self._slots:
            return True
        if not self._sessions:
            return False
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.used_ms > EVICTION_MS:
            self.close(oldest.id)
            return True
        size = sum(len(partitions) for _, partitions in request.topics)
        smallest = min(self._sessions.values(), key=lambda each: len(each.told))
        if len(smallest.told) < size and now_ms - smallest.created_ms > EVICTION_MS:
            self.close(smallest.id)
            return True
        return False


def all_wanted(request: FetchRequest) -> Iterator[Wanted]:
    """All partitions that a request names."""
    for topic, partitions in request.topics:
        for partition in partitions:
            yield tuple.__new__(Wanted, (topic, partition))
