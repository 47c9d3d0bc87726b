"""Validates large batches in another process, because their records would block the event loop.

    Log.stage --> NeedsInspection(inspection)      the log is unchanged
                      |
                      v  on another process
                  inspection() --> Inspected       or raises InvalidBatch
                      |
                      v  on the event loop again
    Log.stage(..., inspected=...)                  checks header and sequence, assigns the offset

An inspection depends only on the batch and the topic's settings. Everything that may change while it runs (leadership,
producer state, log end) is checked when the batch is staged. If the settings change, the batch is inspected again.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

from penstock.base.ids import TimestampMs
from penstock.base.settings import LogSettings
from penstock.records import Codec, ProduceRules, RecordBatch, validate_records
from penstock.records.validate import refused_records
from penstock.storage.rules import CODECS, Origin, recompressed, rules_for
from penstock.storage.schema_check import RecordCheck, SchemaCheck


class Inspected(NamedTuple):
    """Records that are valid under these settings."""

    rules: ProduceRules
    codec: Codec | None
    data: bytearray | None
    """The batch in the topic's codec; None if no recompression is needed."""
    schemas: tuple[str, str] = ("none", "id")
    """How schemas were checked: `schema.validation` and its mode."""

    def holds_for(self, settings: LogSettings) -> bool:
        is_checked = settings.schema_validation == "none" or self.schemas == (
            settings.schema_validation,
            settings.schema_validation_mode,
        )
        return (
            is_checked
            and self.rules == rules_for(settings, Origin.CLIENT)
            and self.codec is CODECS.get(settings.compression_type)
        )


@dataclass(frozen=True, slots=True)
class Inspection:
    """Work for another process."""

    data: bytes
    """A client's batch with a valid header and CRC."""
    settings: LogSettings
    now_ms: TimestampMs
    schema_check: SchemaCheck | None = None
    """Asked for what is registered now, before the work begins; then `record_check` is set instead."""
    record_check: RecordCheck | None = None

    def with_schemas(self, record_check: RecordCheck) -> "Inspection":
        return replace(self, schema_check=None, record_check=record_check)

    def __call__(self) -> Inspected:
        settings = self.settings
        rules, codec = rules_for(settings, Origin.CLIENT), CODECS.get(settings.compression_type)
        batch = RecordBatch.parse(self.data)
        validate_records(batch, rules, self.now_ms)
        schemas = ("none", "id")
        if self.record_check is not None:
            faults = self.record_check.faults(batch, rules.max_decompressed_bytes)
            if faults:
                raise refused_records(batch, faults)
            schemas = (settings.schema_validation, settings.schema_validation_mode)
        if codec is None or batch.codec is codec:
            return Inspected(rules, codec, None, schemas)
        return Inspected(rules, codec, bytearray(recompressed(batch, codec, settings).view), schemas)


class NeedsInspection(Exception):
    """Validating this batch would block the event loop; it was not staged.

    Not a `KafkaError`: the batch may be valid.
    """

    def __init__(self, inspection: Inspection) -> None:
        super().__init__(f"a batch of {len(inspection.data)} bytes must be inspected in another process")
        self.inspection = inspection
