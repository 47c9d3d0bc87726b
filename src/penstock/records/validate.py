"""Validates produced batches before they are appended.

The order is Kafka's, so that a batch with two faults gets the same error code:

    UnifiedLog.analyzeAndValidateRecords    base offset, size, CRC, codec
    LogValidator.validateBatch              offsets and count, control bit, producer's fields
    LogValidator.validateRecord             for each record: its key, its timestamp

The handler of Produce checks the request itself, as ProduceRequest.validateRecords does: exactly one batch, magic 2,
no zstd before version 7.

Kafka decodes every record and repairs offsets, max timestamp and timestamp type. Nothing is rewritten here: such a
batch is refused if its records are decoded. If the rules do not require that, nothing is decompressed, and only
max_timestamp is checked. Attribute bits 7 to 15 are unused and accepted, as in Kafka.

A batch that exceeds the decompression limit is always refused. Its block headers nearly always prove that it does not
(`decompressed_size`); otherwise it is decompressed here.

Validating records may take long: 3 million of them, in a batch of 4 KB, take seconds. A caller on the event loop
passes `has_loop_time` and gets `TooLongToValidate` instead: work on the event loop is bounded by RECORDS_ON_LOOP_MAX
and UNPACKED_ON_LOOP_MAX. The caller then validates in another process, without `has_loop_time`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import NO_TIMESTAMP, TimestampMs

from .batch import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    CONTROL_MASK,
    DECOMPRESSED_BYTES_MAX,
    DELETE_HORIZON_MASK,
    LENGTH_MIN,
    LOG_APPEND_TIME_MASK,
    RECORDS_AT,
    TRANSACTIONAL_MASK,
    Record,
    RecordBatch,
)
from .checksum import crc32c
from .compression import Codec
from .decompressed_size import RECORD_BYTES_MIN, surely_fits
from .errors import CorruptBatch, DecompressedTooLarge, TooLongToValidate

RECORD_ERRORS_MAX = 100
"""Validation stops after this many faults; a batch may have a million invalid records."""

RECORDS_ON_LOOP_MAX = 1000
"""Most records of one batch decoded on the event loop, in 1 to 3 ms."""

UNPACKED_ON_LOOP_MAX = 128 * 1024
"""Most bytes that one batch decompresses to on the event loop, in less than 1 ms."""

PACKED_ON_LOOP_MAX = 16 * 1024
"""Largest compressed batch decompressed on the event loop. In snappy it may have 3,000 blocks, which take 5 ms."""

HasLoopTime = Callable[[], bool]
"""Whether there is time left on the event loop to decode a small batch."""

Faults = list[tuple[int, str]]
"""Index and error of each invalid record."""

UNBOUNDED_MS = (1 << 63) - 1
"""Kafka's default for message.timestamp.before.max.ms: no limit."""

_CODEC_MAX = max(Codec)


class InvalidBatch(KafkaError):
    """A produced batch is refused."""

    record_errors: list[tuple[int, str]]
    """Index and error of each invalid record; empty if the batch as a whole is invalid."""

    def __init__(self, message: str, code: ErrorCode, record_errors: Sequence[tuple[int, str]] = ()) -> None:
        super().__init__(message, code)
        self.record_errors = list(record_errors)

    def __reduce__(self) -> tuple[type["InvalidBatch"], tuple[str, ErrorCode, list[tuple[int, str]]]]:
        """Pickles the error, for child processes."""
        return type(self), (str(self), self.code, self.record_errors)


@dataclass(frozen=True, slots=True)
class ProduceRules:
    """Validation rules, by the topic's settings and by the writer."""

    max_message_bytes: int = 1024 * 1024 + 12
    """Kafka's default: 1 MiB plus `LOG_OVERHEAD`."""
    compacted: bool = False
    """Every record must have a key; implies check_records."""
    check_records: bool = False
    """Decode every record."""
    timestamp_before_max_ms: int = UNBOUNDED_MS
    timestamp_after_max_ms: int = 3_600_000
    log_append_time: bool = False
    """The broker sets timestamps, so the producer's are not checked."""
    allow_control: bool = False
    """The writer is a coordinator or the Raft log: it may write control batches, choose offsets, and
    leave out sequence numbers, as a coordinator does for offsets committed in a transaction."""
    max_decompressed_bytes: int = DECOMPRESSED_BYTES_MAX


