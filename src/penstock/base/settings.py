"""Settings of a partition's log, under Kafka's names.

Values arrive as text from a file, a flag or a request, and are parsed and checked here only. An error names the
setting, the value found and the values allowed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import INT64_MAX

_INT32_MAX = 2**31 - 1
_DAY_MS = 24 * 60 * 60 * 1000
_COMPRESSIONS = ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")


class BadSetting(KafkaError):
    code = ErrorCode.INVALID_CONFIG


def _setting(
    default: Any, name: str, low: int = 0, high: int = INT64_MAX, choices: tuple[str, ...] = ()
) -> Any:
    return field(default=default, metadata={"name": name, "low": low, "high": high, "choices": choices})


@dataclass(frozen=True, slots=True)
class LogSettings:
    """The settings of one log; defaults are Kafka's."""

    segment_bytes: int = _setting(2**30, "segment.bytes", 1000, _INT32_MAX)
    """Kafka 4 rejects less than 1 MB; labs and tests need smaller segments."""
    segment_ms: int = _setting(7 * _DAY_MS, "segment.ms", 1)
    segment_jitter_ms: int = _setting(0, "segment.jitter.ms")
    segment_index_bytes: int = _setting(10 * 2**20, "segment.index.bytes", 24, _INT32_MAX)
    index_interval_bytes: int = _setting(4096, "index.interval.bytes", 0, _INT32_MAX)
    retention_ms: int = _setting(7 * _DAY_MS, "retention.ms", -1)
    retention_bytes: int = _setting(-1, "retention.bytes", -INT64_MAX - 1)
    """As in Kafka, any negative number means no limit."""
    cleanup_policy: tuple[str, ...] = _setting(("delete",), "cleanup.policy", choices=("delete", "compact"))
    """Empty means that nothing is deleted or compacted (KIP-1161)."""
    delete_retention_ms: int = _setting(_DAY_MS, "delete.retention.ms")
    file_delete_delay_ms: int = _setting(60_000, "file.delete.delay.ms")
    min_cleanable_dirty_ratio: float = _setting(0.5, "min.cleanable.dirty.ratio", 0, 1)
    min_compaction_lag_ms: int = _setting(0, "min.compaction.lag.ms")
    max_compaction_lag_ms: int = _setting(INT64_MAX, "max.compaction.lag.ms", 1)
    max_message_bytes: int = _setting(2**20 + 12, "max.message.bytes", 0, _INT32_MAX)
    message_timestamp_type: str = _setting(
        "CreateTime", "message.timestamp.type", choices=("CreateTime", "LogAppendTime")
    )
    message_timestamp_before_max_ms: int = _setting(INT64_MAX, "message.timestamp.before.max.ms")
    message_timestamp_after_max_ms: int = _setting(3_600_000, "message.timestamp.after.max.ms")
    compression_type: str = _setting("producer", "compression.type", choices=_COMPRESSIONS)
    compression_gzip_level: int = _setting(-1, "compression.gzip.level", -1, 9)
    compression_lz4_level: int = _setting(9, "compression.lz4.level", 1, 17)
    compression_zstd_level: int = _setting(3, "compression.zstd.level", -131072, 22)
    flush_messages: int = _setting(INT64_MAX, "flush.messages", 1)
    flush_ms: int = _setting(INT64_MAX, "flush.ms")
    record_validation: str = _setting("header", "record.validation", choices=("header", "full"))
    """Not a Kafka setting: `full` decodes every produced record, `header` checks only the batch header and its CRC."""
    schema_validation: str = _setting("none", "schema.validation", choices=("none", "value", "key", "both"))
    """Not a Kafka setting: whether records must have the id of a schema of the topic's subjects."""
    schema_validation_mode: str = _setting("id", "schema.validation.mode", choices=("id", "full"))
    """Whether they must also decode."""

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def is_deleted(self) -> bool:
        return "delete" in self.cleanup_policy

    @classmethod
    def from_text(cls, properties: Mapping[str, str], base: "LogSettings | None" = None) -> "LogSettings":
        """Return `base` with settings given as text; raise `BadSetting` on an unknown name or a bad value."""
        by_name = {each.metadata["name"]: each for each in fields(cls)}
        values = {}
        for name, text in properties.items():
            if name not in by_name:
                raise BadSetting(f"unknown setting {name}")
            values[by_name[name].name] = _parse(name, text, by_name[name])
        return replace(base or cls(), **values)


def _parse(name: str, text: str, setting: Any) -> Any:
    default, choices = setting.default, setting.metadata["choices"]
    if isinstance(default, tuple):
        chosen = tuple(part.strip() for part in text.split(",") if part.strip())
        if not set(chosen) <= set(choices):
            raise BadSetting(f"{name} is {text!r}, expected a list of {', '.join(choices)}")
        return chosen
    if choices:
        if text not in choices:
            raise BadSetting(f"{name} is {text!r}, expected one of {', '.join(choices)}")
        return text
    try:
        value = type(default)(text)
    except ValueError as error:
        raise BadSetting(f"{name} is {text!r}, expected a number") from error
    if not setting.metadata["low"] <= value <= setting.metadata["high"]:
        raise BadSetting(
            f"{name} is {text}, expected {setting.metadata['low']} to {setting.metadata['high']}"
        )
    return value
