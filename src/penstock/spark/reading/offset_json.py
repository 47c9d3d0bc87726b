"""Partitions, offsets and times as JSON: in options, and in the checkpoint of a stream.

    {"orders": [0, 1]}                      partitions
    {"orders": {"0": 12, "1": -2}}          offsets; -2 is the earliest and -1 the latest
    {"orders": {"0": 1718000000000}}        times, in milliseconds since 1970

Spark compares the offsets of a stream as text, so they are always written in the same order.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from penstock.base.ids import INT64_MAX, Offset, TimestampMs, TopicPartition
from penstock.spark.errors import BadOption

OffsetsJson = dict[str, dict[str, int]]
"""As in checkpoints of Spark's Kafka source."""

START_KEY: Final = "@start"
"""The start of a stream's first batch, in its end. No topic can have this name."""

SCHEMAS_KEY: Final = "@schemas"
"""The versions of subjects that a stream is pinned to."""

_PARTITION_MAX = 2**31 - 1
_EXAMPLE_OFFSETS = '{"orders": {"0": 12, "1": -2}}'
_EXAMPLE_TIMES = '{"orders": {"0": 1718000000000}}'
_EXAMPLE_PARTITIONS = '{"orders": [0, 1]}'


def write_offsets(offsets: Mapping[TopicPartition, Offset]) -> OffsetsJson:
    parsed: OffsetsJson = {}
    for partition in sorted(offsets):
        parsed.setdefault(partition.topic, {})[str(partition.partition)] = offsets[partition]
    return parsed


def offsets_of(parsed: Any, what: str) -> dict[TopicPartition, Offset]:
    """Parse a checkpoint's JSON, which may have been edited by hand."""
    return _numbers(what, parsed, _EXAMPLE_OFFSETS, 0)


def read_offsets(option: str, text: str) -> dict[TopicPartition, Offset]:
    return _numbers(
        f"option {option}",
        _parsed(option, text, f"earliest, latest or {_EXAMPLE_OFFSETS}"),
        _EXAMPLE_OFFSETS,
        -2,
    )


def read_times(option: str, text: str) -> dict[TopicPartition, TimestampMs]:
    return _numbers(f"option {option}", _parsed(option, text, _EXAMPLE_TIMES), _EXAMPLE_TIMES, 0)


def read_assignment(option: str, text: str) -> tuple[TopicPartition, ...]:
    parsed = _parsed(option, text, _EXAMPLE_PARTITIONS)
    found = []
    for topic, partitions in _object(f"option {option}", parsed, _EXAMPLE_PARTITIONS).items():
        if not isinstance(partitions, list):
            raise BadOption(
                f"option {option} has {_short(partitions)} for topic {topic}, expected a list of partitions"
            )
        for each in partitions:
            if not _is_number(each, 0, _PARTITION_MAX):
                raise BadOption(
                    f"option {option} has {_short(each)} for topic {topic}, expected a partition's number"
                )
            found.append(TopicPartition(topic, each))
    if not found:
        raise BadOption(f"option {option} names no partition, expected for example {_EXAMPLE_PARTITIONS}")
    return tuple(sorted(set(found)))


def _numbers(what: str, parsed: Any, example: str, low: int) -> dict[TopicPartition, int]:
    found = {}
    for topic, inner in _object(what, parsed, example).items():
        if not isinstance(inner, dict):
            raise BadOption(f"{what} has {_short(inner)} for topic {topic}, expected for example {example}")
        for partition, number in inner.items():
            if not (partition.isascii() and partition.isdigit() and int(partition) <= _PARTITION_MAX):
                raise BadOption(
                    f"{what} has a partition {partition!r} of topic {topic}, expected a number of at least 0"
                )
            if not _is_number(number, low, INT64_MAX):
                raise BadOption(
                    f"{what} has {_short(number)} for {topic}-{partition}, expected a whole number of at least {low}"
                )
            found[TopicPartition(topic, int(partition))] = number
    return found


def _parsed(option: str, text: str, expected: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise BadOption(f"option {option} is {_short(text)}, expected {expected}") from None


def _object(what: str, parsed: Any, example: str) -> dict[str, Any]:
    if not isinstance(parsed, dict):
        raise BadOption(f"{what} is {_short(parsed)}, expected for example {example}")
    return parsed


def _is_number(value: Any, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