def validate_produced(
    batch: RecordBatch, rules: ProduceRules, now_ms: TimestampMs, has_loop_time: HasLoopTime | None = None
) -> None:
    """Raise InvalidBatch unless the batch may be appended unchanged.

    With `has_loop_time`, raise TooLongToValidate if that would block the event loop.
    """
    if (
        batch.attributes <= _CODEC_MAX
        and batch.base_offset == 0
        and batch.count == batch.last_offset_delta + 1 > 0
        and (batch.producer_id < 0 or (batch.base_sequence >= 0 and batch.producer_epoch >= 0))
        and batch.size <= rules.max_message_bytes
        and not rules.check_records
        and not rules.compacted
        and -rules.timestamp_after_max_ms <= now_ms - batch.max_timestamp <= rules.timestamp_before_max_ms
        and crc32c(batch.view[ATTRIBUTES_AT:]) == batch.crc
        and batch.count * RECORD_BYTES_MIN
        <= (rules.max_decompressed_bytes if batch.attributes else batch.length - LENGTH_MIN)
        and (
            not batch.attributes
            or surely_fits(batch.attributes, batch.view[RECORDS_AT:], rules.max_decompressed_bytes)
        )
    ):
        return  # valid, as nearly every batch; the slower checks below name the fault
    validate_header(batch, rules, now_ms)
    validate_records(batch, rules, now_ms, has_loop_time)


def validate_header(batch: RecordBatch, rules: ProduceRules, now_ms: TimestampMs) -> None:
    """Raise InvalidBatch if header, CRC or size are invalid."""
    _check_bytes(batch, rules)
    _check_offsets(batch, rules)
    _check_origin(batch, rules)
    _check_timestamp_type(batch, rules)
    if not (rules.check_records or rules.compacted or rules.log_append_time):
        why = time_fault(batch.max_timestamp, rules, now_ms)
        if why:
            raise InvalidBatch(f"the batch's max timestamp {why}", ErrorCode.INVALID_TIMESTAMP)


def validate_records(
    batch: RecordBatch, rules: ProduceRules, now_ms: TimestampMs, has_loop_time: HasLoopTime | None = None
) -> None:
    """Raise InvalidBatch if the records of a batch with a valid header are invalid; `has_loop_time` as in
    `validate_produced`."""
    checks_records = rules.check_records or rules.compacted
    if not checks_records and (
        not batch.is_compressed
        or surely_fits(batch.attributes & CODEC_MASK, batch.payload, rules.max_decompressed_bytes)
    ):
        return
    unpacked_max = rules.max_decompressed_bytes
    if has_loop_time is not None:
        if not checks_records or not is_small(batch) or not has_loop_time():
            raise TooLongToValidate
        unpacked_max = min(unpacked_max, UNPACKED_ON_LOOP_MAX)
    try:
        if checks_records:
            _check_records(batch, rules, now_ms, unpacked_max)
        else:
            unpacked = len(batch.decompressed(unpacked_max))
            if unpacked < batch.count * RECORD_BYTES_MIN:
                raise _invalid(f"the batch counts {batch.count} records in {unpacked} bytes")
    except DecompressedTooLarge as error:
        if unpacked_max < rules.max_decompressed_bytes:
            raise TooLongToValidate from None
        raise InvalidBatch(str(error), error.code) from None
    except CorruptBatch as error:
        # The CRC is right, so resending is useless. CORRUPT_MESSAGE would cause it.
        raise _invalid(str(error)) from None


def _invalid(message: str) -> InvalidBatch:
    return InvalidBatch(message, ErrorCode.INVALID_RECORD)


def _check_bytes(batch: RecordBatch, rules: ProduceRules) -> None:
    if batch.base_offset != 0 and not rules.allow_control:
        raise _invalid(f"the batch has base offset {batch.base_offset}, a producer's is 0")
    if batch.size > rules.max_message_bytes:
        raise InvalidBatch(
            f"the batch has {batch.size} bytes, at most {rules.max_message_bytes} are allowed",
            ErrorCode.MESSAGE_TOO_LARGE,
        )
    expected = crc32c(batch.view[ATTRIBUTES_AT:])
    if expected != batch.crc:
        raise InvalidBatch(
            f"the batch has CRC {batch.crc:#010x}, its bytes give {expected:#010x}", ErrorCode.CORRUPT_MESSAGE
        )
    codec = batch.attributes & CODEC_MASK
    if codec > _CODEC_MAX:
        raise InvalidBatch(
            f"the batch has codec {codec}, codecs are 0 to {_CODEC_MAX:d}",
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        )


def _check_offsets(batch: RecordBatch, rules: ProduceRules) -> None:
    if batch.last_offset_delta < 0:
        raise _invalid(f"the batch has last offset delta {batch.last_offset_delta}, at least 0 expected")
    if batch.count <= 0:
        raise _invalid(f"the batch counts {batch.count} records, at least 1 expected")
    if batch.count != batch.last_offset_delta + 1:
        raise _invalid(f"the batch counts {batch.count} records for {batch.last_offset_delta + 1} offsets")
    if not batch.is_compressed and batch.count * RECORD_BYTES_MIN > len(batch.payload):
        raise _invalid(
            f"the batch counts {batch.count} records in {len(batch.payload)} bytes, "
            f"at least {RECORD_BYTES_MIN} bytes a record expected"
        )
    if batch.count * RECORD_BYTES_MIN > rules.max_decompressed_bytes:
        raise InvalidBatch(
            f"the batch counts {batch.count} records, which unpack to more than the "
            f"{rules.max_decompressed_bytes} bytes allowed",
            ErrorCode.MESSAGE_TOO_LARGE,
        )


