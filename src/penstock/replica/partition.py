"""One replica of a partition: how a produced batch becomes a committed one, and who is told.

    stage      checked, given its offset; in memory               many times a turn
    write      in the file, with one call for the whole turn      readers see it from here on
    sync       on disk; one sync for all that wait                who asked for it is answered

Which of these a producer waits for is said by its `acks` and by `durability.fsync`:

    acks 0, 1     written
    acks all      written on every replica in sync; and synced here, if this is the only one (`alone`), or
                  `always`, or `never`
    flush.messages reached: synced, whatever acks says

A sync runs beside the loop. What is written while one runs waits for the next: that is group commit, and it needs
no timer. After a failed write or sync nothing that waited for it is acknowledged.
"""

import logging
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Final, Protocol, TypeVar

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import LeaderEpoch, Offset, TimestampMs, TopicPartition, Uuid
from penstock.base.metrics import Histogram
from penstock.base.world import Timer, World
from penstock.storage import Appended, Log, Origin, StorageError
from penstock.storage.syncing import FlushWork

logger = logging.getLogger(__name__)

ALL_IN_SYNC: Final = -1
"""`acks` of a producer that waits for every replica in sync."""

NO_EPOCH: Final = -1
"""The leader epoch of a client that does not know it."""

OVERDUE_CHECK_MS: Final = 100
"""How often, while a sync lasts, it is looked for producers whose time is up."""

T = TypeVar("T")

_FOREVER = 2**63 - 1
_CLIENT = Origin.CLIENT


class Durability(Enum):
    """`durability.fsync`: when a batch for all replicas in sync is synced before it is acknowledged."""

    ALONE = "alone"
    ALWAYS = "always"
    NEVER = "never"


class Writer(Protocol):
    """A batch that was staged, and waits."""

    @property
    def appended(self) -> Appended: ...

    @property
    def acks(self) -> int: ...

    @property
    def deadline_ms(self) -> TimestampMs:
        """When it gives up waiting, by its own wish."""

    def settle(self, error: KafkaError | None) -> None:
        """It is as durable as was asked for, or never will be. Called once."""


class Foretold(Protocol):
    """A reply that was made when its batch was staged, and leaves after the write, with all replies of the turn."""

    @property
    def last_offset(self) -> Offset: ...

    def settle(self, error: KafkaError | None) -> None:
        """Its batch could not be written: say so instead."""


class Watcher(Protocol):
    """A reader that waits for more to read."""

    def grew(self, bytes_more: int) -> None:
        """So many bytes more are visible."""

    def decided(self) -> None:
        """A transaction ended: much that was there before may be visible now to readers of committed data."""

    def changed(self) -> None:
        """Something else happened: the partition is not led here any more, or its records are gone."""


class SyncLane:
    """Runs syncs beside the loop, those of different logs at once, and knows when none runs."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._running = 0
        self._when_idle: Callable[[], None] | None = None
        self.syncs = Histogram()
        """How long the syncs took that producers wait for; the wait for a thread is not in it."""
        self.syncs_failed = 0

    @property
    def running(self) -> int:
        """What runs, or waits for a thread."""
        return self._running

    def sync(self, work: Callable[[], None], done: Callable[[None, Exception | None], None]) -> None:
        """`run` a log's sync, and take its time."""
        clock_ns = self._world.clock_ns

        def timed() -> int:
            began_ns = clock_ns()
            work()
            return clock_ns() - began_ns

        def finish(took_ns: int | None, error: Exception | None) -> None:
            if error is not None or took_ns is None:
                self.syncs_failed += 1
            else:
                self.syncs.observe(took_ns)
            done(None, error)

        self.run(timed, finish)

    def run(self, work: Callable[[], T], done: Callable[[T | None, Exception | None], None]) -> None:
        self._running += 1

        def finish(result: T | None, error: Exception | None) -> None:
            self._running -= 1
            done(result, error)
            if not self._running and self._when_idle is not None:
                call, self._when_idle = self._when_idle, None
                call()

        self._world.beside(work, finish)

    def when_idle(self, call: Callable[[], None]) -> None:
        """Call when nothing runs any more, which may be now."""
        if self._running:
            self._when_idle = call
        else:
            call()


