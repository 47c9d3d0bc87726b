"""Replicates from one leader: one Fetch request after the other, for all partitions that it leads.

    fetch --> append --> update high watermarks --> truncate diverging logs --> sync, if required --> fetch

Each request tells the leader the log end of every partition, so only one is in flight at a time. An error of one
partition has that partition back off; a failed request has all of them back off.

A leader without new records responds after `replica.fetch.wait.max.ms`. A new partition must not wait for that: when
a leader dies, producers wait until the followers fetch from the next one. So `ABANDON_MS` after a new one appears
the request in flight is abandoned, and a full request is sent over another connection. A late response is ignored.

The full request closes the session of the abandoned one, so a leader that receives them in the other order rejects the
abandoned one. A request that opens a session is not abandoned: it would have nothing to be rejected by, and its old
fetch offsets would count. The leader answers it at once.
"""

import logging
from collections import deque
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import Offset, TopicPartition
from penstock.base.promise import Promise
from penstock.base.steps import RunningSteps
from penstock.base.world import Timer
from penstock.metadata.controller.requests import UNWRITABLE
from penstock.replica.fetch_session import FetchSession
from penstock.replica.follower_replica import FollowerReplica, LogRange, TopicIdPartition
from penstock.replica.leader_log_range import leader_log_range
from penstock.replica.partition import Partition
from penstock.storage import CorruptLog, StorageError
from penstock.wire import Api, EpochEndOffset, FetchRequest, FetchResult
from penstock.wire.fetch_client import FetchResponse, fetch_body, read_fetch_response
from penstock.wire.request import Request

if TYPE_CHECKING:
    from penstock.replica.fetchers import Fetchers

logger = logging.getLogger(__name__)

VERSION_MIN, VERSION_MAX = 17, 18
"""Versions of Fetch between brokers: with topic ids and the follower's broker epoch."""

BACKOFF_MS_MIN: Final = 50
"""The first backoff after an error. Each is twice the one before, up to `replica.fetch.backoff.ms`."""

ABANDON_MS: Final = 20
"""How long a new partition waits for the response to a request without it. Busy leaders respond sooner."""

TRUNCATIONS_PER_TICK: Final = 8
"""Each truncation blocks the loop for some milliseconds."""

THROTTLED_MS_MAX: Final = 1000
"""How long throttled partitions wait before the rate is looked up again."""

PURPOSES: Final = ("replica", "replica-2")
"""Connections: an abandoned request keeps one busy until its response arrives."""


class _InFlight:
    """A Fetch request without a response."""

    __slots__ = ("is_opening", "purpose")

    def __init__(self, purpose: str, *, is_opening: bool) -> None:
        self.purpose = purpose
        self.is_opening = is_opening
        """It opens a session."""


