"""A log's settings, by Kafka's names and with Kafka's defaults."""

from dataclasses import fields

import pytest

from penstock.base.errors import ErrorCode
from penstock.base.settings import BadSetting, LogSettings


def test_defaults_are_kafkas() -> None:
    settings = LogSettings()
    assert settings.segment_bytes == 1 << 30
    assert settings.segment_ms == settings.retention_ms == 604_800_000
    assert settings.retention_bytes == -1
    assert settings.max_message_bytes == 1_048_588
    assert settings.index_interval_bytes == 4096
    assert settings.min_cleanable_dirty_ratio == 0.5
    assert settings.is_deleted
    assert not settings.is_compacted


def test_settings_come_as_text_over_a_base() -> None:
    base = LogSettings.from_text({"segment.bytes": "5000", "retention.ms": "-1"})
    settings = LogSettings.from_text(
        {"cleanup.policy": "compact, delete", "min.cleanable.dirty.ratio": "0.1", "retention.ms": "7"}, base
    )
    assert settings.segment_bytes == 5000
    assert settings.retention_ms == 7
    assert settings.is_compacted
    assert settings.is_deleted
    assert settings.min_cleanable_dirty_ratio == 0.1
    assert base.retention_ms == -1


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("segment.size", "5", "unknown setting segment.size"),
        ("segment.bytes", "five", "segment.bytes is 'five', expected a number"),
        ("segment.bytes", "999", "segment.bytes is 999, expected 1000 to 2147483647"),
        ("retention.ms", "-2", "retention.ms is -2, expected -1 to"),
        ("min.cleanable.dirty.ratio", "1.5", "expected 0 to 1"),
        ("cleanup.policy", "shred", "cleanup.policy is 'shred', expected a list of delete, compact"),
        ("message.timestamp.type", "Whenever", "expected one of CreateTime, LogAppendTime"),
    ],
)
def test_a_bad_setting_is_refused_with_what_was_given_and_expected(name: str, text: str, why: str) -> None:
    with pytest.raises(BadSetting) as caught:
        LogSettings.from_text({name: text})
    assert why in str(caught.value)
    assert caught.value.code is ErrorCode.INVALID_CONFIG


def test_without_a_cleanup_policy_everything_stays() -> None:
    """KIP-1161: an empty cleanup.policy neither deletes nor compacts."""
    settings = LogSettings.from_text({"cleanup.policy": ""})
    assert not settings.is_deleted
    assert not settings.is_compacted


def test_every_default_is_allowed_as_text() -> None:
    for each in fields(LogSettings):
        value = each.default
        text = ",".join(value) if isinstance(value, tuple) else str(value)
        assert LogSettings.from_text({each.metadata["name"]: text}) == LogSettings()