class Partition:
    """As its leader has it. Made by `Replicas`."""

    __slots__ = (
        "_durability",
        "_ends_transaction",
        "_flush_timer",
        "_is_flushing",
        "_is_staged",
        "_lane",
        "_overdue_timer",
        "_staged_bytes",
        "_syncing",
        "_unwritten",
        "_watchers",
        "_world",
        "_write_later",
        "bytes_out",
        "foretold",
        "high_watermark",
        "in_sync",
        "is_leader",
        "leader_epoch",
        "log",
        "messages_out",
        "min_in_sync",
        "number",
        "topic",
        "topic_id",
    )

    high_watermark: Offset
    """First offset that is not on every replica in sync. Consumers see what is below. Never goes back while the
    node lives."""

    def __init__(
        self,
        log: Log,
        topic_id: Uuid,
        world: World,
        lane: "SyncLane",
        durability: Durability,
        write_later: Callable[[Callable[[], None]], None],
    ) -> None:
        self.topic: str = log.partition.topic
        self.number: int = log.partition.partition
        self.topic_id = topic_id
        self.log = log
        self.leader_epoch: LeaderEpoch = 0
        self.is_leader = False
        self.in_sync = 1
        """Replicas in sync, this one included."""
        self.min_in_sync = 1
        self.high_watermark = log.log_start
        self._world = world
        self._lane = lane
        self._durability = durability
        self._write_later = write_later
        self._is_staged = False
        """Something is staged, and `write` will be called at the end of the turn."""
        self._staged_bytes = 0
        self._ends_transaction = False
        """Something that is staged may end a transaction."""
        self._unwritten: list[Writer] = []
        self.foretold: list[Foretold] = []
        """Replies to batches that are staged, by offset but for retries: they hear of the write only if it fails."""
        self._syncing: deque[Writer] = deque()
        """Written, and waiting for a sync; by offset, but for retries."""
        self._is_flushing = False
        self._overdue_timer: Timer | None = None
        """Runs while a sync does, for those who cannot wait for it."""
        self._flush_timer: Timer | None = None
        """Runs while records are unsynced, if `flush.ms` limits how long they may be."""
        self._watchers: dict[Watcher, None] = {}
        self.bytes_out = self.messages_out = 0
        """What clients were given of it."""

    def __repr__(self) -> str:
        return f"<Partition {self.topic}-{self.number} {self.log.log_start}..{self.high_watermark}>"

    @property
    def name(self) -> TopicPartition:
        return self.log.partition

    @property
    def last_stable(self) -> Offset:
        """First offset that a reader of committed data may not see yet. Invariant: at most the high watermark."""
        return min(self.high_watermark, self.log.last_stable)

    @property
    def waiting(self) -> int:
        """Batches that wait to be written or synced."""
        return len(self._unwritten) + len(self._syncing)

    # -- who leads -------------------------------------------------------------------------------------

    def lead(self, epoch: LeaderEpoch, in_sync: int, min_in_sync: int) -> None:
        """Lead from now on, or go on leading with other replicas in sync."""
        self.in_sync, self.min_in_sync = in_sync, min_in_sync
        if not self.is_leader or epoch != self.leader_epoch:
            self.is_leader = True
            self.leader_epoch = epoch
            self.log.begin_epoch(epoch)
        self._advance()

    def step_down(self, why: KafkaError) -> None:
        """Lead no more: whoever waits is told, and what is not written yet never will be."""
        self.is_leader = False
        self.log.drop_staged()
        self._staged_bytes = 0
        waiting: list[Foretold | Writer] = [*self.foretold, *self._unwritten, *self._syncing]
        self.foretold, self._unwritten, self._syncing = [], [], deque()
        for writer in waiting:
            writer.settle(why)
        watchers, self._watchers = self._watchers, {}
        for watcher in watchers:
            watcher.changed()

    def check_epoch(self, epoch: LeaderEpoch) -> None:
        """Refuse who takes another epoch for the current one (KIP-320)."""
        if epoch in (NO_EPOCH, self.leader_epoch):
            return
        code = ErrorCode.FENCED_LEADER_EPOCH if epoch < self.leader_epoch else ErrorCode.UNKNOWN_LEADER_EPOCH
        raise KafkaError(f"{self.name} is in leader epoch {self.leader_epoch}, not {epoch}", code)

    # -- writing ---------------------------------------------------------------------------------------

    def stage(
        self, records: memoryview, acks: int, now_ms: TimestampMs, origin: Origin = Origin.CLIENT
    ) -> Appended:
        """Check a batch and give it its offset; `wait` for it right after. Raises what the producer is to be told."""
        if acks == ALL_IN_SYNC and self.in_sync < self.min_in_sync:
            raise KafkaError(
                f"{self.name} has {self.in_sync} replicas in sync, {self.min_in_sync} are needed",
                ErrorCode.NOT_ENOUGH_REPLICAS,
            )
        try:
            appended = self.log.stage(records, leader_epoch=self.leader_epoch, now_ms=now_ms, origin=origin)
        except StorageError as error:
            logger.error("%s", error)
            self._written(error)
            raise
        if origin is not _CLIENT:
            self._ends_transaction = True
        self._staged_bytes += len(records)
        if not self._is_staged:
            self._is_staged = True
            self._write_later(self.write)
        return appended

    def stage_plain(
        self,
        view: memoryview,
        length: int,
        last_offset_delta: int,
        max_timestamp: TimestampMs,
        now_ms: TimestampMs,
    ) -> Offset:
        """`Log.stage_plain`, for a producer that waits for the write alone: put what it is told into `foretold`."""
        offset = self.log.stage_plain(
            view, length, last_offset_delta, max_timestamp, self.leader_epoch, now_ms
        )
        if offset >= 0:
            self._staged_bytes += length
            if not self._is_staged:
                self._is_staged = True
                self._write_later(self.write)
        return offset

    def wait(self, writer: Writer) -> None:
        """Have a writer settled when its batch is what it asked for."""
        self._unwritten.append(writer)

    def wait_for_written(self, writer: Writer) -> None:
        """The same for a batch that is in the log already: a node that was killed leaves some that are not synced."""
        self.wait(writer)
        if not self._is_staged:
            self._is_staged = True
            self._write_later(self.write)

    def write(self) -> None:
        """Write what was staged in this turn, and answer who waits for no more than that."""
        self._is_staged = False
        if not self.is_leader:
            return  # it stepped down in this very turn: everyone has been told, and the log may be gone
        error: StorageError | None = None
        try:
            self.log.write_staged()
        except StorageError as failure:
            logger.error("%s", failure)
            error = failure
        self._written(error)

    def _written(self, error: StorageError | None) -> None:
        """What is below the log's end is in the log; nothing else that was staged is."""
        log = self.log
        log_end = log.log_end
        unwritten, self._unwritten = self._unwritten, []
        foretold, self.foretold = self.foretold, []
        if error is not None:
            for reply in foretold:
                if reply.last_offset >= log_end:
                    reply.settle(error)
        if log_end > self.high_watermark:
            self._advance()
        unsynced = log_end - log.flushed
        sync_all = unsynced >= log.settings.flush_messages
        sync_committed = self._syncs_committed
        for writer in unwritten:
            last_offset = writer.appended.last_offset
            if last_offset >= log_end:
                writer.settle(error or StorageError(f"{self.name} lost what was staged"))
            elif (sync_all or (sync_committed and writer.acks == ALL_IN_SYNC)) and last_offset >= log.flushed:
                self._syncing.append(writer)
            else:
                writer.settle(None)
        if self._syncing or sync_all:
            self._flush()
        elif unsynced and log.settings.flush_ms != _FOREVER and self._flush_timer is None:
            self._flush_timer = self._world.call_later(log.settings.flush_ms, self._flush_is_due)

    @property
    def _syncs_committed(self) -> bool:
        if self._durability is Durability.ALONE:
            return self.in_sync == 1
        return self._durability is Durability.ALWAYS

    def _advance(self) -> None:
        """Move the high watermark to what every replica in sync has."""
        self.high_watermark = max(self.high_watermark, self.log.log_end)
        more, self._staged_bytes = self._staged_bytes, 0
        if self._watchers:
            for watcher in list(self._watchers):
                if self._ends_transaction:
                    watcher.decided()
                else:
                    watcher.grew(more)
        self._ends_transaction = False

    # -- syncing ---------------------------------------------------------------------------------------

    def _flush_is_due(self) -> None:
        self._flush_timer = None
        self._flush()

    def _flush(self) -> None:
        if self._is_flushing:
            return
        try:
            work = self.log.prepare_flush()
        except StorageError as error:
            self._sync_failed(error, self.log.log_end)
            return
        if work is None:
            self._settle_synced()
            return
        self._is_flushing = True
        self._overdue_timer = self._world.call_later(OVERDUE_CHECK_MS, self._give_up_overdue)

        def finish(_: None, error: Exception | None) -> None:
            self._flushed(work, error)

        self._lane.sync(work.run, finish)

    def _flushed(self, work: FlushWork, error: Exception | None) -> None:
        self._is_flushing = False
        if self._overdue_timer is not None:
            self._overdue_timer.cancel()
        if error is not None and not isinstance(error, OSError):
            error = OSError(str(error))
        try:
            self.log.finish_flush(work, error)
        except StorageError as failure:
            self._sync_failed(failure, work.log_end)
        self._settle_synced()
        if self._syncing:
            self._flush()

    def _settle_synced(self) -> None:
        flushed = self.log.flushed
        syncing = self._syncing
        while syncing and syncing[0].appended.last_offset < flushed:
            syncing.popleft().settle(None)

    def _sync_failed(self, error: StorageError, log_end: Offset) -> None:
        """Nothing that waited for this sync is known to be on disk."""
        logger.error("%s", error)
        failed = [each for each in self._syncing if each.appended.last_offset < log_end]
        self._syncing = deque(each for each in self._syncing if each.appended.last_offset >= log_end)
        for writer in failed:
            writer.settle(error)

    def _give_up_overdue(self) -> None:
        """Answer those for whom the sync takes too long. What they wrote stays, and may yet become durable."""
        now_ms = self._world.now_ms()
        overdue = [each for each in self._syncing if each.deadline_ms <= now_ms]
        self._syncing = deque(each for each in self._syncing if each.deadline_ms > now_ms)
        self._overdue_timer = self._world.call_later(OVERDUE_CHECK_MS, self._give_up_overdue)
        for writer in overdue:
            writer.settle(KafkaError(f"{self.name} could not be synced in time", ErrorCode.REQUEST_TIMED_OUT))

    # -- reading ---------------------------------------------------------------------------------------

    def watch(self, watcher: Watcher) -> None:
        self._watchers[watcher] = None

    def unwatch(self, watcher: Watcher) -> None:
        self._watchers.pop(watcher, None)

    def delete_records(self, offset: Offset) -> Offset:
        """Have the log begin at an offset, -1 for the high watermark; where it begins now."""
        if offset == -1:
            offset = self.high_watermark
        if not 0 <= offset <= self.high_watermark:
            raise KafkaError(
                f"{self.name} ends at {self.high_watermark}, records before {offset} cannot be deleted",
                ErrorCode.OFFSET_OUT_OF_RANGE,
            )
        if offset > self.log.log_start:
            self.log.advance_start(offset)
            for watcher in list(self._watchers):
                watcher.changed()
        return self.log.log_start
