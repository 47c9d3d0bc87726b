"""One partition of an internal topic, as a coordinator uses it: read from beginning to end, then written to.

Reading is done in portions, so that clients of other partitions are served in between. What is written is answered
in its order: a reply that rests on earlier writes waits for them (`after`).
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import Offset, TimestampMs
from penstock.base.world import World
from penstock.records import RecordBatch, build_batch, iter_batches
from penstock.replica import ALL_IN_SYNC, Partition
from penstock.storage import Appended, Origin

logger = logging.getLogger(__name__)

PORTION_BYTES: Final = 256 * 1024
"""What is read and replayed before others get their turn: some ten milliseconds of it."""

WRITE_MS_MAX: Final = 30_000
"""How long a write may take; Kafka's `offsets.commit.timeout.ms` is shorter, but then its write goes on as well."""

KeyValue = tuple[bytes, bytes | None]


class _Write:
    """A `Writer`: a batch, and what waits for it."""

    def __init__(self, shard: "ShardLog", appended: Appended, deadline_ms: TimestampMs) -> None:
        self.appended = appended
        self.acks = ALL_IN_SYNC
        self.deadline_ms = deadline_ms
        self.calls: list[Callable[[KafkaError | None], None]] = []
        self._shard = shard

    def settle(self, error: KafkaError | None) -> None:
        self._shard.settled(self)
        for call in self.calls:
            call(error)


class ShardLog:
    def __init__(self, world: World, partition: Partition) -> None:
        self.partition = partition
        self.epoch = partition.leader_epoch
        """In which the coordinator took over; in another it is another coordinator's."""
        self._world = world
        self._last: _Write | None = None
        """The write that was begun last and is not settled."""
        self._is_closed = False

    def is_still(self, partition: Partition | None) -> bool:
        """Whether this is the partition that is led here now, in the same epoch."""
        return partition is self.partition and partition.leader_epoch == self.epoch

    def close(self) -> None:
        self._is_closed = True

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
                take(each for each in batches if each.last_offset >= offset)
                next_offset = batches[-1].next_offset if batches else end
        except Exception as error:  # whatever is wrong with the records ends this shard, and no other
            failed(error)
            return
        if offset >= end:
            done()
            return
        self._world.call_soon(lambda: self._read(next_offset, end, take, done, failed))

    # -- writing ---------------------------------------------------------------------------------------

    def append(
        self,
        records: Sequence[KeyValue],
        done: Callable[[KafkaError | None], None],
        *,
        producer: tuple[int, int] | None = None,
    ) -> Offset:
        """Append records as one batch; the first one's offset. `done` is told when they are committed, or that they
        will not be. Raises where they are not even taken."""
        now_ms = self._world.now_ms()
        timed = [(key, value, now_ms) for key, value in records]
        if producer is None:
            batch = build_batch(timed)
        else:
            batch = build_batch(
                timed, producer_id=producer[0], producer_epoch=producer[1], transactional=True
            )
        return self.append_batch(batch, done)

    def append_batch(self, batch: bytes, done: Callable[[KafkaError | None], None]) -> Offset:
        partition = self.partition
        if self._is_closed or not partition.is_leader:
            raise KafkaError(f"{partition.name} is led elsewhere", ErrorCode.NOT_LEADER_OR_FOLLOWER)
        now_ms = self._world.now_ms()
        appended = partition.stage(memoryview(bytearray(batch)), ALL_IN_SYNC, now_ms, Origin.COORDINATOR)
        write = _Write(self, appended, now_ms + WRITE_MS_MAX)
        write.calls.append(done)
        self._last = write
        partition.wait(write)
        return appended.base_offset

    def after(self, call: Callable[[KafkaError | None], None]) -> None:
        """Call once everything that was written so far is committed, which may be now."""
        if self._last is None:
            call(None)
        else:
            self._last.calls.append(call)

    def settled(self, write: _Write) -> None:
        if write is self._last:
            self._last = None


class Shard(Protocol):
    """A coordinator on its partition."""

    log: ShardLog

    def load(self) -> None:
        """Begin; requests are answered COORDINATOR_LOAD_IN_PROGRESS until it is done."""

    def unload(self) -> None:
        """The partition is led elsewhere, or gone."""
