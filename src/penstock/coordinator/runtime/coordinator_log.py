"""One partition of an internal topic, as a coordinator uses it: read from beginning to end, then written to.

Reading is done in portions, so that clients of other partitions are served in between. What is written is answered
in its order: a reply that rests on earlier writes waits for them (`after`). A write may take as long as it likes;
those who asked for it do not wait that long (`timeouts`).

Where writes come in quick succession, as the commits of many members do, a batch and a sync for each would cost more
than all the rest. So there is a gap between them (`linger_ms`): what comes in it is gathered, and written as one batch
at its end. What comes after a longer silence is written at once.

The end of a gap is told by a timer, which wakes a node that has nothing else to do. Where so many come that the next
is a moment away anyway, that one ends the gap (`LATE_MS`), and the timer is there in case that it stays away:

    write . . . . . | . write            . appended, and gathered
                    | the gap's end
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import Offset, TimestampMs
from penstock.base.world import Timer, World
from penstock.coordinator.runtime.write_timeouts import Done, Overdue, WriteTimeouts
from penstock.records import RecordBatch, build_batch, iter_batches
from penstock.replica import ALL_IN_SYNC, Partition
from penstock.storage import Appended, Origin, StorageError

PORTION_BYTES: Final = 256 * 1024
"""What is read and replayed before others get their turn: some ten milliseconds of it."""

COMMIT_RETRY_MS: Final = 1000
"""After how long what was read and could not be synced is tried again: the disk is in trouble."""

GATHERED_BYTES_MAX: Final = 64 * 1024
"""So much is not gathered any longer; far below what a batch may have."""

LATE_MS: Final = 1
"""How much longer a gap may become where its end waits for the next to come."""

GAPS_AFTER_VAIN: Final = 16
"""After nobody came in that time, so many gaps end on time: those who wait to be answered before they go on, and they
may be all there are, lose a hundredth of their time by it."""

KeyValue = tuple[bytes, bytes | None]


class _Gathered:
    """Records that will be one batch, and who waits for it."""

    def __init__(self, base_offset: Offset) -> None:
        self.base_offset = base_offset
        """What its first record will have, since nobody else writes here. If what was written before is lost, so is
        this."""
        self.records: list[tuple[bytes, bytes | None, TimestampMs]] = []
        self.size = 0
        self.calls: list[Done] = []
        self.asked = 0
        """How often it was asked, after the first time, whether something is gathered now. Once for each that comes,
        and once more for all that `fill` appends, which makes up for the first."""


class _Write:
    """A `DelayedProduce`: a batch, and what waits for it."""

    acks = ALL_IN_SYNC
    deadline_ms: TimestampMs = 2**63 - 1
    """Never: the state in memory has moved with it, and follows what becomes of it."""

    def __init__(self, shard: "CoordinatorLog", appended: Appended, calls: list[Done]) -> None:
        self.appended = appended
        self.calls = calls
        self._shard = shard

    def settle(self, error: KafkaError | None) -> None:
        self._shard.settled(self)
        _tell(self.calls, error)


def _tell(calls: Iterable[Done], error: KafkaError | None) -> None:
    for call in calls:
        call(error)


class CoordinatorLog:
    def __init__(self, world: World, partition: Partition) -> None:
        self.partition = partition
        self.epoch = partition.leader_epoch
        """In which the coordinator took over; in another it is another coordinator's."""
        self._world = world
        self.linger_ms = 0
        """How long after one write the next may be."""
        self.timeouts = WriteTimeouts(world)
        """Of those who wait for what they appended, or for what they were decided on."""
        self._last: _Write | None = None
        """The write that was begun last and is not settled."""
        self._last_ms: TimestampMs = 0
        """When a write was last begun."""
        self._gathered: _Gathered | None = None
        self._timer: Timer | None = None
        """Runs while something is gathered."""
        self._is_crowded = False
        """In the gap before, one came every other millisecond, or more."""
        self._is_late = False
        """This gap's timer leaves time for one more to come."""
        self._gaps_on_time = 0
        """So many gaps with a crowd are to end on time."""
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

        self.partition.wait_for_written(_Write(self, Appended(end - 1, end - 1), [settled]))

    # -- writing ---------------------------------------------------------------------------------------

    @property
    def next_offset(self) -> Offset:
        """What the next record that is appended will have."""
        gathered = self._gathered
        if gathered is None:
            return self.partition.log.staged_end
        return gathered.base_offset + len(gathered.records)

    def append(
        self,
        records: Sequence[KeyValue],
        done: Done,
        overdue: Overdue,
        *,
        producer: tuple[int, int] | None = None,
    ) -> Offset:
        """Append records, all of them or none; the first one's offset. `done` is told when they are committed, or that
        they will not be; `overdue` before, where that takes too long. Raises where they are not even taken."""
        now_ms = self._world.now_ms()
        timed = [(key, value, now_ms) for key, value in records]
        if producer is not None:
            return self.append_batch(
                build_batch(timed, producer_id=producer[0], producer_epoch=producer[1], transactional=True),
                done,
                overdue,
            )
        if self.begin_gathering(now_ms):
            assert self._gathered is not None
            return self._gather(self._gathered, timed, self.timeouts.limited(done, overdue))
        return self.append_batch(build_batch(timed), done, overdue)

    def append_batch(self, batch: bytes, done: Done, overdue: Overdue) -> Offset:
        """Append a batch as it is, behind all that was appended before."""
        self._write_gathered()
        offset = self._write(batch, [])
        self.after(done, overdue)
        return offset

    def _write(self, batch: bytes, calls: list[Done]) -> Offset:
        partition = self.partition
        if self._is_closed or not partition.is_leader:
            raise self._led_elsewhere()
        now_ms = self._last_ms = self._world.now_ms()
        appended = partition.stage(memoryview(bytearray(batch)), ALL_IN_SYNC, now_ms, Origin.COORDINATOR)
        self._last = _Write(self, appended, calls)
        partition.wait(self._last)
        return appended.base_offset

    def begin_gathering(self, now_ms: TimestampMs) -> bool:
        """Whether what is appended now is gathered; then `fill` is called when it is about to be written."""
        if self._gathered is not None:
            self._gathered.asked += 1
            return True
        if self._is_closed or not self.partition.is_leader or not self._is_too_soon(now_ms):
            return False
        self._gathered = _Gathered(self.partition.log.staged_end)
        wait_ms = self.linger_ms - (now_ms - self._last_ms)
        self._is_late = self._is_crowded and not self._gaps_on_time
        if self._is_late:
            wait_ms += LATE_MS
        elif self._is_crowded:
            self._gaps_on_time -= 1
        self._timer = self._world.call_later(wait_ms, self._gap_ended)
        return True

    def end_gap(self, now_ms: TimestampMs) -> None:
        """Write what is gathered, if it is time: for who has just appended something, or is about to when filled."""
        if not self._is_too_soon(now_ms):
            self._write_gathered()

    def _gap_ended(self) -> None:
        """Nobody else has ended it."""
        if self._is_late:
            self._gaps_on_time = GAPS_AFTER_VAIN
        self._write_gathered()

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
            self._after(*gathered.calls)
            return
        try:
            self._is_crowded = 2 * gathered.asked > self.linger_ms
            if gathered.base_offset != self.partition.log.staged_end:
                raise StorageError(f"{self.partition.name} lost what was appended before")
            self._write(build_batch(gathered.records), gathered.calls)
        except KafkaError as error:
            _tell(gathered.calls, error)

    def after(self, done: Done, overdue: Overdue) -> None:
        """Call once everything that was appended so far is committed, which may be now."""
        if self._gathered is None and self._last is None:
            done(None)
        else:
            self._after(self.timeouts.limited(done, overdue))

    def _after(self, *calls: Done) -> None:
        unsettled = self._gathered or self._last
        if unsettled is None:
            _tell(calls, None)
        else:
            unsettled.calls += calls

    def _led_elsewhere(self) -> KafkaError:
        return KafkaError(f"{self.partition.name} is led elsewhere", ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def settled(self, write: _Write) -> None:
        if write is self._last:
            self._last = None
