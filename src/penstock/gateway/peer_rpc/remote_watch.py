"""Being told when partitions that other brokers lead have more to read.

    watchers --> partitions --> one Fetch to each leader, which waits there until one of them has more

A watcher is told what a local partition would tell it, as soon as the leader says so. One that is new is part of the
next fetch, at most `WAIT_MS` later. What the fetch brings is kept for whoever reads on from there, which is what
watchers mostly do.
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
"""How long a fetch waits at the leader. Who is new waits for the one that is under way."""

RETRY_MS: Final = 50
TIMEOUT_MS: Final = 10_000

BYTES_MAX: Final = 1 << 20
"""Of one fetch, and of its first batch as much as that has."""

PARTITION_BYTES: Final = 1 << 16
READ_COMMITTED: Final = 1
VERSION_MIN: Final = 13
"""From here on topics go by id: a topic that was made anew is not taken for its former self."""

_PURPOSE: Final = "doors-watching"

Key = tuple[Uuid, int]


class Fetched(NamedTuple):
    """Some batches of a partition, and how it was when they were read."""

    offset: Offset
    """What was asked for: the first batch may begin before it."""
    data: bytes
    aborted: list[AbortedTransaction]
    last_stable: Offset
    log_start: Offset


def fetch_request(
    wanted: dict[Key, Offset], *, wait_ms: int, partition_bytes: int, bytes_max: int
) -> Request[FetchResponse]:
    """Committed records of partitions, each from an offset on."""
    by_topic: dict[Uuid, list[FetchPartition]] = {}
    for (topic_id, number), offset in wanted.items():
        asked = FetchPartition(number, NO_EPOCH, offset, NO_EPOCH, -1, partition_bytes)
        by_topic.setdefault(topic_id, []).append(asked)
    topics = [FetchTopic(topic_id, partitions) for topic_id, partitions in by_topic.items()]
    request = FetchRequest(
        wait_ms, 1, bytes_max, READ_COMMITTED, 0, -1, topics, [], "", CONSUMER, NO_EPOCH, None
    )
    return Request(
        Api.FETCH, VERSION_MIN, 18, lambda version: fetch_body(version, request), read_fetch_response
    )


def fetched(offset: Offset, result: FetchResult) -> Fetched:
    """What a result says, kept beyond the buffer that it came in."""
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
        """Watchers have been told of everything below."""
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
        """Have a watcher told when there is more than it knows of."""
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
        """What was brought of a partition lately, if it begins there."""
        watched = self._watched.get(key)
        found = None if watched is None else watched.recent
        return found if found is not None and found.offset == offset and found.data else None

    # -- asking ----------------------------------------------------------------------------------------

    def _soon(self, delay_ms: float) -> None:
        if not self._is_coming and not self._is_stopped:
            self._is_coming = True
            self._context.world.call_later(delay_ms, self._ask_all)

    def _ask_all(self) -> None:
        """Have a fetch under way at each leader of something that is watched."""
        self._is_coming = False
        if self._is_stopped:
            return
        image = self._context.image
        by_leader: dict[int, dict[Key, Offset]] = {}
        for key, watched in list(self._watched.items()):
            topic = image.topic_by_id(key[0])
            placed = None if topic is None else topic.partitions.get(key[1])
            if placed is None or placed.leader == self._context.node_id:
                self._tell_changed(key)  # it is gone, or here
            elif placed.leader >= 0:
                by_leader.setdefault(placed.leader, {})[key] = watched.at
            else:
                self._soon(RETRY_MS)
        for leader, wanted in by_leader.items():
            if leader not in self._asking:
                self._asking.add(leader)
                self._ask(leader, wanted)

    def _ask(self, leader: int, wanted: dict[Key, Offset]) -> None:
        request = fetch_request(wanted, wait_ms=WAIT_MS, partition_bytes=PARTITION_BYTES, bytes_max=BYTES_MAX)

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
        """Tell watchers of what a result brought; whether the partition could be asked."""
        watched = self._watched.get(key)
        if watched is None or key not in wanted:
            return True
        if result.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._tell_changed(key)
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

    def _tell_changed(self, key: Key) -> None:
        watched = self._watched.pop(key, None)
        for watcher in list(watched.watchers if watched is not None else ()):
            watcher.changed()
