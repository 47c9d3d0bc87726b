"""Validation rules and codec of a log, by the topic's settings and the origin of a batch."""

from enum import Enum
from functools import lru_cache

from penstock.base.errors import ErrorCode
from penstock.base.settings import LogSettings
from penstock.records import (
    Codec,
    CorruptBatch,
    DecompressedTooLarge,
    HasLoopTime,
    InvalidBatch,
    ProduceRules,
    RecordBatch,
    TooLongToValidate,
    recompress,
)
from penstock.storage.scan import BATCH_BYTES_MAX

CODECS = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
"""Values of `compression.type`, except `producer`."""

RECOMPRESSED_ON_LOOP_MAX = 16 * 1024
"""Bytes, packed and unpacked, of a batch that is brought into the topic's codec on the event loop: some 5 ms in the
slowest codec and level."""


class Origin(Enum):
    """The writer of a batch, which decides what is checked."""

    CLIENT = "client"
    COORDINATOR = "coordinator"


@lru_cache(maxsize=256)  # logs with the same settings share theirs
def rules_for(settings: LogSettings, origin: Origin) -> ProduceRules:
    return ProduceRules(
        max_message_bytes=min(settings.max_message_bytes, BATCH_BYTES_MAX),
        compacted=settings.is_compacted and origin is Origin.CLIENT,  # a coordinator's records all have keys
        check_records=settings.record_validation == "full" and origin is Origin.CLIENT,
        timestamp_before_max_ms=settings.message_timestamp_before_max_ms,
        timestamp_after_max_ms=settings.message_timestamp_after_max_ms,
        log_append_time=settings.message_timestamp_type == "LogAppendTime",
        allow_control=origin is Origin.COORDINATOR,
    )


def recompressed(
    batch: RecordBatch, codec: Codec, settings: LogSettings, has_loop_time: HasLoopTime | None = None
) -> RecordBatch:
    """A client's batch in the topic's codec. As in Kafka the size limit is checked before and after.

    With `has_loop_time`, raises TooLongToValidate if that would block the event loop.
    """
    rules = rules_for(settings, Origin.CLIENT)
    limit = rules.max_message_bytes if codec is Codec.NONE else rules.max_decompressed_bytes
    if has_loop_time is not None:
        if batch.size > RECOMPRESSED_ON_LOOP_MAX or not has_loop_time():
            raise TooLongToValidate
        try:
            batch.decompressed(min(limit, RECOMPRESSED_ON_LOOP_MAX))
        except DecompressedTooLarge:
            raise TooLongToValidate from None
        except CorruptBatch:
            pass  # reported below
    try:
        data = recompress(batch, codec, _level(settings, codec), limit)
    except DecompressedTooLarge as error:
        raise InvalidBatch(str(error), error.code) from error
    except CorruptBatch as error:
        # The CRC is right, so resending is useless. CORRUPT_MESSAGE would cause it.
        raise InvalidBatch(str(error), ErrorCode.INVALID_RECORD) from error
    if len(data) > rules.max_message_bytes:
        raise InvalidBatch(
            f"the batch has {len(data)} bytes in {settings.compression_type}, "
            f"at most {rules.max_message_bytes} are allowed",
            ErrorCode.MESSAGE_TOO_LARGE,
        )
    return RecordBatch.parse(data)


def _level(settings: LogSettings, codec: Codec) -> int | None:
    if codec is Codec.GZIP:
        return settings.compression_gzip_level
    if codec is Codec.LZ4:
        return settings.compression_lz4_level
    return settings.compression_zstd_level if codec is Codec.ZSTD else None
