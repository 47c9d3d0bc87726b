"""Keys found in the log itself: what was written since the key files were.

Runs beside the loop, a portion at a time. Only batches that can have a key are looked into: the gateway writes neither
transactions nor sequences, and in a batch that is not compressed the header's name is there to be seen.
"""

import logging
from typing import NamedTuple

from penstock.base.errors import KafkaError
from penstock.base.ids import Offset, TimestampMs
from penstock.gateway.idempotency.entries import HEADER, digest_of
from penstock.records import RecordBatch, iter_batches
from penstock.storage import Log

logger = logging.getLogger(__name__)

PORTION_BYTES = 4 << 20
"""What is read at once: some ten milliseconds on a thread."""

_NAME = HEADER.encode()


class Found(NamedTuple):
    keys: list[tuple[bytes, Offset, TimestampMs]]
    """Digests, each with its record's offset and timestamp, in the order of the log."""
    next_offset: Offset
    """Where to go on; the end that was asked for, where there is no more."""


def find_keys(log: Log, start: Offset, end: Offset) -> Found:
    """The keys of a portion of the log, from an offset on and below an end; also of records before the log's start, as
    long as their files are there."""
    start = max(start, log.first_kept)
    if start >= end:
        return Found([], end)
    data = log.read_kept(start, PORTION_BYTES, visible=end)
    keys: list[tuple[bytes, Offset, TimestampMs]] = []
    position, next_offset = 0, end
    for batch in iter_batches(data):
        behind = position + batch.size
        is_plain = not batch.is_compressed
        if _may_be_ours(batch) and not (is_plain and data.find(_NAME, position, behind) < 0):
            _collect(log, batch, start, keys)
        position, next_offset = behind, batch.next_offset
    if data and not position:
        logger.error("%s cannot be read for idempotency keys from offset %d on", log.partition, start)
    return Found(keys, min(next_offset, end))


def has_key(log: Log, offset: Offset, digest: bytes) -> bool:
    """Whether the record at an offset came with this key; also where the log has no such record any more, by retention
    or compaction, and nobody can tell."""
    if offset < log.first_kept:
        return True
    data = log.read_kept(offset, 1, visible=log.log_end)
    for batch in iter_batches(data):
        for record in batch.records() if batch.base_offset <= offset <= batch.last_offset else ():
            if record.offset == offset:
                return any(
                    name == HEADER and value and digest_of(value) == digest for name, value in record.headers
                )
    return True


def _may_be_ours(batch: RecordBatch) -> bool:
    return batch.producer_id < 0 and not batch.is_control and not batch.is_transactional


def _collect(
    log: Log, batch: RecordBatch, start: Offset, keys: list[tuple[bytes, Offset, TimestampMs]]
) -> None:
    try:
        for record in batch.records():
            if record.offset < start:
                continue
            for name, value in record.headers:
                if name == HEADER and value:
                    keys.append((digest_of(value), record.offset, record.timestamp))
                    break
    except KafkaError as error:
        logger.error("%s: idempotency keys of a batch cannot be read: %s", log.partition, error)
