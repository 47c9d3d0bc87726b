"""Watches partitions that other brokers lead, with one long-polling Fetch to each leader.

    watchers --> partitions --> one Fetch to each leader, which waits there until one of them has more

A watcher gets the same calls as from a local partition, when the response arrives. A new watcher is part of the next
fetch, at most `WAIT_MS` later. The fetched batches are kept for a reader that continues at that offset, as most
watchers do.
"""

from typing import Final, NamedTuple

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import Offset, Uuid
from penstock.handlers.support.context import Context
from penstock.replica import DelayedFetch
from penstock.wire import AbortedTransaction, Api
from penstock.wire.fetch import CONSUMER, NO_EPOCH, FetchPartition, FetchRequest, FetchResult, FetchTopic
from penstock.wire.fetch_client import FetchResponse, fetch_body, read_fetch_response
from penstock.wire.request import Request

WAIT_MS: Final = 200
"""How long a fetch waits at the leader. A new watcher waits for the end of the current fetch."""

RETRY_MS: Final = 50
TIMEOUT_MS: Final = 10_000

BYTES_MAX: Final = 1 << 20
"""Limit of one fetch; its first batch may be larger."""

PARTITION_BYTES: Final = 1 << 16
READ_COMMITTED: Final = 1
VERSION_MIN: Final = 13
"""The first version with topic ids: a topic that was deleted and created again is another topic."""

_PURPOSE: Final = "doors-watching"

Key = tuple[Uuid, int]


class Fetched(NamedTuple):
    """Batches of a partition, and its offsets when they were read."""

    offset: Offset
    """The requested offset: the first batch may begin before it."""
    data: bytes
    aborted: list[AbortedTransaction]
    last_stable: Offset
    log_start: Offset


def fetch_request(
    cluster_id: str, wanted: dict[Key, Offset], *, wait_ms: int, partition_bytes: int, bytes_max: int
) -> Request[FetchResponse]:
    """A Fetch of committed records of partitions, each from an offset. With the cluster id, it is authorized as one of
    a broker: whether the client may read was decided here."""
    by_topic: dict[Uuid, list[FetchPartition]] = {}
    for (topic_id, number), offset in wanted.items():
        asked = FetchPartition(number, NO_EPOCH, offset, NO_EPOCH, -1, partition_bytes)
        by_topic.setdefault(topic_id, []).append(asked)
    topics = [FetchTopic(topic_id, partitions) for topic_id, partitions in by_topic.items()]
    request = FetchRequest(
        wait_ms, 1, bytes_max, READ_COMMITTED, 0, -1, topics, [], "", CONSUMER, NO_EPOCH, cluster_id
    )
    return Request(
        Api.FETCH, VERSION_MIN, 18, lambda version: fetch_body(version, request), read_fetch_response
    )


def fetched(offset: Offset, result: FetchResult) -> Fetched:
    """A copy of a fetch result, independent of the receive buffer."""
    return Fetched(
        offset,
        bytes(result.records or b""),
        list(result.aborted or ()),
        result.last_stable_offset,
        result.log_start_offset,
    )


class _Watched:
    __slots__ = ("at", "recent", "watchers")

    def __init__(self, at: Offset) -> None:
        self.at = at
        """Watchers are notified of everything below this offset."""
        self.recent: Fetched | None = None
        self.watchers: dict[DelayedFetch, None] = {}


class RemoteWatcher:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._watched: dict[Key, _Watched] = {}
        self._asking: set[int] = set()
        """Brokers at which a fetch waits."""
        self._is_stopped = False
        self._is_coming = False

    def stop(self) -> None:
        self._is_stopped = True
        self._watched.clear()

    def watch(self, key: Key, watcher: DelayedFetch, known_end: Offset) -> None:
        """Notify a watcher when there are records past `known_end`."""
        watched = self._watched.get(key)
        if watched is None:
            watched = self._watched[key] = _Watched(known_end)
        watched.watchers[watcher] = None
        watched.at = min(watched.at, known_end)
        self._soon(0)

    def unwatch(self, key: Key, watcher: DelayedFetch) -> None:
        watched = self._watched.get(key)
        if watched is not None and watcher in watched.watchers:
            del watched.watchers[watcher]
            if not watched.watchers:
                del self._watched[key]

    def recent(self, key: Key, offset: Offset) -> Fetched | None:
        """The batches of the last fetch, if they begin at `offset`."""
        watched = self._watched.get(key)
        found = None if watched is None else watched.recent
        return found if found is not None and found.offset == offset and found.data else None

    # -- fetches ---------------------------------------------------------------------------------------

    def _soon(self, delay_ms: float) -> None:
        if not self._is_coming and not self._is_stopped:
            self._is_coming = True
            self._context.world.call_later(delay_ms, self._ask_all)

    def _ask_all(self) -> None:
        """Start a fetch at each leader of a watched partition without one."""
        self._is_coming = False
        if self._is_stopped:
            return
        image = self._context.image
        by_leader: dict[int, dict[Key, Offset]] = {}
        for key, watched in list(self._watched.items()):
            topic = image.topic_by_id(key[0])
            placed = None if topic is None else topic.partitions.get(key[1])
            if placed is None or placed.leader == self._context.node_id:
                self._notify_changed(key)  # it is deleted, or this broker leads it
            elif placed.leader >= 0:
                by_leader.setdefault(placed.leader, {})[key] = watched.at
            else:
                self._soon(RETRY_MS)
        for leader, wanted in by_leader.items():
            if leader not in self._asking:
                self._asking.add(leader)
                self._ask(leader, wanted)

    def _ask(self, leader: int, wanted: dict[Key, Offset]) -> None:
        request = fetch_request(
            self._context.cluster_id,
            wanted,
            wait_ms=WAIT_MS,
            partition_bytes=PARTITION_BYTES,
            bytes_max=BYTES_MAX,
        )

        def answered(response: FetchResponse) -> None:
            self._asking.discard(leader)
            if self._is_stopped:
                return
            is_well = not response.error_code
            for topic_id, results in response.topics:
                assert isinstance(topic_id, bytes)
                for result in results:
                    is_well &= self._take((topic_id, result.partition), wanted, result)
            if self._watched:
                self._soon(0 if is_well else RETRY_MS)

        def failed(_: KafkaError) -> None:
            self._asking.discard(leader)
            if self._watched:
                self._soon(RETRY_MS)

        self._context.broker_client.send(leader, request, timeout_ms=TIMEOUT_MS, purpose=_PURPOSE).then(
            answered, failed
        )

    def _take(self, key: Key, wanted: dict[Key, Offset], result: FetchResult) -> bool:
        """Notify watchers of new records in a result. Return False for an error."""
        watched = self._watched.get(key)
        if watched is None or key not in wanted:
            return True
        if result.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._notify_changed(key)
            return True
        if result.error_code:
            return False
        offset = wanted[key]
        if result.last_stable_offset > offset:
            watched.recent = fetched(offset, result)
            watched.at = result.last_stable_offset
            for watcher in list(watched.watchers):
                watcher.decided()
        return True

    def _notify_changed(self, key: Key) -> None:
        watched = self._watched.pop(key, None)
        for watcher in list(watched.watchers if watched is not None else ()):
            watcher.changed()
