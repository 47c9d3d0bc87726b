"""Judging a batch beside the event loop, because its records take too long to look at on it.

    Log.stage --> NeedsInspection(inspection)      nothing has happened to the log
                      |
                      v  on another process
                  inspection() --> Inspected       or raises InvalidBatch
                      |
                      v  on the loop again, some turns later
    Log.stage(..., inspected=...)                  the header, the sequence, the offset: as for any batch

An inspection depends on the batch and on the topic's settings alone. Whatever may change while it runs (who leads, the
producer's state, the log's end) is checked when the batch is staged. Settings may change too: then the batch is
inspected again.
"""

from dataclasses import dataclass
from typing import NamedTuple

from penstock.base.ids import TimestampMs
from penstock.base.settings import LogSettings
from penstock.records import Codec, ProduceRules, RecordBatch, validate_records
from penstock.storage.rules import CODECS, Origin, recompressed, rules_for


class Inspected(NamedTuple):
    """Records that may be appended to a log with these rules."""

    rules: ProduceRules
    codec: Codec | None
    data: bytearray | None
    """The batch in the topic's codec; None where it is in it already, or the topic has none."""

    def holds_for(self, settings: LogSettings) -> bool:
        return self.rules == rules_for(settings, Origin.CLIENT) and self.codec is CODECS.get(
            settings.compression_type
        )


@dataclass(frozen=True, slots=True)
class Inspection:
    """Work for another process."""

    data: bytes
    """A client's batch, whose header and CRC are sound."""
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
    """To judge this batch takes longer than the event loop may be held; it was not staged.

    This says nothing about the batch, so it is no `KafkaError`.
    """

    def __init__(self, inspection: Inspection) -> None:
        super().__init__(f"a batch of {len(inspection.data)} bytes has to be inspected beside the event loop")
        self.inspection = inspection
