"""What a reader fetches again and again, remembered, so that it need not say it each time (KIP-227).

    client                                        broker
    epoch 0, all partitions              -->      a session is made: id 7
    id 7, epoch 1, what changed          -->      only partitions with something new are in the reply
    id 7, epoch -1                       -->      the session ends; a plain fetch

A session is bound to no connection. There is room for `max.incremental.fetch.session.cache.slots` of them; when it
is taken, one that has not been used for two minutes makes way, or else a smaller one that is as old; and where
none can go, the fetch is served without a session. Followers come first: a consumer's session makes way for theirs,
and theirs for nobody's while they use it (`follower_sessions`).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import TimestampMs
from penstock.wire import FetchPartition, FetchRequest, FetchResult, TopicKey
from penstock.wire.fetch import CONSUMER

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


class RequestedPartition(NamedTuple):
    """A partition that is asked for."""

    topic: TopicKey
    partition: FetchPartition


class CachedPartition:
    """What a session's client asked of a partition, and what it was told last."""

    __slots__ = ("high_watermark", "log_start", "wanted")

    def __init__(self, wanted: RequestedPartition) -> None:
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
            or result.preferred_read_replica >= 0
        )
        self.high_watermark = result.high_watermark
        self.log_start = result.log_start_offset
        return changed


class IncrementalSession(ABC):
    """What consumers' sessions and followers' have in common."""

    replica_id: int = CONSUMER

    def __init__(self, session_id: int, uses_ids: bool, now_ms: TimestampMs) -> None:
        self.id = session_id
        self.uses_ids = uses_ids
        self.epoch = 1
        """What the next request must say."""
        self.created_ms = self.used_ms = now_ms

    @abstractmethod
    def __len__(self) -> int:
        """How many partitions are in it."""

    @abstractmethod
    def update(self, wanted: Iterable[RequestedPartition]) -> None:
        """These are wanted from now on, as said here."""

    @abstractmethod
    def forget(self, topic: TopicKey, indexes: Iterable[int]) -> None:
        """These are not wanted any more."""

    def close(self) -> None:  # noqa: B027  # nothing is held, unless a kind of session says otherwise
        """Let go of everything."""


class ConsumerSession(IncrementalSession):
    """A consumer's."""

    def __init__(self, session_id: int, uses_ids: bool, now_ms: TimestampMs) -> None:
        super().__init__(session_id, uses_ids, now_ms)
        self.told: dict[tuple[TopicKey, int], CachedPartition] = {}

    def __len__(self) -> int:
        return len(self.told)

    def update(self, wanted: Iterable[RequestedPartition]) -> None:
        for each in wanted:
            key = each.topic, each.partition.partition
            held = self.told.get(key)
            if held is None:
                self.told[key] = CachedPartition(each)
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


Kept = TypeVar("Kept", bound=IncrementalSession)


class FetchSessions:
    """All of a node's, by id."""

    def __init__(self, slots: int, rng: "Random") -> None:
        self._slots = slots
        self._rng = rng
        self._sessions: dict[int, IncrementalSession] = {}
        """The one that was used longest ago first."""

    def __len__(self) -> int:
        return len(self._sessions)

    def resume(self, request: FetchRequest, uses_ids: bool, now_ms: TimestampMs) -> IncrementalSession:
        """The session of an incremental request, with what the request changes."""
        session = self._sessions.get(request.session_id)
        if session is None or session.replica_id != max(request.replica_id, CONSUMER):
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
        session.update(requested_partitions(request))
        return session

    def open(self, request: FetchRequest, make: Callable[[int], Kept], now_ms: TimestampMs) -> Kept | None:
        """A new session for a full request, made with its id; None if there is no room, or nothing to remember."""
        if not request.topics or not self._make_room(request, now_ms):
            return None
        while (session_id := self._rng.randint(1, _ID_MAX)) in self._sessions:
            pass
        session = make(session_id)
        session.update(requested_partitions(request))
        self._sessions[session_id] = session
        return session

    def close(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.close()

    def close_former(self, replica_id: int, session_id: int) -> None:
        """A follower opens a session anew, and will not come back to this one."""
        session = self._sessions.get(session_id)
        if session is not None and session.replica_id == replica_id:
            self.close(session_id)

    def _make_room(self, request: FetchRequest, now_ms: TimestampMs) -> bool:
        if len(self._sessions) < self._slots:
            return True
        leaving = self._dispensable(request, now_ms) if self._sessions else None
        if leaving is None:
            return False
        self.close(leaving.id)
        return True

    def _dispensable(self, request: FetchRequest, now_ms: TimestampMs) -> IncrementalSession | None:
        """The session that makes way for this request's, if one does."""
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.used_ms > EVICTION_MS:
            return oldest
        consumers = [each for each in self._sessions.values() if each.replica_id < 0]
        if request.replica_id >= 0 or not consumers:
            return consumers[0] if consumers else None
        size = sum(len(partitions) for _, partitions in request.topics)
        smallest = min(consumers, key=len)
        is_settled = now_ms - smallest.created_ms > EVICTION_MS
        return smallest if len(smallest) < size and is_settled else None


def requested_partitions(request: FetchRequest) -> Iterator[RequestedPartition]:
    """All partitions that a request names."""
    for topic, partitions in request.topics:
        for partition in partitions:
            yield tuple.__new__(RequestedPartition, (topic, partition))
