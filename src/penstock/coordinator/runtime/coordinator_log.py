"""One partition of an internal topic, as a coordinator uses it: read from beginning to end, then appended to.

Reading takes portions, so that other clients are served in between. Callbacks run in the order of the appends: a reply
that rests on earlier writes waits for them (`after`). A write has no deadline, but a request waits for it only for a
limited time (`timeouts`).

If appends come in quick succession, such as the commits of many members, a batch and a sync for each would cost more
than all the rest. So an append within `linger_ms` after the last write is gathered with others, and they are written
as one batch when the linger window ends. An append after a longer pause is written at once.

A timer ends the window, which wakes an idle node. If so many appends arrive that the next is due within a moment
anyway, the next append ends the window instead, up to `LATE_MS` later; the timer remains in case none arrives:

    write . . . . . | . write            . append, gathered
                    | end of the linger window
"""

from __future__ import annotations  # those of nested functions would be evaluated in each call

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import NEVER_MS, Offset, TimestampMs
from penstock.base.world import Timer, World
from penstock.coordinator.runtime.write_timeouts import Done, Overdue, WriteTimeouts
from penstock.records import RecordBatch, build_batch, iter_batches
from penstock.replica import ALL_IN_SYNC, Partition
from penstock.storage import Appended, Origin, StorageError

PORTION_BYTES: Final = 256 * 1024
"""Read and replayed in one go, which takes some ten milliseconds; then other clients are served."""

COMMIT_RETRY_MS: Final = 1000
"""Pause before a failed sync of what was read is retried."""

GATHERED_BYTES_MAX: Final = 64 * 1024
"""Gathered records beyond this size are written at once; far below the limit of a batch."""

LATE_MS: Final = 1
"""How much a linger window is extended to wait for the next append."""

WINDOWS_ON_TIME: Final = 16
"""If extending a window gained nothing, the next 16 windows are not extended. Clients that wait for each reply, and
there may be no others, lose a hundredth of their time by it."""

KeyValue = tuple[bytes, bytes | None]


class _Gathered:
    """Records that will be one batch, and their callbacks."""

    def __init__(self, base_offset: Offset) -> None:
        self.base_offset = base_offset
        """The offset that the first record will have, because only this log appends to the partition. If an earlier
        write is lost, so is this batch."""
        self.records: list[tuple[bytes, bytes | None, TimestampMs]] = []
        self.size = 0
        self.calls: list[Done] = []
        self.asked = 0
        """Calls of `begin_gathering` after the first: one for each append, and one for all that `fill` appends, which
        makes up for the first."""


class _Write:
    """A `DelayedProduce`: a batch, and its callbacks."""

    acks = ALL_IN_SYNC
    deadline_ms: TimestampMs = NEVER_MS
    """Never: the coordinator's state depends on whether the batch is committed."""

    def __init__(self, shard: CoordinatorLog, appended: Appended, calls: list[Done]) -> None:
        self.appended = appended
        self.calls = calls
        self._shard = shard

    def settle(self, error: KafkaError | None) -> None:
        self._shard.settled(self)
        _call_all(self.calls, error)


def _call_all(calls: Iterable[Done], error: KafkaError | None) -> None:
    for call in calls:
        call(error)