def _check_origin(batch: RecordBatch, rules: ProduceRules) -> None:
    attributes = batch.attributes
    if attributes & CONTROL_MASK and not rules.allow_control:
        raise _invalid("the batch has the control bit, which only brokers may set")
    if attributes & DELETE_HORIZON_MASK:
        raise _invalid("the batch has the delete horizon bit, which only compaction may set")
    if batch.producer_id >= 0:
        if batch.base_sequence < 0 and not rules.allow_control:
            raise _invalid(
                f"the batch of producer {batch.producer_id} has base sequence {batch.base_sequence}, "
                "at least 0 expected"
            )
        if batch.producer_epoch < 0:
            raise _invalid(
                f"the batch of producer {batch.producer_id} has producer epoch {batch.producer_epoch}, "
                "at least 0 expected"
            )
    elif attributes & TRANSACTIONAL_MASK:
        raise _invalid(
            f"the batch is transactional and has producer id {batch.producer_id}, at least 0 expected"
        )


def _check_timestamp_type(batch: RecordBatch, rules: ProduceRules) -> None:
    if batch.attributes & LOG_APPEND_TIME_MASK and not rules.allow_control:
        raise InvalidBatch(
            "the batch has timestamp type LogAppendTime, a producer's is CreateTime",
            ErrorCode.INVALID_TIMESTAMP,
        )


def time_fault(timestamp: TimestampMs, rules: ProduceRules, now_ms: TimestampMs) -> str | None:
    """What is wrong with a producer's timestamp, for the end of a sentence."""
    if timestamp == NO_TIMESTAMP:
        return None
    age_ms = now_ms - timestamp
    if age_ms > rules.timestamp_before_max_ms:
        return f"{timestamp} is {age_ms} ms in the past, at most {rules.timestamp_before_max_ms} are allowed"
    if -age_ms > rules.timestamp_after_max_ms:
        return (
            f"{timestamp} is {-age_ms} ms in the future, at most {rules.timestamp_after_max_ms} are allowed"
        )
    return None


def _check_records(batch: RecordBatch, rules: ProduceRules, now_ms: TimestampMs, unpacked_max: int) -> None:
    faults: Faults = []
    code = ErrorCode.INVALID_RECORD
    max_timestamp = NO_TIMESTAMP
    for index, record in enumerate(batch.records(unpacked_max)):
        found = _record_fault(record, batch.base_offset + index, rules, now_ms)
        if found:
            if found[0] is ErrorCode.INVALID_TIMESTAMP:
                code = found[0]
            faults.append((index, found[1]))
            if len(faults) == RECORD_ERRORS_MAX:
                break
        max_timestamp = max(max_timestamp, record.timestamp)
    if faults:
        raise refused_records(batch, faults, code)
    if max_timestamp != batch.max_timestamp and not rules.log_append_time:
        raise InvalidBatch(
            f"the batch has max timestamp {batch.max_timestamp}, its records give {max_timestamp}",
            ErrorCode.INVALID_TIMESTAMP,
        )


def refused_records(
    batch: RecordBatch, faults: Faults, code: ErrorCode = ErrorCode.INVALID_RECORD
) -> InvalidBatch:
    """The error of a batch with invalid records."""
    first_index, first = faults[0]
    or_more = " or more" if len(faults) == RECORD_ERRORS_MAX < batch.count else ""
    return InvalidBatch(
        f"{len(faults)}{or_more} of {batch.count} records are refused, the first (index {first_index}) as {first}",
        code,
        faults,
    )


def is_small(batch: RecordBatch) -> bool:
    """Whether the records of a batch may be decoded on the event loop."""
    return batch.count <= RECORDS_ON_LOOP_MAX and not (
        batch.is_compressed and batch.length > PACKED_ON_LOOP_MAX
    )


def _record_fault(
    record: Record, expected_offset: int, rules: ProduceRules, now_ms: TimestampMs
) -> tuple[ErrorCode, str] | None:
    if rules.compacted and record.key is None:
        return ErrorCode.INVALID_RECORD, "it has no key, and the topic is compacted"
    if not rules.log_append_time:
        why = time_fault(record.timestamp, rules, now_ms)
        if why:
            return ErrorCode.INVALID_TIMESTAMP, f"its timestamp {why}"
    if record.offset != expected_offset:
        return ErrorCode.INVALID_RECORD, f"it has offset {record.offset}, {expected_offset} expected"
    return None
