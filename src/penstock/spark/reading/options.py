"""Parses and checks the source's options, before a broker is used.

Names are those of Spark's Kafka source, case-insensitive: a job can switch by changing the format's name. Unknown
options are errors (see `option_names`).

`read_options` checks the rules of every read; `for_batch` and `for_stream` those of batches or streams.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from penstock.base.ids import TimestampMs, TopicPartition
from penstock.client.offsets import READ_COMMITTED, READ_UNCOMMITTED
from penstock.client.settings import Address, ClientSettings
from penstock.spark.errors import BadOption
from penstock.spark.options import INT32_MAX, OptionValues
from penstock.spark.reading.offset_json import read_assignment, read_offsets, read_times
from penstock.spark.reading.option_names import SOURCE

# -- model --------------------------------------------------------------------------------------------


class SubscriptionKind(StrEnum):
    """How topics are chosen. The values are the options' names."""

    TOPICS = "subscribe"
    PATTERN = "subscribePattern"
    PARTITIONS = "assign"


class Subscription(NamedTuple):
    by: SubscriptionKind
    topics: tuple[str, ...] = ()
    pattern: str = ""
    """Matches a topic's whole name."""
    partitions: tuple[TopicPartition, ...] = ()

    def __str__(self) -> str:
        if self.by is SubscriptionKind.PATTERN:
            return self.pattern
        return ",".join(self.topics or sorted({each.topic for each in self.partitions}))


class LimitKind(StrEnum):
    """How the start or the end of a range is given."""

    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSETS = "offsets"
    TIMES = "times"
    TIME = "time"


class Limit(NamedTuple):
    """The start or the end of a range."""

    edge: LimitKind
    option: str
    """Name of the option, for errors."""
    values: Mapping[TopicPartition, int] = {}
    """Offsets (-2 earliest, -1 latest), or times in ms, by partition."""
    time_ms: TimestampMs = 0


class NoMatch(StrEnum):
    """Start by time if no record is that late: startingOffsetsByTimestampStrategy."""

    ERROR = "error"
    LATEST = "latest"


START_EARLIEST: Final = Limit(LimitKind.EARLIEST, "startingOffsets")
START_LATEST: Final = Limit(LimitKind.LATEST, "startingOffsets")
STOP_LATEST: Final = Limit(LimitKind.LATEST, "endingOffsets")

OLDEST: Final = -2
NEWEST: Final = -1
"""Special values in offsets by partition, as in Spark's source."""


@dataclass(frozen=True)
class SourceOptions:
    servers: tuple[Address, ...]
    subscription: Subscription
    start: Limit | None = None
    """None: earliest for a batch, latest for a stream."""
    stop: Limit | None = None
    no_match: NoMatch = NoMatch.ERROR
    rows_max: int | None = None
    rows_min: int | None = None
    """A micro-batch waits for this many offsets, but no longer than trigger_delay_ms_max."""
    trigger_delay_ms_max: int = 15 * 60_000
    tasks_min: int | None = None
    task_rows_max: int | None = None
    fails_on_data_loss: bool = True
    with_headers: bool = False
    isolation_level: int = READ_UNCOMMITTED
    group: str | None = None
    """None: a name is derived; empty: no position is committed."""
    group_prefix: str = "spark"
    client: ClientSettings = field(default_factory=ClientSettings)
    fetch_bytes_max: int = 8 * 2**20
    """Size of a Fetch. Large, because a task reads one partition from start to end."""
    fetch_wait_ms_max: int = 500
    failing_ms_max: int = 120_000
    """How long a task retries: kafkaConsumer.pollTimeoutMs; the default is Spark's network timeout."""


GROUP_CHARACTERS_MAX: Final = 249


# -- parsing ------------------------------------------------------------------------------------------


def read_options(options: Mapping[str, str]) -> SourceOptions:
    """Parse the options of a reader; raise BadOption if one is unknown or invalid."""
    SOURCE.check(options)
    values = OptionValues(options)
    found = SourceOptions(
        servers=values.servers(),
        subscription=read_subscription(options),
        start=read_limit(options, "starting"),
        stop=read_limit(options, "ending"),
        no_match=read_no_match(options),
        rows_max=values.count("maxOffsetsPerTrigger"),
        rows_min=values.count("minOffsetsPerTrigger"),
        trigger_delay_ms_max=values.duration_ms("maxTriggerDelay", SourceOptions.trigger_delay_ms_max),
        tasks_min=values.count("minPartitions", INT32_MAX),
        task_rows_max=values.count("maxRecordsPerPartition"),
        fails_on_data_loss=values.flag("failOnDataLoss", True),
        with_headers=values.flag("includeHeaders", False),
        isolation_level=read_isolation_level(options),
        group=_group(values),
        group_prefix=values.text("groupIdPrefix") or SourceOptions.group_prefix,
        client=values.client("kafka.default.api.timeout.ms"),
        fetch_bytes_max=_fetch_bytes_max(values),
        fetch_wait_ms_max=values.size("kafka.fetch.max.wait.ms", SourceOptions.fetch_wait_ms_max),
        failing_ms_max=values.size("kafkaConsumer.pollTimeoutMs", SourceOptions.failing_ms_max),
    )
    if found.rows_min is not None and found.rows_max is not None and found.rows_min > found.rows_max:
        raise BadOption(
            f"option minOffsetsPerTrigger is {found.rows_min}, expected at most maxOffsetsPerTrigger, "
            f"{found.rows_max}"
        )
    return found


