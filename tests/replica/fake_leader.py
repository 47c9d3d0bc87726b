"""A leader that a follower can be tried against, and the follower: in one world, without a network.

The leader has real logs, and reads its requests from their bytes. What it is told to do wrong it does: be silent,
refuse, name errors, garble records. Real leaders are in `test_replication`.
"""

from collections import deque
from collections.abc import Callable
from datetime import timedelta
from random import Random
from typing import Any, TypeVar

from tests.worlds import START_MS, StillWorld

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import TopicPartition
from penstock.base.promise import Promise
from penstock.base.settings import LogSettings
from penstock.metadata.config_table import BROKER_SETTINGS
from penstock.records import build_batch
from penstock.replica.delayed_operations import Durability
from penstock.replica.fetchers import Fetchers
from penstock.replica.partition import Partition
from penstock.replica.sync_lane import SyncLane
from penstock.storage import Log, LogDirectory, open_directory
from penstock.vfs import MemoryDisk, Vfs
from penstock.wire import (
    Api,
    EpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchResult,
    fetch_reply,
    parse_fetch,
    parse_response_header,
    read_request,
    read_response,
    write_response,
)
from penstock.wire.messages import response_module
from penstock.wire.peers import PeerFailed
from penstock.wire.request import Request

E = ErrorCode
T = TypeVar("T")

LEADER, FOLLOWER = 1, 2
BROKER_EPOCH = 77
FETCH_VERSION, OFFSETS_VERSION = 18, 9
SMALL = LogSettings(segment_bytes=2000, index_interval_bytes=200, retention_ms=-1)
WHY = KafkaError("led elsewhere", E.NOT_LEADER_OR_FOLLOWER)


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b"-")


def batch(count: int = 1, *, fill: int = 0, size: int = 40) -> bytearray:
    value = bytes((fill + i) % 251 for i in range(size))
    return bytearray(build_batch([(b"k%d" % i, value, START_MS) for i in range(count)]))


def append(log: Log, epoch: int, count: int = 1, *, fill: int = 0, size: int = 40) -> None:
    log.append(batch(count, fill=fill, size=size), leader_epoch=epoch, now_ms=START_MS)


def bytes_of(log: Log) -> list[bytes]:
    return [bytes(each.view) for each in log.batches(log.log_start)]


def opened(vfs: Vfs, settings: LogSettings = SMALL) -> LogDirectory:
    return open_directory(vfs, "/data", now_ms=START_MS, rng=Random(1), settings_of=lambda _: settings)


class Led:
    """A partition as the leader has it."""

    def __init__(self, log: Log, epoch: int) -> None:
        self.log = log
        self.epoch = epoch
        self.high_watermark = log.log_end
        self.error = 0
        """What every fetch of it is answered with, if not 0."""
        self.garble: Callable[[bytearray], None] | None = None
        """What befalls its records on the way."""


class LeaderSession:
    """KIP-227: what is wanted, and what was last told of it."""

    def __init__(self, session_id: int) -> None:
        self.id = session_id
        self.epoch = 0
        self.wanted: dict[tuple[Any, int], FetchPartition] = {}
        self.told: dict[tuple[Any, int], tuple[int, int]] = {}

    def update(self, fetch: FetchRequest) -> None:
        self.epoch += 1
        for topic, numbers in fetch.forgotten:
            for number in numbers:
                del self.wanted[topic, number]
                self.told.pop((topic, number), None)
        for topic, partitions in fetch.topics:
            for each in partitions:
                self.wanted[topic, each.partition] = each

    def news(self, results: list[tuple[Any, FetchResult]]) -> list[tuple[Any, FetchResult]]:
        found = []
        for topic, result in results:
            key, ends = (topic, result.partition), (result.high_watermark, result.log_start_offset)
            if result.records or result.error_code or result.diverging_epoch or self.told.get(key) != ends:
                found.append((topic, result))
            if result.records:
                self.wanted[key] = self.wanted.pop(key)
            self.told[key] = ends
        return found