class Fetcher:
    def __init__(self, leader_id: int, fetchers: "Fetchers") -> None:
        self.leader_id = leader_id
        self.replicas: dict[TopicIdPartition, FollowerReplica] = {}
        self._fetchers = fetchers
        self._world = fetchers.world
        self._session = FetchSession()
        self._in_flight: _InFlight | None = None
        """The request whose response counts."""
        self._busy: set[str] = set()
        """Purposes of the connections with a request in flight, abandoned or not."""
        self._diverging: deque[tuple[FollowerReplica, EpochEndOffset]] = deque()
        self._is_processing = False
        """A response is being processed."""
        self._is_waking = False
        self._failures = 0
        """Failed requests in a row."""
        self._backoff: Timer | None = None
        """Runs after a failed request."""
        self._abandon_timer: Timer | None = None

    # -- partitions ------------------------------------------------------------------------------------

    def follow(self, replica: FollowerReplica) -> None:
        self.replicas[replica.key] = replica
        replica.is_ready = False
        if self._backoff is not None:  # the metadata log says that the leader is alive
            self._backoff.cancel()
            self._backoff = None
            self._wake(replica)  # for all partitions: this one may be gone before its log is synced
        if replica.partition.has_failing_disk:
            replica.waits_for_disk = True
            return
        self._begin(replica)

    def _begin(self, replica: FollowerReplica, *, is_trial: bool = False) -> None:
        try:
            replica.begin()
        except StorageError as error:
            self._failed(replica, error)
            return
        self._enter(replica, is_trial=is_trial)

    def suspend(self, key: TopicIdPartition) -> None:
        """The disk fails: do not fetch the partition until `resume`."""
        replica = self.replicas.get(key)
        if replica is not None:
            replica.waits_for_disk = True
            replica.is_ready = False
            if replica.timer is not None:
                replica.timer.cancel()
                replica.timer = None
            self._session.drop(replica)

    def resume(self, key: TopicIdPartition) -> None:
        replica = self.replicas.get(key)
        if replica is not None and replica.waits_for_disk:
            replica.waits_for_disk = False
            self._begin(replica, is_trial=True)

    def forget(self, key: TopicIdPartition) -> FollowerReplica | None:
        replica = self.replicas.pop(key, None)
        if replica is not None:
            if replica.timer is not None:
                replica.timer.cancel()
                replica.timer = None
            self._session.drop(replica)
        return replica

    def stop(self) -> None:
        for key in list(self.replicas):
            self.forget(key)
        for timer in (self._backoff, self._abandon_timer):
            if timer is not None:
                timer.cancel()
        self._in_flight = self._backoff = self._abandon_timer = None

    def _is_current(self, replica: FollowerReplica) -> bool:
        return self.replicas.get(replica.key) is replica and not replica.waits_for_disk

    def _enter(self, replica: FollowerReplica, *, is_trial: bool = False) -> None:
        """Fetch a partition once its log end may be sent to the leader. After a failure of its disk (`is_trial`) its
        log is synced first."""

        def synced(failed: list[Partition]) -> None:
            if not self._is_current(replica):
                return
            if failed:
                self._failed(replica, _not_synced(replica.partition))
                return
            replica.is_ready = True
            self._session.put(replica)
            self._wake(replica)

        self._fetchers.syncs.written([replica.partition], synced, is_trial=is_trial)

    # -- errors ----------------------------------------------------------------------------------------

    def _backoff_ms(self, errors: int) -> float:
        return min(float(self._fetchers.backoff_ms), BACKOFF_MS_MIN * 2.0 ** min(errors - 1, 16))

    def _failed(self, replica: FollowerReplica, error: KafkaError) -> None:
        """Have a partition back off; if its disk failed, until `resume`."""
        self._fetchers.failures += 1
        replica.failed(error)
        if isinstance(error, CorruptLog):
            replica.partition.damage_found()
        elif isinstance(error, StorageError) and not replica.waits_for_disk:
            replica.partition.disk_failed(UNWRITABLE)
        if not replica.waits_for_disk:
            self._pause(replica, self._backoff_ms(replica.errors))

    def _pause(self, replica: FollowerReplica, delay_ms: float) -> None:
        replica.is_ready = False
        self._session.drop(replica)
        replica.timer = self._world.call_later(delay_ms, partial(self._paused, replica))

    def _paused(self, replica: FollowerReplica) -> None:
        replica.timer = None
        self._enter(replica)

    def _move_into_range(self, replica: FollowerReplica) -> None:
        """The leader has no records at the log end here: fetch its log range and move the log end into it."""
        replica.is_ready = False
        self._session.drop(replica)

        def found(leader: LogRange) -> None:
            if not self._is_current(replica):
                return
            try:
                replica.move_into(leader, self._world.now_ms())
            except KafkaError as error:
                self._failed(replica, error)
            else:
                self._enter(replica)

        def failed(error: Exception) -> None:
            if not isinstance(error, KafkaError):
                raise error
            if self._is_current(replica):
                self._failed(replica, error)

        owner = self._fetchers
        steps = leader_log_range(
            owner.broker_client, self.leader_id, owner.node_id, replica, owner.timeout_ms
        )
        RunningSteps(steps, found, failed)

    def _leader_failed(self, error: KafkaError) -> None:
        self._session.reset()
        self._failures += 1
        self._fetchers.failures += 1
        if self._failures == 1:
            logger.info("cannot fetch from broker %d: %s", self.leader_id, error)
        self._backoff = self._world.call_later(self._backoff_ms(self._failures), self._backed_off)

    def _backed_off(self) -> None:
        self._backoff = None
        self._fetch()

    # -- requests --------------------------------------------------------------------------------------

    def _wake(self, new: FollowerReplica) -> None:
        """A partition is to be fetched that is in no request yet."""
        if self._in_flight is None:
            if not self._is_waking:
                self._is_waking = True
                self._world.call_soon(self._awake)
        elif self._abandon_timer is None and new.is_urgent and not self._in_flight.is_opening:
            self._abandon_later(self._in_flight)

    def _awake(self) -> None:
        self._is_waking = False
        self._fetch()

    def _abandon_later(self, in_flight: _InFlight) -> None:
        self._abandon_timer = self._world.call_later(ABANDON_MS, partial(self._abandon, in_flight))

    def _abandon(self, in_flight: _InFlight) -> None:
        self._abandon_timer = None
        has_connection = len(self._busy) < len(PURPOSES)
        if in_flight is self._in_flight and has_connection and self._session.has_new_partitions:
            self._in_flight = None
            self._session.reset()
            self._fetch()

    def _fetch(self) -> None:
        purpose = next((each for each in PURPOSES if each not in self._busy), None)
        if purpose is None or self._in_flight is not None or self._is_processing or self._backoff is not None:
            return
        is_opening = self._session.is_opening
        request = self._request()
        if request is None:
            return
        in_flight = self._in_flight = _InFlight(purpose, is_opening=is_opening)
        self._busy.add(purpose)
        response: Promise[Any] = self._fetchers.broker_client.send(
            self.leader_id,
            Request(
                Api.FETCH,
                VERSION_MIN,
                VERSION_MAX,
                write=lambda version: fetch_body(version, request),
                read=read_fetch_response,
            ),
            timeout_ms=self._fetchers.timeout_ms,
            purpose=purpose,
        )
        if response.is_settled:
            # Without the loop in between, a leader that always responds at once would block it.
            self._world.call_soon(lambda: self._wait_for(response, in_flight))
        else:
            self._wait_for(response, in_flight)

    def _wait_for(self, response: Promise[Any], in_flight: _InFlight) -> None:
        response.then(partial(self._responded, in_flight), partial(self._request_failed, in_flight))

    def _request(self) -> FetchRequest | None:
        """The next request; None if there is nothing to fetch."""
        self._pause_throttled()
        owner = self._fetchers
        ready = (each for each in self.replicas.values() if each.is_ready)
        first = next(ready, None)
        if first is None:
            return None
        wait_ms_max = 0 if self._session.is_opening else owner.wait_ms_max
        fields = self._session.next_request(chain((first,), ready))
        return FetchRequest(
            wait_ms_max,
            owner.bytes_min,
            owner.bytes_max,
            0,
            fields.session_id,
            fields.session_epoch,
            fields.topics,
            fields.forgotten,
            "",
            owner.node_id,
            owner.broker_epoch(),
            None,
        )

    def _clock_ms(self) -> int:
        return self._world.clock_ns() // 1_000_000

    def _pause_throttled(self) -> None:
        """Leave throttled partitions that lag out of the request while the throttle has them wait."""
        if not self._fetchers.has_throttled:
            return
        delay_ms = self._fetchers.throttle.delay_ms(self._clock_ms())
        if delay_ms > 0:
            delay_ms = min(delay_ms, THROTTLED_MS_MAX)
            for each in self.replicas.values():
                if each.is_throttled and each.is_ready and each.is_behind:
                    self._pause(each, delay_ms)

    # -- responses -------------------------------------------------------------------------------------

    def _is_awaited(self, in_flight: _InFlight) -> bool:
        """Whether a response counts. An abandoned one does not, but its connection is free again."""
        self._busy.discard(in_flight.purpose)
        if in_flight is not self._in_flight:
            if self._in_flight is None:
                self._fetch()
            elif (
                self._abandon_timer is None
                and self._session.has_new_partitions
                and not self._in_flight.is_opening
            ):
                self._abandon_later(self._in_flight)
            return False
        self._in_flight = None
        if self._abandon_timer is not None:
            self._abandon_timer.cancel()
            self._abandon_timer = None
        return True

    def _request_failed(self, in_flight: _InFlight, error: KafkaError) -> None:
        if self._is_awaited(in_flight):
            self._leader_failed(error)

    def _responded(self, in_flight: _InFlight, response: FetchResponse) -> None:
        if not self._is_awaited(in_flight):
            return
        if response.error_code:
            self._refused(response.error_code)
            return
        if self._failures:
            logger.info("fetching from broker %d works again", self.leader_id)
        self._failures = 0
        self._session.answered(response.session_id)
        self._process(response)

    def _refused(self, code: int) -> None:
        """The session is gone, as after a restart of the leader, or the leader rejects the request."""
        was_open = self._session.is_open
        if code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self._session.reset(0)
        else:
            self._session.reset()
        if was_open:
            self._fetch()
        else:
            self._leader_failed(KafkaError(f"it answers error {code}", ErrorCode.UNKNOWN_SERVER_ERROR))

    def _process(self, response: FetchResponse) -> None:
        self._is_processing = True
        now_ms = self._world.now_ms()
        good: list[tuple[FollowerReplica, FetchResult]] = []
        grown: list[Partition] = []
        for topic, results in response.topics:
            for result in results:
                replica = self.replicas.get((topic, result.partition))  # type: ignore[arg-type]  # by id
                if replica is None or replica.sent is None:
                    continue  # no longer replicated from this leader, or backing off
                if result.diverging_epoch is not None and not result.error_code:
                    self._diverging.append((replica, result.diverging_epoch))
                    continue
                try:
                    taken_bytes = replica.append(result, now_ms)
                except KafkaError as error:
                    if error.code == ErrorCode.OFFSET_OUT_OF_RANGE:
                        self._move_into_range(replica)
                    else:
                        self._failed(replica, error)
                    continue
                good.append((replica, result))
                if taken_bytes:
                    self._fetchers.copied_bytes += taken_bytes
                    grown.append(replica.partition)
                    if replica.is_throttled:
                        self._fetchers.throttle.take(taken_bytes, self._clock_ms())
        self._update(good)
        self._truncate(grown)

    def _update(self, good: list[tuple[FollowerReplica, FetchResult]]) -> None:
        """Take over high watermarks and log starts."""
        starts: dict[TopicPartition, Offset] = {}
        for replica, result in good:
            if replica.starts_later(result):
                starts[replica.partition.name] = result.log_start_offset
        if starts:
            try:
                self._fetchers.save_log_starts(starts)
            except StorageError as error:
                logger.error("%s", error)
        for replica, result in good:
            replica.update(result)
            if replica.sent != replica.fetch_position():
                self._session.put(replica)
            if result.records and not self._session.is_open:
                # Without a session, the leader fills responses in the order of the request: this one comes last now.
                self.replicas[replica.key] = self.replicas.pop(replica.key)

    def _truncate(self, grown: list[Partition]) -> None:
        """Truncate diverging logs, some in each tick of the loop; then sync what has grown."""
        for _ in range(min(len(self._diverging), TRUNCATIONS_PER_TICK)):
            replica, epoch_end = self._diverging.popleft()
            if not self._is_current(replica):
                continue
            try:
                replica.truncate_diverging(epoch_end)
            except KafkaError as error:
                if error.code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    self._move_into_range(replica)
                else:
                    self._failed(replica, error)
                continue
            # The high watermark in this response does not hold for the log before the truncation: fetch it again.
            self._session.drop(replica)
            self._session.put(replica)
        if self._diverging:
            self._world.call_soon(partial(self._truncate, grown))
        else:
            self._fetchers.syncs.written(grown, self._synced)

    def _synced(self, failed: list[Partition]) -> None:
        self._is_processing = False
        for partition in failed:
            replica = self.replicas.get((partition.topic_id, partition.number))
            if replica is not None and replica.is_ready:
                self._failed(replica, _not_synced(partition))
        self._fetch()


def _not_synced(partition: Partition) -> KafkaError:
    return StorageError(f"{partition.name} could not be synced, so its leader must not count on it")
