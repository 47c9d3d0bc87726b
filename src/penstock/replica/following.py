"""A partition whose leader is another broker: what to ask it for next, and what to do with its answer.

    asked      records from the log end on, and which epoch the last batch here is of
    answered   records               appended as they are, byte for byte
               a diverging epoch     the two logs part there: cut off what the leader does not have, ask again
               OFFSET_OUT_OF_RANGE   this log ends before the leader's begins, or after it ends; see `Ends`

Nothing is cut off until the leader has said where, but for a log that knows no leader epochs: it goes back to its high
watermark (KIP-101, KIP-279, KIP-595).
"""

import logging
from struct import Struct
from typing import Final, NamedTuple

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import LeaderEpoch, Offset, TimestampMs, Uuid
from penstock.base.world import Timer
from penstock.replica.partition import Partition
from penstock.wire import EpochEndOffset, FetchPartition, FetchResult

logger = logging.getLogger(__name__)

Key = tuple[Uuid, int]
"""The topic's id and the partition's number."""

LAG_UNKNOWN: Final = -1

EAGER_ERRORS_MAX: Final = 4
"""A partition that fails more often, one time after the other, is in no hurry."""

_PASSING: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
    }
)
"""What every change of leaders brings: one broker hears of it before the other."""

_BASE_OFFSET = Struct(">q")


class Ends(NamedTuple):
    """Where the leader's log begins and ends, as it said itself."""

    start: Offset
    end: Offset


