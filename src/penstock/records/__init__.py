"""Record batches: Kafka's format, magic 2, read and written without any I/O.

`RecordBatch.parse` reads the 61 bytes of a batch's header in place, which is all that the broker needs to append,
index and serve it. `patch` sets offset and leader epoch in place. Only consumers, compaction and
`record.validation=full` call `records()`, which decompresses within a limit. `BatchBuilder` writes batches,
`validate_produced` checks those of producers.

    batch               header, decoding of records      builder      writing batches
    varint              numbers inside a record          control      transaction markers, other control records
    checksum            CRC-32C                          validate     rules for produced batches
    compression         codecs, with bounded output      recompress   a batch in another codec
    decompressed_size   bounds without decompressing     structs      records of internal topics
    counting            number of records in batches     errors       errors of malformed batches
    schema_framing      schema ids before keys, values
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
    seal,
    stamp,
)
from .builder import BatchBuilder, BatchOptions, build_batch, empty_batch
from .compression import Codec, compress
from .control import ControlType, control_key, end_txn_marker, parse_control
from .errors import CorruptBatch, DecompressedTooLarge, TooLongToValidate
from .recompress import recompress
from .validate import (
    HasLoopTime,
    InvalidBatch,
    ProduceRules,
    time_fault,
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
    "ControlType",
    "CorruptBatch",
    "DecompressedTooLarge",
    "HasLoopTime",
    "InvalidBatch",
    "ProduceRules",
    "Record",
    "RecordBatch",
    "TooLongToValidate",
    "build_batch",
    "compress",
    "control_key",
    "empty_batch",
    "end_txn_marker",
    "iter_batches",
    "parse_control",
    "recompress",
    "seal",
    "stamp",
    "time_fault",
    "validate_header",
    "validate_produced",
    "validate_records",
]