class Leader:
    """Stands in for `BrokerClient`: asks arrive at once, answers `latency_ms` later."""

    def __init__(self, world: StillWorld, *, latency_ms: float = 1, session_slots: int = 10) -> None:
        self.world = world
        self.directory = opened(MemoryDisk())
        self.partitions: dict[tuple[bytes, int], Led] = {}
        self.sessions: dict[int, LeaderSession] = {}
        self._session_slots = session_slots
        self._sessions_made = 0
        self.latency_ms = latency_ms
        self.fetches: list[FetchRequest] = []
        self.asked: list[tuple[int, str]] = []
        """Of each request: of whom it was asked, and on which connection."""
        self.refusals = 0
        """So many requests meet nobody."""
        self.is_silent = False
        self.in_flight = 0
        self.in_flight_max = 0
        self._waiting: dict[tuple[int, str], deque[Callable[[], bool]]] = {}
        """By connection: who has not been answered yet."""

    def lead(self, name: str = "orders", number: int = 0, *, epoch: int = 0) -> Led:
        key = (topic_id(name), number)
        if key not in self.partitions:
            log = self.directory.create(TopicPartition(name, number), now_ms=START_MS, topic_id=key[0])
            self.partitions[key] = Led(log, epoch)
        return self.partitions[key]

    def write(self, led: Led, count: int = 1, *, fill: int = 0, size: int = 40) -> None:
        append(led.log, led.epoch, count, fill=fill, size=size)
        led.high_watermark = led.log.log_end
        self.look()

    def send(
        self, broker_id: int, request: Request[T], *, timeout_ms: float, purpose: str = ""
    ) -> Promise[T]:
        answer: Promise[T] = Promise()
        self.asked.append((broker_id, purpose))
        if self.refusals:
            self.refusals -= 1
            answer.fail(PeerFailed("nobody listens there", refused=True))
        elif self.is_silent:
            self.world.call_later(timeout_ms, lambda: answer.fail(PeerFailed("not answered in time")))
        elif request.api is Api.FETCH:
            self._fetch(request, answer, purpose)
        else:
            body = self._list_offsets(request.write(OFFSETS_VERSION))
            self.world.call_later(
                self.latency_ms, lambda: answer.resolve(request.read(memoryview(body), OFFSETS_VERSION))
            )
        return answer

    # -- Fetch -----------------------------------------------------------------------------------------

    def _fetch(self, request: Request[Any], answer: Promise[Any], purpose: str) -> None:
        fetch = parse_fetch(memoryview(request.write(FETCH_VERSION)), 0, FETCH_VERSION)
        self.fetches.append(fetch)
        now_ms = self.world.now_ms()
        session: LeaderSession | None = None
        self.in_flight += 1
        self.in_flight_max = max(self.in_flight_max, self.in_flight)

        def send(results: list[tuple[bytes, FetchResult]], code: int = 0) -> None:
            by_topic: dict[Any, list[FetchResult]] = {}
            for topic, result in results:
                by_topic.setdefault(topic, []).append(result)
            frame = b"".join(
                fetch_reply(
                    FETCH_VERSION,
                    0,
                    list(by_topic.items()),
                    error_code=code,
                    session_id=0 if session is None else session.id,
                )[0]
            )[4:]
            _, at = parse_response_header(memoryview(frame), Api.FETCH, FETCH_VERSION)

            def arrive() -> None:
                self.in_flight -= 1
                answer.resolve(request.read(memoryview(frame)[at:], FETCH_VERSION))

            self.world.call_later(self.latency_ms, arrive)

        if fetch.session_epoch == 0:
            self.sessions.pop(fetch.session_id, None)
            if len(self.sessions) < self._session_slots:
                self._sessions_made += 1
                session = self.sessions[self._sessions_made] = LeaderSession(self._sessions_made)
        else:
            session = self.sessions.get(fetch.session_id)
            if session is None or session.epoch != fetch.session_epoch:
                code = E.INVALID_FETCH_SESSION_EPOCH if session else E.FETCH_SESSION_ID_NOT_FOUND
                session = None
                send([], code)
                return
        if session is not None:
            session.update(fetch)
        deadline_ms = now_ms + fetch.max_wait_ms

        def try_to_answer() -> bool:
            wanted = [(topic, each) for topic, some in fetch.topics for each in some]
            if session is not None:
                wanted = [(topic, each) for (topic, _), each in session.wanted.items()]
            results: list[tuple[Any, FetchResult]] = []
            left = fetch.max_bytes
            for topic, asked in wanted:
                result = self._read(topic, asked, left)
                left -= len(result.records or b"")
                results.append((topic, result))
            is_news = any(each.records or each.error_code or each.diverging_epoch for _, each in results)
            if not is_news and self.world.now_ms() < deadline_ms:
                return False
            if session is not None:
                news = session.news(results)
                results = results if fetch.session_epoch == 0 else news
            send(results)
            return True

        line = self._waiting.setdefault((fetch.replica_id, purpose), deque())
        line.append(try_to_answer)
        self.world.call_later(fetch.max_wait_ms, self.look)
        self.look()

    def look(self) -> None:
        """Answer who can be answered; on a connection, one after the other."""
        for line in self._waiting.values():
            while line and line[0]():
                line.popleft()

    def _read(self, topic: Any, asked: FetchPartition, left: int) -> FetchResult:
        led = self.partitions.get((topic, asked.partition))
        number = asked.partition
        code = 0
        if led is None:
            code = E.UNKNOWN_TOPIC_ID
        elif led.error:
            code = led.error
        elif asked.current_leader_epoch != led.epoch:
            is_old = asked.current_leader_epoch < led.epoch
            code = E.FENCED_LEADER_EPOCH if is_old else E.UNKNOWN_LEADER_EPOCH
        if code or led is None:
            return FetchResult(number, code, -1, -1, -1, b"")
        log, high = led.log, led.high_watermark
        last = asked.last_fetched_epoch
        if last >= 0:
            epoch, end = log.epochs.end_of(last, log.log_end)
            if epoch < 0:
                return FetchResult(number, E.OFFSET_OUT_OF_RANGE, -1, -1, -1, b"")
            if epoch < last or end < asked.fetch_offset:
                diverging = EpochEndOffset(epoch, end)
                return FetchResult(number, 0, high, high, log.log_start, diverging_epoch=diverging)
        if not log.log_start <= asked.fetch_offset <= log.log_end:
            return FetchResult(number, E.OFFSET_OUT_OF_RANGE, -1, -1, -1, b"")
        records = b""
        if asked.fetch_offset < log.log_end and left > 0:
            records = log.read(asked.fetch_offset, min(left, asked.partition_bytes_max))
            if led.garble is not None:
                garbled = bytearray(records)
                led.garble(garbled)
                records = bytes(garbled)
        return FetchResult(number, 0, high, high, log.log_start, records)

    # -- ListOffsets -----------------------------------------------------------------------------------

    def _list_offsets(self, body: bytes) -> bytes:
        message = read_request(Api.LIST_OFFSETS, OFFSETS_VERSION, memoryview(body))
        assert message.replica_id == FOLLOWER
        make = response_module(Api.LIST_OFFSETS, OFFSETS_VERSION)
        (topic,) = message.topics
        (wanted,) = topic.partitions
        led = self.partitions[topic_id(topic.name), wanted.partition_index]
        assert wanted.current_leader_epoch == led.epoch
        offset = {-1: led.log.log_end, -2: led.log.log_start}[wanted.timestamp]
        found = make.ListOffsetsPartitionResponse(
            partition_index=wanted.partition_index,
            error_code=E.NONE,
            timestamp=-1,
            offset=offset,
            leader_epoch=led.epoch,
        )
        reply = make.ListOffsetsResponse(
            throttle_time=timedelta(),
            topics=(make.ListOffsetsTopicResponse(name=topic.name, partitions=(found,)),),
        )
        written = write_response(Api.LIST_OFFSETS, OFFSETS_VERSION, reply)
        assert read_response(Api.LIST_OFFSETS, OFFSETS_VERSION, memoryview(written)) == reply
        return written


