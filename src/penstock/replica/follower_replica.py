"""A replica whose leader is another broker: what to fetch next, and what to do with the response.

    request    records from the log end on, and the leader epoch of the last batch here
    response   records               appended byte for byte
               a diverging epoch     the logs diverge there: truncate, and fetch again
               OFFSET_OUT_OF_RANGE   this log ends before the leader's log start or after its log end; see `LogRange`

A log is truncated only where the leader said. The one exception is a log without leader epochs: it is truncated to its
high watermark (KIP-101, KIP-279, KIP-595).
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

TopicIdPartition = tuple[Uuid, int]
"""The topic's id and the partition's number."""

LAG_UNKNOWN: Final = -1

URGENT_ERRORS_MAX: Final = 4
"""A partition that fails more often in a row does not interrupt the fetch in flight any more."""

_TRANSIENT: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
    }
)
"""Expected at every change of leaders: one broker applies the metadata before the other."""

_BASE_OFFSET = Struct(">q")


class LogRange(NamedTuple):
    """Log start and log end of the leader, as it reported them."""

    start: Offset
    end: Offset


class FollowerReplica:
    """A partition while it follows one leader in one leader epoch."""

    __slots__ = (
        "bytes_max",
        "errors",
        "is_ready",
        "is_throttled",
        "key",
        "lag",
        "leader_epoch",
        "partition",
        "sent",
        "timer",
        "waits_for_disk",
    )

    def __init__(self, partition: Partition, bytes_max: int, *, is_throttled: bool = False) -> None:
        self.partition = partition
        self.key: TopicIdPartition = (partition.topic_id, partition.number)
        self.leader_epoch: LeaderEpoch = partition.leader_epoch
        self.bytes_max = bytes_max
        self.is_throttled = is_throttled
        self.is_ready = True
        """Whether to fetch it: not during the backoff after an error, nor while the leader's `LogRange` is fetched."""
        self.waits_for_disk = False
        """Its disk failed: it is not fetched before a trial write succeeds (`failing_disk`)."""
        self.sent: FetchPartition | None = None
        """The fetch position that the leader has; None if it is in no request."""
        self.errors = 0
        """In a row, since the last good response."""
        self.lag = LAG_UNKNOWN
        """Offsets from the log end here to the leader's high watermark."""
        self.timer: Timer | None = None
        """Runs during the backoff."""

    def __repr__(self) -> str:
        return f"<FollowerReplica {self.partition.name} from {self.partition.log.log_end}>"

    @property
    def is_urgent(self) -> bool:
        """Whether producers may wait for this replica to be fetched."""
        return self.errors < URGENT_ERRORS_MAX and not self.is_throttled

    @property
    def is_behind(self) -> bool:
        return self.lag != 0

    def fetch_position(self) -> FetchPartition:
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
            self._truncate(self.partition.high_watermark)

    # -- responses -------------------------------------------------------------------------------------

    def failed(self, error: KafkaError) -> None:
        """Count an error and log it. A transient one is logged only if it persists: there are thousands of them while
        leaders change."""
        self.errors += 1
        is_transient = error.code in _TRANSIENT
        if self.errors == 1 and is_transient:
            logger.debug("%s is not replicated for now: %s", self.partition.name, error)
        elif self.errors == (URGENT_ERRORS_MAX if is_transient else 1):
            logger.error("%s is not replicated for now: %s", self.partition.name, error)

    def append(self, result: FetchResult, now_ms: TimestampMs) -> int:
        """Append the records of a response, and return how many bytes. Raises without a change if it is an error."""
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
        log_start = self._restart_before(memoryview(records), now_ms)
        log.append_replicated(records, now_ms=now_ms, epoch_max=self.leader_epoch)
        if log_start is not None:
            log.advance_start(min(log_start, log.log_end))
        taken_bytes = log.written_bytes - bytes_before
        self.partition.copied_bytes += taken_bytes
        self.partition.copied_records += log.written_records - records_before
        return taken_bytes

    def _restart_before(self, records: memoryview, now_ms: TimestampMs) -> Offset | None:
        """Restart an empty log at the base offset of the first batch, if the log start is inside that batch: a leader
        sends whole batches. Returns the log start to restore after the append."""
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
        """Whether `update` will move the log start here to the leader's."""
        partition, log = self.partition, self.partition.log
        committed = max(partition.high_watermark, min(result.high_watermark, log.log_end))
        return log.log_start < result.log_start_offset <= min(committed, log.log_end)

    def update(self, result: FetchResult) -> None:
        """Take over high watermark and log start from a good response."""
        self.errors = 0
        self.partition.follow_high_watermark(result.high_watermark, result.log_start_offset)
        self.lag = max(0, result.high_watermark - self.partition.log.log_end)

    def truncate_diverging(self, leaders: EpochEndOffset) -> None:
        """Truncate what the leader does not have. It has `leaders.epoch` up to `leaders.end_offset`, and nothing of
        the next epoch here.

            here     [epoch 3 ....][epoch 4 ..]       response (3, 20): truncate to 20, or to where epoch 3 ends here
            leader   [epoch 3 ........][epoch 5 ..]

        Without a batch of that epoch here, the log is truncated to the end of the epoch before it, and the next
        response continues from there.
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
        self._truncate(target)
        if (log.log_end, log.epochs.latest) == before:
            raise KafkaError(
                f"{self.partition.name} ends at {before[0]} in epoch {before[1]}, but its leader reports that the "
                f"logs diverge at {leaders.end_offset} in epoch {leaders.epoch}",
                ErrorCode.OFFSET_OUT_OF_RANGE,
            )
        self.errors = 0

    def move_into(self, leader: LogRange, now_ms: TimestampMs) -> None:
        """Move the log end to an offset from which the leader has records."""
        partition, log = self.partition, self.partition.log
        if leader.end < log.log_end:
            self._truncate(leader.end)
        elif leader.start > log.log_end:
            logger.warning(
                "%s ends at %d, but its leader's log starts at %d: it restarts there",
                partition.name,
                log.log_end,
                leader.start,
            )
            log.restart_at(leader.start, now_ms)
            # A log that was truncated at damage has to reach its old high watermark again (`Partition.mend`).
            partition.high_watermark = max(partition.high_watermark, leader.start)
        else:
            raise KafkaError(
                f"the leader of {partition.name} has {leader.start} to {leader.end}, nothing from {log.log_end} on",
                ErrorCode.OFFSET_OUT_OF_RANGE,
            )

    def _truncate(self, offset: Offset) -> None:
        partition, log = self.partition, self.partition.log
        old_end = log.log_end
        end = log.truncate(offset)
        if end < old_end:
            logger.info("%s is truncated to %d: it ended at %d", partition.name, end, old_end)
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
    except ValueError:  # of a newer release
        return ErrorCode.UNKNOWN_SERVER_ERROR


def _name(number: int) -> str:
    code = error_code(number)
    return code.name if code == number else f"error {number}"
