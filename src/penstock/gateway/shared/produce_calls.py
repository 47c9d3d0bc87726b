"""The records of one produce call: their results, their retries, and their batches.

    ProduceCall     all records of a call; resolved when each has its result
    ProduceBatch    those for one partition of this node, in one append

A record is retried while its leader moves, until the call's deadline. A record that may already be written is retried
only with an idempotency key: with it, the next leader recognises the record.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import TimestampMs
from penstock.base.promise import Promise
from penstock.base.world import World
from penstock.gateway.idempotency import Claim
from penstock.gateway.peer_rpc.retry import RETRIABLE, RETRY_MS
from penstock.gateway.shared.new_records import (
    WAIT_MS_MAX,
    NewRecord,
    RecordPosition,
    RecordResult,
)
from penstock.handlers.support.context import Session
from penstock.records import HEADER_BYTES, BatchBuilder, InvalidBatch
from penstock.records.builder import Headers
from penstock.replica import ALL_IN_SYNC, Partition
from penstock.storage import Appended

_PENDING = RecordResult(-1, -1)


class ProduceCall(Promise[list[RecordResult]]):
    """Resolved when every record has its result."""

    __slots__ = (
        "_left",
        "_results",
        "_retried",
        "_until_ms",
        "_world",
        "_write",
        "passes_on",
        "records",
        "session",
    )

    def __init__(
        self,
        world: World,
        session: Session,
        records: Sequence[NewRecord],
        write: Callable[["ProduceCall", list[int]], None],
        *,
        until_ms: TimestampMs = 0,
        passes_on: bool = True,
    ) -> None:
        """`write` is called with the indexes of records to retry, until `until_ms`."""
        super().__init__()
        self.session = session
        self.records = records
        self.passes_on = passes_on
        """Whether records for partitions that other brokers lead are sent to them. False for records that another
        broker has sent."""
        self._world = world
        self._write = write
        self._until_ms = until_ms
        self._results: list[RecordResult] = [_PENDING] * len(records)
        self._left = len(records)
        self._retried: list[int] = []
        """Records that wait for their retry."""

    def written(self, at: int, position: RecordPosition) -> None:
        """The record at this index is durable."""
        self._settle(at, RecordResult(*position))

    def failed(self, at: int, error: KafkaError, *, may_be_written: bool = False) -> None:
        """Retry the record at this index, or report its error."""
        if self._may_retry(at, error, may_be_written):
            if not self._retried:
                self._world.call_later(RETRY_MS, self._retry)
            self._retried.append(at)
            return
        if may_be_written and error.code is ErrorCode.NETWORK_EXCEPTION:
            error = KafkaError(f"{error}; the record may be written", ErrorCode.REQUEST_TIMED_OUT)
        self._settle(at, RecordResult(-1, -1, error, may_be_written))

    def _settle(self, at: int, result: RecordResult) -> None:
        self._results[at] = result
        self._left -= 1
        if not self._left:
            self.resolve(self._results)

    def _may_retry(self, at: int, error: KafkaError, may_be_written: bool) -> bool:
        return (
            error.code in RETRIABLE
            and (not may_be_written or self.records[at].idempotency_key is not None)
            and self._world.now_ms() < self._until_ms
        )

    def _retry(self) -> None:
        retried, self._retried = self._retried, []
        self._write(self, sorted(retried))


class BatchRecord(NamedTuple):
    at: int
    """Its index in the call."""
    key: bytes | None
    value: bytes | None
    headers: Headers
    claim: Claim | None
    """The claim on its idempotency key."""
    timestamp: TimestampMs | None = None
    """None for the time of the call."""


class ProduceBatch:
    """Records of a call for one partition; a `DelayedProduce` once they are staged.

    Each record is checked before it is added. If the log rejects the batch because of some records, or because it is
    too large, the valid records are written in smaller batches:

        [a b c d e]  c, d are invalid   -> [a b e]
                     too large          -> [a b] [c d e]
    """

    __slots__ = ("_builder", "_bytes_max", "_call", "_members", "_number", "acks", "appended", "deadline_ms")

    appended: Appended

    def __init__(self, call: ProduceCall, bytes_max: int, now_ms: TimestampMs) -> None:
        self._call = call
        self._builder = BatchBuilder()
        self._bytes_max = bytes_max
        self._members: list[BatchRecord] = []
        self._number = -1
        self.acks = ALL_IN_SYNC
        self.deadline_ms = now_ms + WAIT_MS_MAX

    def has_room(self, size: int) -> bool:
        return HEADER_BYTES + self._builder.records_bytes + size <= self._bytes_max

    def add(self, member: BatchRecord) -> None:
        now_ms = self.deadline_ms - WAIT_MS_MAX
        timestamp = now_ms if member.timestamp is None else member.timestamp
        self._builder.append(member.key, member.value, timestamp, member.headers)
        self._members.append(member)

    def write(self, partition: Partition) -> None:
        """Stage the batch; each record's result goes to the call."""
        self._number = partition.number
        if not partition.is_leader:  # leadership may have moved since the partition was chosen
            error = KafkaError(
                f"this broker does not lead {partition.name}", ErrorCode.NOT_LEADER_OR_FOLLOWER
            )
            self._rejected(partition, error)
            return
        now_ms = self.deadline_ms - WAIT_MS_MAX
        partition.stage_own(bytearray(self._builder.build()), now_ms).then(
            partial(self._staged, partition), partial(self._rejected, partition)
        )

    def _staged(self, partition: Partition, appended: Appended) -> None:
        self.appended = appended
        now_ms = self.deadline_ms - WAIT_MS_MAX
        for offset, member in enumerate(self._members, appended.base_offset):
            if member.claim is not None:
                member.claim.staged(partition, offset, now_ms)
        partition.wait(self)

    def _rejected(self, partition: Partition, error: KafkaError) -> None:
        if isinstance(error, InvalidBatch):
            self._write_parts(partition, error)
        else:
            for member in self._members:
                self._fail(member, error)

    def _write_parts(self, partition: Partition, error: InvalidBatch) -> None:
        """Write the valid records of a rejected batch, in their order. Each part is smaller than the whole."""
        members = self._members
        if error.record_errors:
            faults = dict(error.record_errors)
            for index, why in faults.items():
                self._fail(members[index], KafkaError(f"invalid record: {why}", error.code))
            parts = [[each for index, each in enumerate(members) if index not in faults]]
        elif error.code is ErrorCode.MESSAGE_TOO_LARGE and len(members) > 1:
            middle = len(members) // 2
            parts = [members[:middle], members[middle:]]
        else:
            for member in members:
                self._fail(member, error)
            return
        for part in parts:
            if part:
                batch = ProduceBatch(self._call, self._bytes_max, self.deadline_ms - WAIT_MS_MAX)
                for each in part:
                    batch.add(each)
                batch.write(partition)

    def settle(self, error: KafkaError | None) -> None:
        """The batch is durable; or it is not known to be, and a new leader may have it."""
        for offset, member in enumerate(self._members, self.appended.base_offset):
            if error is not None:
                self._fail(member, error, may_be_written=True)
                continue
            if member.claim is not None:
                member.claim.settled(None)
            self._call.written(member.at, RecordPosition(self._number, offset))

    def _fail(self, member: BatchRecord, error: KafkaError, *, may_be_written: bool = False) -> None:
        if member.claim is not None:
            member.claim.settled(error)
        self._call.failed(member.at, error, may_be_written=may_be_written)
