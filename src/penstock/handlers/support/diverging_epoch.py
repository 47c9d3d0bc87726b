"""Where a reader's log and this one part (KIP-595)."""

from penstock.base.errors import ErrorCode, KafkaError
from penstock.replica import Partition
from penstock.wire import EpochEndOffset, FetchPartition


def parted(partition: Partition, asked: FetchPartition) -> EpochEndOffset | None:
    """Where the reader's log and this one part, if they do; None where all that it has is here too, or it does not
    say of which epoch its last batch is."""
    last = asked.last_fetched_epoch
    if last < 0:
        return None
    log = partition.log
    epoch, end = log.epochs.end_of(last, log.log_end)
    if epoch < 0:
        raise KafkaError(f"{partition.name} has no leader epoch {last}", ErrorCode.OFFSET_OUT_OF_RANGE)
    if asked.fetch_offset < log.log_start:
        raise KafkaError(
            f"{partition.name} begins at {log.log_start}, asked for {asked.fetch_offset}",
            ErrorCode.OFFSET_OUT_OF_RANGE,
        )
    return EpochEndOffset(epoch, end) if epoch < last or end < asked.fetch_offset else None
