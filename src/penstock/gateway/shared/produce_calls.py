"""Records of one call on their way to partitions: which of them have their outcome, and which are tried again.

    Call      all records of a call; answered when each has its outcome
    Batch     those that go to one partition of this node, in one write

A record is tried again while its leader moves, for as long as its call may last; but not if it may be written already,
unless it has an idempotency key: whoever leads then knows.
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
    PositionOrError,
    RecordPosition,
    RecordResult,
)
from penstock.handlers.support.context import Session
from penstock.records import HEADER_BYTES, BatchBuilder, InvalidBatch
from penstock.records.builder import Headers
from penstock.replica import ALL_IN_SYNC, Partition
from penstock.storage import Appended

_NOWHERE = RecordResult(RecordPosition(-1, -1))


class ProduceCall(Promise[list[RecordResult]]):
    """Answered when every record has its fate."""

    __slots__ = (
        "_again",
        "_fates",
        "_left",
        "_try",
        "_until_ms",
        "_world",
        "passes_on",
        "records",
        "session",
    )

    def __init__(
        self,
        world: World,
        session: Session,
        records: Sequence[NewRecord],
        try_again: Callable[["ProduceCall", list[int]], None],
        *,
        until_ms: TimestampMs = 0,
        passes_on: bool = True,
    ) -> None:
        """Records are tried again until a moment."""
        super().__init__()
        self.session = session
        self.records = records
        self.passes_on = passes_on
        """Whether records for partitions that are led elsewhere are sent there: not those that were sent here."""
        self._world = world
        self._try = try_again
        self._until_ms = until_ms
        self._fates: list[RecordResult] = [_NOWHERE] * len(records)
        self._left = len(records)
        self._again: list[int] = []
        """Records that are tried again soon."""

    def settled(self, at: int, outcome: PositionOrError, *, is_in_doubt: bool = False) -> None:
        if isinstance(outcome, KafkaError):
            if self._may_try_again(at, outcome, is_in_doubt):
                if not self._again:
                    self._world.call_later(RETRY_MS, self._try_again)
                self._again.append(at)
                return
            if is_in_doubt and outcome.code is ErrorCode.NETWORK_EXCEPTION:
                outcome = KafkaError(f"{outcome}; the record may be written", ErrorCode.REQUEST_TIMED_OUT)
        self._fates[at] = RecordResult(outcome, is_in_doubt)
        self._left -= 1
        if not self._left:
            self.resolve(self._fates)

    def _may_try_again(self, at: int, error: KafkaError, is_in_doubt: bool) -> bool:
        return (
            error.code in RETRIABLE
            and (not is_in_doubt or self.records[at].idempotency_key is not None)
            and self._world.now_ms() < self._until_ms
        )

    def _try_again(self) -> None:
        again, self._again = self._again, []
        self._try(self, sorted(again))


class BatchRecord(NamedTuple):
    """A record in a batch."""

    at: int
    """Its place in the call."""
    key: bytes | None
    value: bytes | None
    headers: Headers
    claim: Claim | None
    """On its idempotency key."""


class ProduceBatch:
    """Records of a call that go to one partition; a `DelayedProduce` once they are staged.

    What can be seen of a record alone is checked before it comes here. Where the log refuses the batch all the same,
    because of some records or because it got too large, the others are written without these:

        [a b c d e]  c, d are refused   -> [a b e]
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
        self._builder.append(member.key, member.value, self.deadline_ms - WAIT_MS_MAX, member.headers)
        self._members.append(member)

    def write(self, partition: Partition) -> None:
        """Stage it, and have every record's outcome told."""
        self._number = partition.number
        if not partition.is_leader:  # any more: others may have had their turn since it was chosen
            error = KafkaError(
                f"this broker does not lead {partition.name}", ErrorCode.NOT_LEADER_OR_FOLLOWER
            )
            self._refused(partition, error)
            return
        now_ms = self.deadline_ms - WAIT_MS_MAX
        partition.stage_own(bytearray(self._builder.build()), now_ms).then(
            partial(self._staged, partition), partial(self._refused, partition)
        )

    def _staged(self, partition: Partition, appended: Appended) -> None:
        self.appended = appended
        now_ms = self.deadline_ms - WAIT_MS_MAX
        for offset, member in enumerate(self._members, appended.base_offset):
            if member.claim is not None:
                member.claim.staged(partition, offset, now_ms)
        partition.wait(self)

    def _refused(self, partition: Partition, error: KafkaError) -> None:
        if isinstance(error, InvalidBatch):
            self._write_parts(partition, error)
        else:
            for member in self._members:
                self._tell_one(member, error)

    def _write_parts(self, partition: Partition, error: InvalidBatch) -> None:
        """Write what is sound of a batch that was refused, in its order. Each part is smaller than the whole."""
        members = self._members
        if error.record_errors:
            faults = dict(error.record_errors)
            for index, why in faults.items():
                self._tell_one(members[index], KafkaError(f"invalid record: {why}", error.code))
            parts = [[each for index, each in enumerate(members) if index not in faults]]
        elif error.code is ErrorCode.MESSAGE_TOO_LARGE and len(members) > 1:
            middle = len(members) // 2
            parts = [members[:middle], members[middle:]]
        else:
            for member in members:
                self._tell_one(member, error)
            return
        for part in parts:
            if part:
                batch = ProduceBatch(self._call, self._bytes_max, self.deadline_ms - WAIT_MS_MAX)
                for each in part:
                    batch.add(each)
                batch.write(partition)

    def settle(self, error: KafkaError | None) -> None:
        """It is durable, or it is not known to be: a new leader may have it."""
        for offset, member in enumerate(self._members, self.appended.base_offset):
            if error is None:
                self._tell_one(member, RecordPosition(self._number, offset))
            else:
                self._tell_one(member, error, is_in_doubt=True)

    def _tell_one(self, member: BatchRecord, outcome: PositionOrError, *, is_in_doubt: bool = False) -> None:
        if member.claim is not None:
            member.claim.settled(outcome if isinstance(outcome, KafkaError) else None)
        self._call.settled(member.at, outcome, is_in_doubt=is_in_doubt)
