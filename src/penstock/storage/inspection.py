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

from dataclasses import dataclass
from typing import NamedTuple

from penstock.base.ids import TimestampMs
from penstock.base.settings import LogSettings
from penstock.records import Codec, ProduceRules, RecordBatch, validate_records
from penstock.storage.rules import CODECS, Origin, recompressed, rules_for


class Inspected(NamedTuple):
    """Records that are valid under these settings."""

    rules: ProduceRules
    codec: Codec | None
    data: bytearray | None
    """The batch in the topic's codec; None if no recompression is needed."""

    def holds_for(self, settings: LogSettings) -> bool:
        return self.rules == rules_for(settings, Origin.CLIENT) and self.codec is CODECS.get(
            settings.compression_type
        )


@dataclass(frozen=True, slots=True)
class Inspection:
    """Work for another process."""

    data: bytes
    """A client's batch with a valid header and CRC."""
    settings: LogSettings
    now_ms: TimestampMs

    def __call__(self) -> Inspected:
        settings = self.settings
        rules, codec = rules_for(settings, Origin.CLIENT), CODECS.get(settings.compression_type)
        batch = RecordBatch.parse(self.data)
        validate_records(batch, rules, self.now_ms)
        if codec is None or batch.codec is codec:
            return Inspected(rules, codec, None)
        return Inspected(rules, codec, bytearray(recompressed(batch, codec, settings).view))


class NeedsInspection(Exception):
    """Validating this batch would block the event loop; it was not staged.

    Not a `KafkaError`: the batch may be valid.
    """

    def __init__(self, inspection: Inspection) -> None:
        super().__init__(f"a batch of {len(inspection.data)} bytes must be inspected in another process")
        self.inspection = inspection
