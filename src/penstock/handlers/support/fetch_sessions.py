"""Incremental fetch sessions (KIP-227): the broker remembers the partitions that a client fetches.

    client                                        broker
    epoch 0, all partitions              -->      opens session 7
    id 7, epoch 1, changed partitions    -->      returns only partitions with changes
    id 7, epoch -1                       -->      closes the session, and handles a full fetch

A session is not bound to a connection. At most `max.incremental.fetch.session.cache.slots` are kept. If all are in
use, a session that was not used for two minutes is evicted, or else a smaller one that was created that long ago; if
there is none, the fetch is served without a session. A consumer's session is evicted for a follower's, and a
follower's never while it is in use (`follower_sessions`).
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
"""The session id of a response without a session."""
FIRST_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_EPOCH_MAX = 2**31 - 1
_ID_MAX = 2**31 - 1

EVICTION_MS: Final = 120_000
"""Kafka's `FetchSession.evictionMs`: a younger session is not evicted."""


class RequestedPartition(NamedTuple):
    """A partition of a request."""

    topic: TopicKey
    partition: FetchPartition


class CachedPartition:
    """A partition of a session: the client's last request for it, and the offsets of the last response."""

    __slots__ = ("high_watermark", "log_start", "requested")

    def __init__(self, requested: RequestedPartition) -> None:
        self.requested = requested
        self.high_watermark = -1
        self.log_start = -1

    def update(self, result: FetchResult) -> bool:
        """Whether the response must include this result, which is remembered as sent."""
        if result.error_code:
            # Include the next result in any case: it shows the client that the error is over.
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
    """A fetch session of a consumer or a follower."""

    replica_id: int = CONSUMER

    def __init__(self, session_id: int, uses_ids: bool, now_ms: TimestampMs) -> None:
        self.id = session_id
        self.uses_ids = uses_ids
        self.epoch = 1
        """The epoch of the next request."""
        self.created_ms = self.used_ms = now_ms

    @abstractmethod
    def __len__(self) -> int:
        """The number of partitions."""

    @abstractmethod
    def update(self, requested: Iterable[RequestedPartition]) -> None:
        """Add partitions, or change their requests."""

    @abstractmethod
    def forget(self, topic: TopicKey, indexes: Iterable[int]) -> None:
        """Remove partitions."""

    def close(self) -> None:  # noqa: B027  # optional
        """Release what the session holds."""


class ConsumerSession(IncrementalSession):
    """A consumer's fetch session."""

    def __init__(self, session_id: int, uses_ids: bool, now_ms: TimestampMs) -> None:
        super().__init__(session_id, uses_ids, now_ms)
        self.partitions: dict[tuple[TopicKey, int], CachedPartition] = {}

    def __len__(self) -> int:
        return len(self.partitions)

    def update(self, requested: Iterable[RequestedPartition]) -> None:
        for each in requested:
            key = each.topic, each.partition.partition
            held = self.partitions.get(key)
            if held is None:
                self.partitions[key] = CachedPartition(each)
            else:
                held.requested = each

    def forget(self, topic: TopicKey, indexes: Iterable[int]) -> None:
        for index in indexes:
            self.partitions.pop((topic, index), None)

    def requested(self) -> Iterator[tuple[TopicKey, Sequence[FetchPartition]]]:
        """The session's partitions in the order in which they are read, as a request has them."""
        for each in self.partitions.values():
            topic, partition = each.requested
            yield topic, (partition,)

    def changed(self, results: Iterable[tuple[TopicKey, FetchResult]]) -> list[tuple[TopicKey, FetchResult]]:
        """The results that the response must include. A partition that had records is read last in the next fetch."""
        changed = []
        for topic, result in results:
            key = topic, result.partition
            cached = self.partitions.get(key)
            if cached is None or cached.update(result):
                changed.append((topic, result))
            if cached is not None and result.records:
                del self.partitions[key]
                self.partitions[key] = cached
        return changed


Kept = TypeVar("Kept", bound=IncrementalSession)


class FetchSessions:
    """The fetch sessions of a node."""

    def __init__(self, slots: int, rng: "Random") -> None:
        self._slots = slots
        self._rng = rng
        self._sessions: dict[int, IncrementalSession] = {}
        """By id, the least recently used first."""

    def __len__(self) -> int:
        return len(self._sessions)

    def resume(self, request: FetchRequest, kind: type[Kept], uses_ids: bool, now_ms: TimestampMs) -> Kept:
        """The session of an incremental request, updated with the request's changes."""
        session = self._sessions.get(request.session_id)
        if not isinstance(session, kind) or session.replica_id != max(request.replica_id, CONSUMER):
            raise KafkaError(
                f"Fetch session {request.session_id} does not exist.", ErrorCode.FETCH_SESSION_ID_NOT_FOUND
            )
        if session.uses_ids != uses_ids:
            raise KafkaError(
                f"Fetch session {session.id} was opened with topic {'ids' if session.uses_ids else 'names'}.",
                ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
            )
        if session.epoch != request.session_epoch:
            raise KafkaError(
                f"Fetch session {session.id} expects epoch {session.epoch}, got {request.session_epoch}.",
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
        """A new session for a full request; None if there is no room, or no partition."""
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
        """Close the session that a follower replaces with a new one."""
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
        """The session to evict for this request, if there is one."""
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
    """The partitions of a request."""
    for topic, partitions in request.topics:
        for partition in partitions:
            yield tuple.__new__(RequestedPartition, (topic, partition))
