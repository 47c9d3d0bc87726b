"""Consume partitions from given positions: no groups, no commits.

Each broker gets one fetch at a time, for all partitions that it leads and that are not backing off. The next fetch is
sent before the records of the last one are returned, so that broker and reader work in parallel. A fetch is a long
poll: the broker holds it until it has records or the wait is over. After a retriable error the partition is fetched
again, from the current leader. A position outside of the log is moved to the start or the end, or raised, as
configured. There are no fetch sessions: with a few partitions they would save little.

After an unclean election a reader past the new log end gets OFFSET_OUT_OF_RANGE. Records that were replaced before
that are not noticed.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from penstock.base.errors import ErrorCode
from penstock.base.ids import Offset, TopicPartition
from penstock.records import CorruptBatch, Record
from penstock.wire import FetchResult, NodeEndpoint
from penstock.wire.fetch_client import FetchResponse
from penstock.wire.request import Request

from .cluster import Cluster
from .connection import Call
from .decoding import decode
from .errors import NETWORK_ERRORS, RETRIABLE, ClientError, OffsetGone, TimedOut, refused
from .fetch_request import fetch_request
from .network import Link
from .offsets import EARLIEST, LATEST, READ_UNCOMMITTED, list_offsets

REFRESH_MS = 5_000


class Reset(StrEnum):
    """How a position outside of its log is handled: auto.offset.reset."""

    EARLIEST = "earliest"
    LATEST = "latest"
    NONE = "none"


@dataclass(frozen=True)
class ConsumerSettings:
    isolation_level: int = READ_UNCOMMITTED
    reset: Reset = Reset.NONE
    fetch_wait_ms_max: int = 500
    fetch_bytes_min: int = 1
    fetch_bytes_max: int = 50 * 2**20
    partition_bytes_max: int = 2**20
    records_bytes_max: int = 128 * 2**20
    """Limit of one batch's size after decompression."""
    failing_ms_max: float = 60_000
    """How long a partition may fail with retriable errors before the error is raised."""


class Fetched(NamedTuple):
    """Records of one partition."""

    partition: TopicPartition
    records: list[Record]
    next_offset: Offset
    high_watermark: Offset


@dataclass
class _Position:
    offset: Offset
    retry_ms: float = 0.0
    attempts: int = 0
    failing_since_ms: float | None = None
    """When the first of its current failures was."""
    is_fetching: bool = False


class _Flight(NamedTuple):
    link: Link
    call: Call[FetchResponse]
    asked: dict[TopicPartition, Offset]
    started_ms: float


