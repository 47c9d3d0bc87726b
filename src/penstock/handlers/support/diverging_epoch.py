"""The epoch at which a reader's log diverges from this one (KIP-595)."""

from penstock.base.errors import ErrorCode, KafkaError
from penstock.replica import Partition
from penstock.wire import EpochEndOffset, FetchPartition


def diverging_epoch(partition: Partition, asked: FetchPartition) -> EpochEndOffset | None:
    """The last common epoch and its end here, if the logs diverge; None if they do not, or if the reader does not name
    the epoch of its last batch."""
    last = asked.last_fetched_epoch
    if last < 0:
        return None
    log = partition.log
    epoch, end = log.epochs.end_of(last, log.log_end)
    if epoch < 0:
        raise KafkaError(f"{partition.name} has no leader epoch {last}", ErrorCode.OFFSET_OUT_OF_RANGE)
    if asked.fetch_offset < log.log_start:
        raise KafkaError(
            f"{partition.name} starts at offset {log.log_start}, requested {asked.fetch_offset}",
            ErrorCode.OFFSET_OUT_OF_RANGE,
        )
    return EpochEndOffset(epoch, end) if epoch < last or end < asked.fetch_offset else None