class CoordinatorLog:
    def __init__(self, world: World, partition: Partition) -> None:
        self.partition = partition
        self.epoch = partition.leader_epoch
        """The leader epoch in which this coordinator took over."""
        self._world = world
        self.linger_ms = 0
        """The minimum time between two writes."""
        self.timeouts = WriteTimeouts(world)
        """Limits how long requests wait."""
        self._last: _Write | None = None
        """The last write, while it is not settled."""
        self._last_ms: TimestampMs = 0
        """When the last write began."""
        self._gathered: _Gathered | None = None
        self._timer: Timer | None = None
        """Ends the linger window; runs while something is gathered."""
        self._is_crowded = False
        """Whether the window before had an append every other millisecond, or more."""
        self._is_late = False
        """Whether this window is extended."""
        self._windows_on_time = 0
        """How many crowded windows are still not to be extended."""
        self.fill: Callable[[], None] = lambda: None
        """Called before the gathered records are written, to append what the shard held back."""
        self._is_closed = False

    def is_still(self, partition: Partition | None) -> bool:
        """Whether this broker still leads the partition, in the same epoch."""
        return partition is self.partition and partition.leader_epoch == self.epoch

    def close(self) -> None:
        """Stop writing. Gathered records are dropped, and their callbacks get an error."""
        self._is_closed = True
        gathered = self._take_gathered()
        if gathered is not None:
            _call_all(gathered.calls, self._not_leader())

    # -- reading ---------------------------------------------------------------------------------------

    def read_all(
        self,
        replay: Callable[[Iterable[RecordBatch]], None],
        done: Callable[[], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """Pass every batch to `replay`, in portions. An error that it raises ends the reading."""
        self._read(self.partition.log.log_start, self.partition.log.log_end, replay, done, failed)

    def _read(
        self,
        offset: Offset,
        end: Offset,
        replay: Callable[[Iterable[RecordBatch]], None],
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
                replay(each for each in batches if each.last_offset >= offset)
                next_offset = batches[-1].next_offset if batches else end
        except Exception as error:  # damaged records stop this shard, and no other
            failed(error)
            return
        if offset >= end:
            self._commit(end, done)
            return
        self._world.call_soon(lambda: self._read(next_offset, end, replay, done, failed))

    def _commit(self, end: Offset, done: Callable[[], None]) -> None:
        """Wait until what was read is committed. A node that was killed leaves records that are not synced; a marker
        in another log that rests on them may be synced first, and be all that is left after a power cut."""
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
        """The offset of the next record to be appended."""
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
        """Append all of the records or none, and return the offset of the first. `done` is called when they are
        committed or lost; `overdue` is called before, if that takes too long. Raises if they cannot be appended."""
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
        """Append an encoded batch, after everything appended before."""
        self._write_gathered()
        offset = self._write(batch, [])
        self.after(done, overdue)
        return offset

    def _write(self, batch: bytes, calls: list[Done]) -> Offset:
        partition = self.partition
        if self._is_closed or not partition.is_leader:
            raise self._not_leader()
        now_ms = self._last_ms = self._world.now_ms()
        appended = partition.stage(memoryview(bytearray(batch)), ALL_IN_SYNC, now_ms, Origin.COORDINATOR)
        self._last = _Write(self, appended, calls)
        partition.wait(self._last)
        return appended.base_offset

    def begin_gathering(self, now_ms: TimestampMs) -> bool:
        """Whether an append now is gathered. If so, `fill` is called before the gathered records are written."""
        if self._gathered is not None:
            self._gathered.asked += 1
            return True
        if self._is_closed or not self.partition.is_leader or not self._is_lingering(now_ms):
            return False
        self._gathered = _Gathered(self.partition.log.staged_end)
        wait_ms = self.linger_ms - (now_ms - self._last_ms)
        self._is_late = self._is_crowded and not self._windows_on_time
        if self._is_late:
            wait_ms += LATE_MS
        elif self._is_crowded:
            self._windows_on_time -= 1
        self._timer = self._world.call_later(wait_ms, self._window_ended)
        return True

    def end_window(self, now_ms: TimestampMs) -> None:
        """Write the gathered records if the linger window is over. Called after an append, or when `fill` has some."""
        if not self._is_lingering(now_ms):
            self._write_gathered()

    def _window_ended(self) -> None:
        """No append has ended the window before the timer."""
        if self._is_late:
            self._windows_on_time = WINDOWS_ON_TIME
        self._write_gathered()

    def _is_lingering(self, now_ms: TimestampMs) -> bool:
        """Whether the linger window of the last write is still open."""
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
            return  # `fill` added so much that it is written already
        if not gathered.records:
            self._after(*gathered.calls)
            return
        try:
            self._is_crowded = 2 * gathered.asked > self.linger_ms
            if gathered.base_offset != self.partition.log.staged_end:
                raise StorageError(f"{self.partition.name}: an earlier append was lost")
            self._write(build_batch(gathered.records), gathered.calls)
        except KafkaError as error:
            _call_all(gathered.calls, error)

    def after(self, done: Done, overdue: Overdue) -> None:
        """Call `done` once everything appended so far is committed, which may be now."""
        if self._gathered is None and self._last is None:
            done(None)
        else:
            self._after(self.timeouts.limited(done, overdue))

    def _after(self, *calls: Done) -> None:
        unsettled = self._gathered or self._last
        if unsettled is None:
            _call_all(calls, None)
        else:
            unsettled.calls += calls

    def _not_leader(self) -> KafkaError:
        return KafkaError(
            f"This broker no longer leads {self.partition.name}; find the coordinator again.",
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
        )

    def settled(self, write: _Write) -> None:
        if write is self._last:
            self._last = None