def for_batch(options: SourceOptions) -> SourceOptions:
    """Check the rules of a batch: it does not start at the end, nor end at the start."""
    start, stop = options.start or START_EARLIEST, options.stop or STOP_LATEST
    check_range(start, stop)
    return options


def check_range(start: Limit, stop: Limit) -> None:
    if start.edge is LimitKind.LATEST:
        raise BadOption(
            "option startingOffsets is latest, expected earliest or offsets: a batch would be empty"
        )
    if stop.edge is LimitKind.EARLIEST:
        raise BadOption(
            "option endingOffsets is earliest, expected latest or offsets: a batch would be empty"
        )
    for limit, wrong, name in ((start, NEWEST, "-1 (latest)"), (stop, OLDEST, "-2 (earliest)")):
        if limit.edge is LimitKind.OFFSETS:
            for partition, offset in limit.values.items():
                if offset == wrong:
                    raise BadOption(
                        f"option {limit.option} has {name} for {partition}, which a batch cannot use"
                    )


def for_stream(options: SourceOptions) -> SourceOptions:
    """Check the rules of a stream: it has no end."""
    if options.stop is not None:
        raise BadOption(f"option {options.stop.option} is not for streams: a stream has no end")
    return options


def read_subscription(options: Mapping[str, str]) -> Subscription:
    """One of subscribe, subscribePattern and assign."""
    values = OptionValues(options)
    given = [by for by in SubscriptionKind if values.text(by) is not None]
    choice = ", ".join(SubscriptionKind)
    if not given:
        raise BadOption(f"no topic is named, expected one of the options {choice}")
    if len(given) > 1:
        raise BadOption(f"options {' and '.join(given)} are given, expected only one of {choice}")
    by, text = given[0], (values.text(given[0]) or "").strip()
    if by is SubscriptionKind.TOPICS:
        topics = tuple(dict.fromkeys(each.strip() for each in text.split(",") if each.strip()))
        if not topics:
            raise BadOption(f"option subscribe is {text!r}, expected topic names, separated by commas")
        return Subscription(by, topics=topics)
    if by is SubscriptionKind.PATTERN:
        if not text:
            raise BadOption("option subscribePattern is empty, expected a regular expression")
        try:
            re.compile(text)
        except re.error as error:
            raise BadOption(
                f"option subscribePattern is {text!r}, which is not a regular expression: {error}"
            ) from None
        return Subscription(by, pattern=text)
    return Subscription(by, partitions=read_assignment(SubscriptionKind.PARTITIONS, text))


def read_limit(options: Mapping[str, str], side: str) -> Limit | None:
    """The limit `starting` or `ending`: a time for all, times by partition, or offsets, in this order."""
    values = OptionValues(options)
    one_time, times, offsets = f"{side}Timestamp", f"{side}OffsetsByTimestamp", f"{side}Offsets"
    time_ms = values.time_ms(one_time)
    if time_ms is not None:
        return Limit(LimitKind.TIME, one_time, time_ms=time_ms)
    text = values.text(times)
    if text is not None:
        return Limit(LimitKind.TIMES, times, values=read_times(times, text))
    text = values.text(offsets)
    if text is None:
        return None
    word = text.strip().lower()
    if word in (LimitKind.EARLIEST, LimitKind.LATEST):
        return Limit(LimitKind(word), offsets)
    return Limit(LimitKind.OFFSETS, offsets, values=read_offsets(offsets, text))


def read_no_match(options: Mapping[str, str]) -> NoMatch:
    values = OptionValues(options)
    return NoMatch(
        values.choice("startingOffsetsByTimestampStrategy", [each.value for each in NoMatch]) or "error"
    )


def read_isolation_level(options: Mapping[str, str]) -> int:
    """Kafka's default: everything, of open and aborted transactions too."""
    values = OptionValues(options)
    levels = {"read_uncommitted": READ_UNCOMMITTED, "read_committed": READ_COMMITTED}
    found = {
        levels[word]
        for name in ("isolation.level", "kafka.isolation.level")
        if (word := values.choice(name, levels))
    }
    if len(found) > 1:
        raise BadOption("options isolation.level and kafka.isolation.level differ, expected one of them")
    return found.pop() if found else READ_UNCOMMITTED


def _group(values: "OptionValues") -> str | None:
    group = values.text("group")
    name = values.text("kafka.group.id") if group is None else group
    if name is not None and len(name) > GROUP_CHARACTERS_MAX:
        raise BadOption(f"option group has {len(name)} characters, expected at most {GROUP_CHARACTERS_MAX}")
    return name


def _fetch_bytes_max(values: "OptionValues") -> int:
    limits = [
        values.count(f"kafka.{name}", INT32_MAX) for name in ("fetch.max.bytes", "max.partition.fetch.bytes")
    ]
    return min((each for each in limits if each is not None), default=SourceOptions.fetch_bytes_max)
