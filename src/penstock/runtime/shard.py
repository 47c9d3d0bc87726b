"""One partition of an internal topic, as a coordinator uses it: read from beginning to end, then written to.

Reading is done in portions, so that clients of other partitions are served in between. What is written is answered
in its order: a reply that rests on earlier writes waits for them (`after`).

Where writes come in quick succession, as the commits of many members do, a batch and a sync for each would cost more
than all the rest. So there is a gap between them (`linger_ms`): what comes in it is gathered, and written as one batch
at its end. What comes after a longer silence is written at once.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import Offset, TimestampMs
from penstock.base.world import Timer, World
from penstock.records import RecordBatch, build_batch, iter_batches
from penstock.replica import ALL_IN_SYNC, Partition
from penstock.storage import Appended, Origin, StorageError

logger = logging.getLogger(__name__)

PORTION_BYTES: Final = 256 * 1024
"""What is read and replayed before others get their turn: some ten milliseconds of it."""

WRITE_MS_MAX: Final = 30_000
"""How long a write may take; Kafka's `offsets.commit.timeout.ms` is shorter, but then its write goes on as well."""

COMMIT_RETRY_MS: Final = 1000
"""After how long what was read and could not be synced is tried again: the disk is in trouble."""

GATHERED_BYTES_MAX: Final = 64 * 1024
"""So much is not gathered any longer; far below what a batch may have."""

KeyValue = tuple[bytes, bytes | None]
Done = Callable[[KafkaError | None], None]


class _Gathered:
    """Records that will be one batch, and who waits for it."""

    def __init__(self, base_offset: Offset) -> None:
        self.base_offset = base_offset
        """What its first record will have, since nobody else writes here. If what was written before is lost, so is
        this."""
        self.records: list[tuple[bytes, bytes | None, TimestampMs]] = []
        self.size = 0
        self.calls: list[Done] = []


class _Write:
    """A `Writer`: a batch, and what waits for it."""

    def __init__(
        self, shard: "ShardLog", appended: Appended, deadline_ms: TimestampMs, calls: list[Done]
    ) -> None:
        self.appended = appended
        self.acks = ALL_IN_SYNC
        self.deadline_ms = deadline_ms
        self.calls = calls
        self._shard = shard

    def settle(self, error: KafkaError | None) -> None:
        self._shard.settled(self)
        _tell(self.calls, error)


def _tell(calls: Iterable[Done], error: KafkaError | None) -> None:
    for call in calls:
        call(error)