class Scene:
    """A leader, and a broker that follows it."""

    def __init__(
        self,
        *,
        settings: dict[str, str] | None = None,
        disk: Vfs | None = None,
        durability: Durability = Durability.ALONE,
        log_settings: LogSettings = SMALL,
        latency_ms: float = 1,
        session_slots: int = 10,
    ) -> None:
        self.world = StillWorld()
        self.leader = Leader(self.world, latency_ms=latency_ms, session_slots=session_slots)
        self.settings = settings or {}
        self.disk = MemoryDisk() if disk is None else disk
        self.directory = opened(self.disk, log_settings)
        self.lane = SyncLane(self.world)
        self.durability = durability
        self.fetchers = Fetchers(
            self.world,
            FOLLOWER,
            self.leader,  # type: ignore[arg-type]  # as far as it is used
            self.lane,
            durability,
            setting=self._setting,
            broker_epoch=lambda: BROKER_EPOCH,
            save_log_starts=self.directory.checkpoints.save_log_starts,
        )

    def _setting(self, name: str) -> int:
        return int(self.settings.get(name) or BROKER_SETTINGS[name].default or 0)

    def replica(self, name: str = "orders", number: int = 0) -> Partition:
        """A log here, which follows nobody yet."""
        partition = TopicPartition(name, number)
        log = self.directory.logs.get(partition) or self.directory.create(
            partition, now_ms=START_MS, topic_id=topic_id(name)
        )
        high_watermark = self.directory.checkpoints.high_watermarks.get(partition, log.log_start)
        return Partition(
            log,
            topic_id(name),
            self.world,
            self.lane,
            self.durability,
            self.world.call_soon,
            None,
            high_watermark,
        )

    def follow(self, partition: Partition, epoch: int = 0, leader: int = LEADER) -> None:
        partition.follow(leader, epoch, WHY)
        self.fetchers.follow(partition)

    def both(self, name: str = "orders", number: int = 0, *, epoch: int = 0) -> tuple[Led, Partition]:
        """A partition that is led there and followed here."""
        led, partition = self.leader.lead(name, number, epoch=epoch), self.replica(name, number)
        self.follow(partition, epoch)
        return led, partition

    def advance(self, ms: float) -> None:
        self.world.advance(ms)

    def caught_up(self, led: Led, partition: Partition, ms_max: int = 5000) -> None:
        """Let time pass until the copy is whole, which it must become."""
        for _ in range(ms_max):
            log = partition.log
            if log.log_end == led.log.log_end and partition.high_watermark == led.high_watermark:
                assert bytes_of(log) == bytes_of(led.log)
                return
            self.world.advance(1)
        raise AssertionError(f"{partition.log} and not {led.log} after {ms_max} ms")