class Following:
    """From the moment on when a leader is known until there is another, or another epoch of the same."""

    __slots__ = (
        "bytes_max",
        "errors",
        "is_ready",
        "is_throttled",
        "key",
        "lag",
        "leader_epoch",
        "partition",
        "timer",
        "told",
        "waits_for_disk",
    )

    def __init__(self, partition: Partition, bytes_max: int, *, is_throttled: bool = False) -> None:
        self.partition = partition
        self.key: Key = (partition.topic_id, partition.number)
        self.leader_epoch: LeaderEpoch = partition.leader_epoch
        self.bytes_max = bytes_max
        self.is_throttled = is_throttled
        self.is_ready = True
        """Whether it is to be fetched: not while it rests after an error, nor while `Ends` are asked for."""
        self.waits_for_disk = False
        """Its disk has refused something: it is not fetched before a trial write has worked (`failing_disk`)."""
        self.told: FetchPartition | None = None
        """What the leader knows to be wanted; None where it is asked for nothing."""
        self.errors = 0
        """One after the other, since the last good answer."""
        self.lag = LAG_UNKNOWN
        """How many offsets the leader's high watermark is ahead of this log."""
        self.timer: Timer | None = None
        """Runs while it rests."""

    def __repr__(self) -> str:
        return f"<Following {self.partition.name} from {self.partition.log.log_end}>"

    @property
    def is_eager(self) -> bool:
        """Whether somebody may wait for it to be fetched."""
        return self.errors < EAGER_ERRORS_MAX and not self.is_throttled

    @property
    def is_behind(self) -> bool:
        return self.lag != 0

    def wanted(self) -> FetchPartition:
        log = self.partition.log
        return FetchPartition(
            self.partition.number,
            self.leader_epoch,
            log.log_end,
            log.epochs.latest,
            log.log_start,
            self.bytes_max,
        )

    def begin(self) -> None:
        log = self.partition.log
        if not log.epochs.entries:
            self._cut_off(self.partition.high_watermark)

    # -- answers ---------------------------------------------------------------------------------------

    def failed(self, error: KafkaError) -> None:
        """Count an error, and tell of it; of one that should pass by itself only when it does not:
        while leaders change there are thousands of those."""
        self.errors += 1
        is_passing = error.code in _PASSING
        if self.errors == 1 and is_passing:
            logger.debug("%s is not followed for now: %s", self.partition.name, error)
        elif self.errors == (EAGER_ERRORS_MAX if is_passing else 1):
            logger.error("%s is not followed for now: %s", self.partition.name, error)

    def append(self, result: FetchResult, now_ms: TimestampMs) -> int:
        """Take the records of an answer; how many bytes. Raises what is wrong with it, and then nothing is changed."""
        if result.error_code:
            raise KafkaError(
                f"the leader of {self.partition.name} answers {_name(result.error_code)}",
                error_code(result.error_code),
            )
        records = result.records
        if not records:
            return 0
        log = self.partition.log
        bytes_before, records_before = log.written_bytes, log.written_records
        hidden = self._begin_inside_batch(memoryview(records), now_ms)
        log.append_replicated(records, now_ms=now_ms, epoch_max=self.leader_epoch)
        if hidden is not None:
            log.advance_start(min(hidden, log.log_end))
        taken_bytes = log.written_bytes - bytes_before
        self.partition.copied_bytes += taken_bytes
        self.partition.copied_records += log.written_records - records_before
        return taken_bytes

    def _begin_inside_batch(self, records: memoryview, now_ms: TimestampMs) -> Offset | None:
        """A leader whose records were deleted up to the middle of a batch gives all of that batch: an empty log moves
        its start back to take it. Where it is to start once it has."""
        log = self.partition.log
        if log.log_start != log.log_end or len(records) < _BASE_OFFSET.size:
            return None
        (first,) = _BASE_OFFSET.unpack_from(records)
        if not 0 <= first < log.log_start:
            return None
        start = log.log_start
        log.restart_at(first, now_ms)
        return start

    def starts_later(self, result: FetchResult) -> bool:
        """Whether `learn` will move the start of this log to the leader's."""
        partition, log = self.partition, self.partition.log
        committed = max(partition.high_watermark, min(result.high_watermark, log.log_end))
        return log.log_start < result.log_start_offset <= min(committed, log.log_end)

    def learn(self, result: FetchResult) -> None:
        """Take what a good answer says of the leader's log."""
        self.errors = 0
        self.partition.follow_high_watermark(result.high_watermark, result.log_start_offset)
        self.lag = max(0, result.high_watermark - self.partition.log.log_end)

    def part(self, leaders: EpochEndOffset) -> None:
        """Cut off what the leader does not have: it has this epoch, up to there, and nothing of the next one here.

            here     [epoch 3 ....][epoch 4 ..]       told (3, 20): ends at 20, or where epoch 3 ends here
            leader   [epoch 3 ........][epoch 5 ..]

        Where this log has no batch of that epoch, it goes back to the end of the one before it, and the next answer
        goes on from there.
        """
        log = self.partition.log
        before = (log.log_end, log.epochs.latest)
        if leaders.end_offset < 0:
            target = self.partition.high_watermark
        else:
            epoch, end = log.epochs.end_of(leaders.epoch, log.log_end)
            target = leaders.end_offset if epoch < 0 else end
            if epoch == leaders.epoch:
                target = min(end, leaders.end_offset)
        self._cut_off(target)
        if (log.log_end, log.epochs.latest) == before:
            raise KafkaError(
                f"{self.partition.name} ends at {before[0]} in epoch {before[1]}, and its leader says that they part "
                f"at {leaders.end_offset} in epoch {leaders.epoch}",
                ErrorCode.OFFSET_OUT_OF_RANGE,
            )
        self.errors = 0

    def meet(self, ends: Ends, now_ms: TimestampMs) -> None:
        """Have the log end where the leader has records to give."""
        partition, log = self.partition, self.partition.log
        if ends.end < log.log_end:
            self._cut_off(ends.end)
        elif ends.start > log.log_end:
            logger.warning(
                "%s ends at %d, and its leader's log begins at %d: it begins there too",
                partition.name,
                log.log_end,
                ends.start,
            )
            log.restart_at(ends.start, now_ms)
            partition.high_watermark = ends.start
        else:
            raise KafkaError(
                f"the leader of {partition.name} has {ends.start} to {ends.end}, but nothing from {log.log_end} on",
                ErrorCode.OFFSET_OUT_OF_RANGE,
            )

    def _cut_off(self, offset: Offset) -> None:
        partition, log = self.partition, self.partition.log
        old_end = log.log_end
        end = log.truncate(offset)
        if end < old_end:
            logger.info("%s is cut off at %d: it ended at %d", partition.name, end, old_end)
        if end < min(partition.high_watermark, old_end):
            logger.warning(
                "%s loses offsets %d to %d, which were committed: its leader does not have them",
                partition.name,
                end,
                partition.high_watermark - 1,
            )
            partition.high_watermark = end


def error_code(number: int) -> ErrorCode:
    try:
        return ErrorCode(number)
    except ValueError:  # of a release that is newer than this one
        return ErrorCode.UNKNOWN_SERVER_ERROR


def _name(number: int) -> str:
    code = error_code(number)
    return code.name if code == number else f"error {number}"