class ShardLog:
    def __init__(self, world: World, partition: Partition) -> None:
        self.partition = partition
        self.epoch = partition.leader_epoch
        """In which the coordinator took over; in another it is another coordinator's."""
        self._world = world
        self.linger_ms = 0
        """How long after one write the next may be."""
        self._last: _Write | None = None
        """The write that was begun last and is not settled."""
        self._last_ms: TimestampMs = 0
        """When a write was last begun."""
        self._gathered: _Gathered | None = None
        self._timer: Timer | None = None
        """Runs while something is gathered."""
        self.fill: Callable[[], None] = lambda: None
        """Called before what is gathered is written, to append what its caller held back till then."""
        self._is_closed = False

    def is_still(self, partition: Partition | None) -> bool:
        """Whether this is the partition that is led here now, in the same epoch."""
        return partition is self.partition and partition.leader_epoch == self.epoch

    def close(self) -> None:
        """Write no more: what is gathered never will be written."""
        self._is_closed = True
        gathered = self._take_gathered()
        if gathered is not None:
            _tell(gathered.calls, self._led_elsewhere())

    # -- reading ---------------------------------------------------------------------------------------

    def read_all(
        self,
        take: Callable[[Iterable[RecordBatch]], None],
        done: Callable[[], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """Give out every batch there is now, in portions; what `take` raises ends it."""
        self._read(self.partition.log.log_start, self.partition.log.log_end, take, done, failed)

    def _read(
        self,
        offset: Offset,
        end: Offset,
        take: Callable[[Iterable[RecordBatch]], None],
        done: Callable[[], None],
        failed: Callable[[Exception], None],
    ) -> None:
        if self._is_closed:
            return
        try:
            if offset < end:
                data = self.partition.log.read(offset, PORTION_BYTES, visible=end)
                batches = list(iter_batches(bytearray(data)))
                for each in batches:
                    each.check_crc()
                take(each for each in batches if each.last_offset >= offset)
                next_offset = batches[-1].next_offset if batches else end
        except Exception as error:  # whatever is wrong with the records ends this shard, and no other
            failed(error)
            return
        if offset >= end:
            self._commit(end, done)
            return
        self._world.call_soon(lambda: self._read(next_offset, end, take, done, failed))

    def _commit(self, end: Offset, done: Callable[[], None]) -> None:
        """See to it that what was read is committed. A node that was killed leaves records that are not on disk yet.
        What rests on them, a marker in another log, may get there first, and be all that a power cut leaves."""
        if self._is_closed or not self.partition.is_leader:
            return
        log = self.partition.log
        if end <= max(min(log.flushed, self.partition.high_watermark), log.log_start):
            done()
            return

        def settled(error: KafkaError | None) -> None:
            if error is not None:
                self._world.call_later(COMMIT_RETRY_MS, lambda: self._commit(end, done))
            elif not self._is_closed:
                done()

        write = _Write(self, Appended(end - 1, end - 1), self._world.now_ms() + WRITE_MS_MAX, [settled])
        self.partition.wait_for_written(write)

    # -- writing ---------------------------------------------------------------------------------------

    def append(
        self, records: Sequence[KeyValue], done: Done, *, producer: tuple[int, int] | None = None
    ) -> Offset:
        """Append records, all of them or none; the first one's offset. `done` is told when they are committed, or that
        they will not be. Raises where they are not even taken."""
        now_ms = self._world.now_ms()
        timed = [(key, value, now_ms) for key, value in records]
        if producer is not None:
            return self.append_batch(
                build_batch(timed, producer_id=producer[0], producer_epoch=producer[1], transactional=True),
                done,
            )
        if self.begin_gathering(now_ms):
            assert self._gathered is not None
            return self._gather(self._gathered, timed, done)
        return self.append_batch(build_batch(timed), done)

    def append_batch(self, batch: bytes, done: Done) -> Offset:
        """Append a batch as it is, behind all that was appended before."""
        self._write_gathered()
        return self._write(batch, [done])

    def _write(self, batch: bytes, calls: list[Done]) -> Offset:
        partition = self.partition
        if self._is_closed or not partition.is_leader:
            raise self._led_elsewhere()
        now_ms = self._last_ms = self._world.now_ms()
        appended = partition.stage(memoryview(bytearray(batch)), ALL_IN_SYNC, now_ms, Origin.COORDINATOR)
        self._last = _Write(self, appended, now_ms + WRITE_MS_MAX, calls)
        partition.wait(self._last)
        return appended.base_offset

    def begin_gathering(self, now_ms: TimestampMs) -> bool:
        """Whether what is appended now is gathered; then `fill` is called when it is about to be written."""
        if self._gathered is not None:
            return True
        if self._is_closed or not self.partition.is_leader or not self._is_too_soon(now_ms):
            return False
        self._gathered = _Gathered(self.partition.log.staged_end)
        wait_ms = self.linger_ms - (now_ms - self._last_ms)
        self._timer = self._world.call_later(wait_ms, self._write_gathered)
        return True

    def _is_too_soon(self, now_ms: TimestampMs) -> bool:
        """Whether the last write is so recent that the next must wait."""
        return 0 <= now_ms - self._last_ms < self.linger_ms

    def _gather(
        self, gathered: _Gathered, records: list[tuple[bytes, bytes | None, TimestampMs]], done: Done
    ) -> Offset:
        offset = gathered.base_offset + len(gathered.records)
        gathered.records += records
        for key, value, _ in records:
            gathered.size += len(key) if value is None else len(key) + len(value)
        gathered.calls.append(done)
        if gathered.size > GATHERED_BYTES_MAX:
            self._write_gathered()
        return offset

    def _take_gathered(self) -> _Gathered | None:
        gathered, self._gathered = self._gathered, None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        return gathered

    def _write_gathered(self) -> None:
        if self._gathered is None:
            return
        self.fill()
        gathered = self._take_gathered()
        if gathered is None:
            return  # there was so much to add that it is written already
        if not gathered.records:
            for call in gathered.calls:
                self.after(call)
            return
        try:
            if gathered.base_offset != self.partition.log.staged_end:
                raise StorageError(f"{self.partition.name} lost what was appended before")
            self._write(build_batch(gathered.records), gathered.calls)
        except KafkaError as error:
            _tell(gathered.calls, error)

    def after(self, call: Done) -> None:
        """Call once everything that was appended so far is committed, which may be now."""
        if self._gathered is not None:
            self._gathered.calls.append(call)
        elif self._last is not None:
            self._last.calls.append(call)
        else:
            call(None)

    def _led_elsewhere(self) -> KafkaError:
        return KafkaError(f"{self.partition.name} is led elsewhere", ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def settled(self, write: _Write) -> None:
        if write is self._last:
            self._last = None


class Shard(ABC):
    """A coordinator on its partition: loading, serving, or, where its records cannot be read, neither."""

    def __init__(self, world: World, log: ShardLog, reload: Callable[[], None]) -> None:
        self.log = log
        self._world = world
        self._reload = reload
        self._is_loaded = False
        self._is_damaged = False
        self._timer: Timer | None = None
        self._timer_ms = 0

    @property
    def is_loaded(self) -> bool:
        """Whether requests can be answered."""
        return self._is_loaded

    @property
    def is_damaged(self) -> bool:
        """Whether its records cannot be read, so that they never will be."""
        return self._is_damaged

    @property
    def trouble(self) -> ErrorCode | None:
        """Why they cannot."""
        if self._is_damaged:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return None if self._is_loaded else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    # -- what a kind of shard does ---------------------------------------------------------------------

    @abstractmethod
    def take(self, batches: Iterable[RecordBatch]) -> None:
        """Replay these."""

    @abstractmethod
    def begin(self) -> None:
        """All is replayed."""

    @abstractmethod
    def forget(self) -> None:
        """Answer who waits, and be no coordinator any more."""

    @abstractmethod
    def next_deadline_ms(self) -> TimestampMs | None: ...

    @abstractmethod
    def tick(self) -> None:
        """Do what is due."""

    # -- coming and going ------------------------------------------------------------------------------

    def load(self) -> None:
        self.log.read_all(self.take, self._loaded, self._damaged)

    def _loaded(self) -> None:
        self._is_loaded = True
        self.begin()
        self._tick()

    def _damaged(self, error: Exception) -> None:
        """What the partition says cannot be read. What it keeps is not served; other partitions are."""
        self._is_damaged = True
        logger.error("%s cannot be read, and what it keeps is not served: %s", self.log.partition.name, error)

    def unload(self) -> None:
        """The partition is led elsewhere, or gone, or is read anew."""
        self._is_loaded = False
        self.log.close()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.forget()

    def lost(self, error: KafkaError) -> None:
        """A write failed, and what is in memory may not be what the log says: read it anew."""
        if self._is_loaded:
            self._is_loaded = False
            logger.warning("%s is read anew: %s", self.log.partition.name, error)
            self._world.call_soon(self._reload)

    # -- time ------------------------------------------------------------------------------------------

    def set_timer(self) -> None:
        """See to it that what is due next is done in time."""
        deadline_ms = self.next_deadline_ms() if self._is_loaded else None
        if deadline_ms is None:
            return
        if self._timer is not None:
            if self._timer_ms <= deadline_ms:
                return
            self._timer.cancel()
        self._timer_ms = deadline_ms
        self._timer = self._world.call_later(max(0, deadline_ms - self._world.now_ms()), self._tick)

    def _tick(self) -> None:
        self._timer = None
        if self._is_loaded:
            self.tick()
            self.set_timer()