class Consumer:
    def __init__(
        self,
        cluster: Cluster,
        positions: Mapping[TopicPartition, Offset],
        settings: ConsumerSettings | None = None,
        on_reset: Callable[[TopicPartition, Offset, Offset], None] = lambda *_: None,
    ) -> None:
        """`on_reset` gets the partition, the offset that no longer exists, and the new position."""
        self.settings = settings or ConsumerSettings()
        self._on_reset = on_reset
        self._cluster = cluster
        self._positions = {partition: _Position(offset) for partition, offset in positions.items()}
        self._flights: dict[int, _Flight] = {}
        self._stale: set[str] = set()

    # -- for callers ----------------------------------------------------------------------------------

    @property
    def positions(self) -> dict[TopicPartition, Offset]:
        """The next offset of each partition."""
        return {partition: each.offset for partition, each in self._positions.items()}

    def drop(self, partition: TopicPartition) -> None:
        """Stop reading a partition; responses in flight are dropped."""
        self._positions.pop(partition, None)

    def poll(self, wait_ms: float) -> list[Fetched]:
        """Return records as soon as there are some, or nothing once the wait is over."""
        deadline_ms = self._cluster.clock.now_ms() + wait_ms
        while True:
            self._dispatch()
            fetched = self._collect(deadline_ms)
            if fetched:
                self._dispatch()
                return fetched
            if not self._positions or self._cluster.clock.now_ms() >= deadline_ms:
                return []

    # -- asking ---------------------------------------------------------------------------------------

    def _dispatch(self) -> None:
        if self._stale:
            # If no broker answers, the partitions are retried here until their timeout.
            with suppress(*NETWORK_ERRORS):
                self._cluster.refresh(self._stale, timeout_ms=REFRESH_MS)
                self._stale.clear()
        now_ms = self._cluster.clock.now_ms()
        by_leader: dict[int, dict[TopicPartition, Offset]] = {}
        for partition, position in self._positions.items():
            if position.is_fetching or position.retry_ms > now_ms:
                continue
            leader = self._cluster.leader(partition)
            if leader is None:
                self._stale.add(partition.topic)
                self._retry(partition, refused(f"partition {partition}", ErrorCode.LEADER_NOT_AVAILABLE))
            elif leader.leader not in self._flights:
                by_leader.setdefault(leader.leader, {})[partition] = position.offset
        for node_id, asked in by_leader.items():
            try:
                link = self._cluster.link(node_id)
                call = link.start(self._request(asked))
            except NETWORK_ERRORS as error:
                self._retry_all(asked, error)
                continue
            self._flights[node_id] = _Flight(link, call, asked, now_ms)
            for partition in asked:
                self._positions[partition].is_fetching = True

    def _request(self, asked: Mapping[TopicPartition, Offset]) -> Request[FetchResponse]:
        settings = self.settings
        return fetch_request(
            self._cluster,
            asked,
            wait_ms_max=settings.fetch_wait_ms_max,
            bytes_max=settings.fetch_bytes_max,
            isolation_level=settings.isolation_level,
            partition_bytes_max=settings.partition_bytes_max,
            bytes_min=settings.fetch_bytes_min,
        )

    # -- answers --------------------------------------------------------------------------------------

    def _collect(self, deadline_ms: float) -> list[Fetched]:
        clock = self._cluster.clock
        if not any(each.call.is_done for each in self._flights.values()):
            left_ms = max(0.0, min(deadline_ms, self._next_retry_ms()) - clock.now_ms())
            if self._flights:
                self._wait(left_ms)
            else:
                clock.sleep_ms(left_ms)
        fetched: list[Fetched] = []
        for node_id, flight in list(self._flights.items()):
            if flight.call.is_done:
                del self._flights[node_id]
                fetched += self._land(flight)
        return fetched

    def _next_retry_ms(self) -> float:
        return min(
            (each.retry_ms for each in self._positions.values() if not each.is_fetching), default=float("inf")
        )

    def _wait(self, wait_ms: float) -> None:
        for link in self._cluster.network.wait([each.link for each in self._flights.values()], wait_ms):
            with suppress(*NETWORK_ERRORS):  # its calls carry the error
                link.read()
        limit_ms = self._cluster.settings.request_timeout_ms + self.settings.fetch_wait_ms_max
        now_ms = self._cluster.clock.now_ms()
        for flight in self._flights.values():
            if not flight.call.is_done and now_ms - flight.started_ms > limit_ms:
                flight.link.close()

    def _land(self, flight: _Flight) -> list[Fetched]:
        for partition in flight.asked:
            if partition in self._positions:
                self._positions[partition].is_fetching = False
        try:
            response = flight.call.result()
        except NETWORK_ERRORS as error:
            self._retry_all(flight.asked, error)
            return []
        if response.error_code:
            problem = refused("Fetch", response.error_code)
            if response.error_code not in RETRIABLE:
                raise problem
            self._retry_all(flight.asked, problem)
            return []
        fetched = []
        for topic, results in response.topics:
            for result in results:
                partition = TopicPartition(str(topic), result.partition)
                position = self._positions.get(partition)
                if position is not None and partition in flight.asked:
                    got = self._take(partition, position, result, response.node_endpoints)
                    fetched += [got] if got is not None else []
        return fetched

    def _take(
        self,
        partition: TopicPartition,
        position: _Position,
        result: FetchResult,
        endpoints: Sequence[NodeEndpoint],
    ) -> Fetched | None:
        code = result.error_code
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._reset(partition, position)
            return None
        if code:
            problem = refused(f"partition {partition}", code)
            if code not in RETRIABLE:
                raise problem
            hint = result.current_leader
            if hint is None or not self._cluster.learn(partition, hint, endpoints):
                self._stale.add(partition.topic)
            self._retry(partition, problem)
            return None
        position.failing_since_ms, position.attempts = None, 0
        if not result.records:
            return None
        try:
            decoded = decode(
                result.records, position.offset, result.aborted, bytes_max=self.settings.records_bytes_max
            )
        except CorruptBatch as error:
            raise CorruptBatch(f"partition {partition} at offset {position.offset}: {error}") from error
        if not decoded.batches:
            raise ClientError(
                f"partition {partition}: the batch at offset {position.offset} did not come whole in "
                f"{len(result.records)} bytes",
                ErrorCode.CORRUPT_MESSAGE,
            )
        position.offset = decoded.next_offset
        return Fetched(partition, decoded.records, decoded.next_offset, result.high_watermark)

    # -- trouble --------------------------------------------------------------------------------------

    def _reset(self, partition: TopicPartition, position: _Position) -> None:
        if self.settings.reset is Reset.NONE:
            ends = [
                list_offsets(self._cluster, {partition: time})[partition].offset
                for time in (EARLIEST, LATEST)
            ]
            raise OffsetGone(
                f"partition {partition} has no offset {position.offset}, it has {ends[0]} to {ends[1]}"
            )
        time = EARLIEST if self.settings.reset is Reset.EARLIEST else LATEST
        found = list_offsets(self._cluster, {partition: time}, isolation_level=self.settings.isolation_level)
        self._on_reset(partition, position.offset, found[partition].offset)
        position.offset = found[partition].offset

    def _retry_all(self, partitions: Mapping[TopicPartition, Offset], error: ClientError) -> None:
        for partition in partitions:
            self._stale.add(partition.topic)
            self._retry(partition, error)

    def _retry(self, partition: TopicPartition, error: ClientError) -> None:
        position = self._positions.get(partition)
        if position is None:
            return
        client = self._cluster.settings
        now_ms = self._cluster.clock.now_ms()
        if position.failing_since_ms is None:
            position.failing_since_ms = now_ms
        if now_ms - position.failing_since_ms >= self.settings.failing_ms_max:
            seconds = self.settings.failing_ms_max / 1000
            raise TimedOut(f"partition {partition} could not be read for {seconds:g} s: {error}")
        pause_ms = min(client.retry_backoff_ms * 2 ** min(position.attempts, 10), client.retry_backoff_ms_max)
        position.attempts += 1
        position.retry_ms = now_ms + pause_ms * self._cluster.rng.uniform(0.8, 1.2)
