"""Record batches: Kafka's format, magic 2, read and written without any I/O.

`RecordBatch.parse` looks at a batch where it lies and reads its 61 bytes of header; that is all the
broker needs to append, index and serve it. `patch` gives it its offset and leader epoch in place. Only
who wants records (consumers, compaction, `record.validation=full`) calls `records()`, which unpacks
within a limit. `BatchBuilder` writes batches, `validate_produced` judges those of producers.

    errors        what may be wrong with bytes         builder     batches written
    varint        numbers inside a record              control     transaction markers and their kin
    checksum      CRC-32C                              validate    what a producer may send
    compression   the codecs, bounded                  recompress  a batch in another codec
    unpacked      what a batch unpacks to at most      structs     what internal topics have in their records
    batch         the header, and records decoded
"""

from .batch import (
    DECOMPRESSED_BYTES_MAX,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD,
    PACK_PLACE,
    Record,
    RecordBatch,
    iter_batches,
    patch,
    seal,
    stamp,
)
from .builder import BatchBuilder, BatchOptions, build_batch, empty_batch, encode_record
from .compression import Codec, compress, decompress
from .control import ControlRecord, ControlType, control_key, end_txn_marker, parse_control
from .errors import CorruptBatch, DecompressedTooLarge, TooLongToValidate, UnsupportedMagic
from .recompress import recompress
from .validate import (
    HasLoopTime,
    InvalidBatch,
    ProduceRules,
    validate_header,
    validate_produced,
    validate_records,
)

__all__ = [
    "DECOMPRESSED_BYTES_MAX",
    "HEADER",
    "HEADER_BYTES",
    "LOG_OVERHEAD",
    "PACK_PLACE",
    "BatchBuilder",
    "BatchOptions",
    "Codec",
    "ControlRecord",
    "ControlType",
    "CorruptBatch",
    "DecompressedTooLarge",
    "HasLoopTime",
    "InvalidBatch",
    "ProduceRules",
    "Record",
    "RecordBatch",
    "TooLongToValidate",
    "UnsupportedMagic",
    "build_batch",
    "compress",
    "control_key",
    "decompress",
    "empty_batch",
    "encode_record",
    "end_txn_marker",
    "iter_batches",
    "parse_control",
    "patch",
    "recompress",
    "seal",
    "stamp",
    "validate_header",
    "validate_produced",
    "validate_records",
]
