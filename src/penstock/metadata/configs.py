"""Effective settings: their sources, their precedence, and the validation of changes.

For a topic its own setting comes first, then the broker setting that supplies its default: set dynamically for this
broker, set dynamically for all brokers, in the broker's file, and last the built-in default.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from itertools import dropwhile
from math import isnan
from typing import NamedTuple

from penstock.base.errors import ErrorCode
from penstock.base.settings import BadSetting, LogSettings

from .config_table import (
    BROKER_SETTINGS,
    EXPECTED,
    TOPIC_SETTINGS,
    ConfigType,
    Mode,
    Setting,
    unit_ms,
)
from .image import ALL_BROKERS, ClusterImage, Resource, ResourceType

_LOG_SETTINGS = frozenset(each.metadata["name"] for each in fields(LogSettings))
_NUMBERS = (ConfigType.INT, ConfigType.SHORT, ConfigType.LONG, ConfigType.DOUBLE)


class Source(IntEnum):
    """The source of a value, as in the protocol."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


class Synonym(NamedTuple):
    name: str
    value: str | None
    source: Source


class Described(NamedTuple):
    name: str
    value: str | None
    source: Source
    synonyms: tuple[Synonym, ...]
    """All sources of a value, highest precedence first."""
    type: ConfigType
    read_only: bool
    sensitive: bool
    documentation: str


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """Settings of one broker: its file and, through the image, dynamic settings."""

    broker_id: int | None = None
    """None for the cluster-wide defaults of brokers."""
    static: Mapping[str, str] | None = field(default=None, repr=False)
    """May hold passwords."""

    def synonyms(self, setting_names: tuple[str, ...], image: ClusterImage) -> Iterator[Synonym]:
        """Yield this broker's values of the settings, highest precedence first."""
        if self.broker_id is not None:
            own = image.config(Resource(ResourceType.BROKER, str(self.broker_id)))
            yield from _found(setting_names, own, Source.DYNAMIC_BROKER)
        yield from _found(setting_names, image.config(ALL_BROKERS), Source.DYNAMIC_DEFAULT_BROKER)
        yield from _found(setting_names, self.static or {}, Source.STATIC_BROKER)
        for name in setting_names:
            default = BROKER_SETTINGS[name].default
            if default is not None:
                yield Synonym(name, default, Source.DEFAULT)


ANY_BROKER = BrokerSettings()


def _found(names: tuple[str, ...], values: Mapping[str, str], source: Source) -> Iterator[Synonym]:
    for name in names:
        if name in values:
            yield Synonym(name, values[name], source)


def topic_setting(
    topic: str, name: str, image: ClusterImage, broker: BrokerSettings = ANY_BROKER
) -> str | None:
    """Return the effective value of a topic setting, as text."""
    own = image.config(Resource(ResourceType.TOPIC, topic)).get(name)
    return inherited_setting(name, image, broker) if own is None else own


def inherited_setting(name: str, image: ClusterImage, broker: BrokerSettings = ANY_BROKER) -> str | None:
    """Return the value of a topic setting for topics that do not set it, as text."""
    setting = TOPIC_SETTINGS[name]
    for synonym in broker.synonyms(setting.brokers, image):
        return _in_topic_units(setting, synonym)
    return setting.default


def broker_setting(name: str, image: ClusterImage, broker: BrokerSettings = ANY_BROKER) -> str | None:
    """Return the effective value of a broker setting, as text."""
    for synonym in broker.synonyms((name,), image):
        return synonym.value
    return None


def broker_flag(name: str, image: ClusterImage, broker: BrokerSettings = ANY_BROKER) -> bool:
    """Return whether a boolean broker setting is true."""
    return _is_true(broker_setting(name, image, broker))


def _is_true(text: str | None) -> bool:
    return (text or "").strip().lower() == "true"


def min_insync_replicas(topic: str, image: ClusterImage, broker: BrokerSettings = ANY_BROKER) -> int:
    return int(topic_setting(topic, "min.insync.replicas", image, broker) or 1)


def unclean_election_allowed(topic: str, image: ClusterImage, broker: BrokerSettings = ANY_BROKER) -> bool:
    return _is_true(topic_setting(topic, "unclean.leader.election.enable", image, broker))


def log_defaults(image: ClusterImage, broker: BrokerSettings = ANY_BROKER) -> LogSettings:
    """Return the log settings of topics without settings of their own."""
    texts = {}
    for name in _LOG_SETTINGS:
        setting = TOPIC_SETTINGS[name]
        synonym = next(broker.synonyms(setting.brokers, image), None)
        if synonym is not None and synonym.source is not Source.DEFAULT:
            texts[name] = _in_topic_units(setting, synonym)
    return LogSettings.from_text(texts)


def log_settings(
    topic: str,
    image: ClusterImage,
    broker: BrokerSettings = ANY_BROKER,
    defaults: LogSettings | None = None,
) -> LogSettings:
    """Return the log settings of a topic. With many topics, pass the `log_defaults`, which are the same for all."""
    own = image.config(Resource(ResourceType.TOPIC, topic))
    texts = {name: value for name, value in own.items() if name in _LOG_SETTINGS}
    settings = log_defaults(image, broker) if defaults is None else defaults
    if texts:
        settings = LogSettings.from_text(texts, settings)
    if "internal.segment.bytes" in own:  # any size: every batch may have a segment of its own
        settings = replace(settings, segment_bytes=int(own["internal.segment.bytes"]))
    return settings


def _in_topic_units(setting: Setting, synonym: Synonym) -> str:
    value = synonym.value or ""
    unit = unit_ms(synonym.name) if len(setting.brokers) > 1 else 1
    if unit == 1 or int(value) < 0:  # -1 hours is -1 milliseconds: forever
        return value
    return str(int(value) * unit)


def describe(
    resource: Resource,
    image: ClusterImage,
    broker: BrokerSettings = ANY_BROKER,
    names: frozenset[str] | None = None,
) -> list[Described]:
    """Describe all settings of a topic or a broker, or the requested ones; for the brokers' default, those set."""
    if resource.type == ResourceType.TOPIC:
        described = [
            _describe_topic(setting, resource.name, image, broker) for setting in _shown(image, resource)
        ]
    elif resource == ALL_BROKERS:
        described = [
            _described(BROKER_SETTINGS[name], (Synonym(name, value, Source.DYNAMIC_DEFAULT_BROKER),))
            for name, value in sorted(image.config(resource).items())
            if name in BROKER_SETTINGS
        ]
    elif resource.type == ResourceType.BROKER:
        described = [
            _described(setting, _from_own_name(name, broker.synonyms(_broker_synonyms(name), image)))
            for name, setting in sorted(BROKER_SETTINGS.items())
        ]
    else:
        described = []
    return [each for each in described if names is None or each.name in names]


def _shown(image: ClusterImage, resource: Resource) -> list[Setting]:
    """Describe all settings of a topic; internal settings only if they are set."""
    own = image.config(resource)
    return [
        TOPIC_SETTINGS[name]
        for name in sorted(TOPIC_SETTINGS)
        if not name.startswith("internal.") or name in own
    ]


def _describe_topic(setting: Setting, topic: str, image: ClusterImage, broker: BrokerSettings) -> Described:
    own = image.config(Resource(ResourceType.TOPIC, topic)).get(setting.name)
    behind = tuple(broker.synonyms(setting.brokers, image))
    synonyms = _from_own_name(setting.brokers[0], behind) if behind else ()
    if own is not None:
        synonyms = (Synonym(setting.name, own, Source.TOPIC), *synonyms)
        value: str | None = own
    else:
        value = _in_topic_units(setting, behind[0]) if behind else setting.default
    return _described(setting, synonyms)._replace(value=value)


def _from_own_name(name: str, synonyms: Iterable[Synonym]) -> tuple[Synonym, ...]:
    """List synonyms as Kafka does: those before the name itself are left out (`ConfigHelper.configSynonyms`). If only
    log.retention.hours has a value, the default, log.retention.ms has no synonyms and a default source."""
    return tuple(dropwhile(lambda each: each.name != name, synonyms))


def _broker_synonyms(name: str) -> tuple[str, ...]:
    """Return all names of one setting, such as log.retention.ms, .minutes and .hours."""
    for topic in TOPIC_SETTINGS.values():
        if len(topic.brokers) > 1 and name in topic.brokers:
            return topic.brokers
    return (name,)


def _described(setting: Setting, synonyms: tuple[Synonym, ...]) -> Described:
    own = [each for each in synonyms if each.name == setting.name]
    return Described(
        name=setting.name,
        value=own[0].value if own else None,
        source=synonyms[0].source if synonyms else Source.DEFAULT,
        synonyms=synonyms,
        type=setting.type,
        read_only=setting.mode is Mode.READ_ONLY,
        sensitive=setting.is_secret,
        documentation=setting.documentation,
    )


def validate(resource: Resource, values: Mapping[str, str]) -> None:
    """Raise if a setting may not be set on a topic or, dynamically, on a broker."""
    if resource.type == ResourceType.TOPIC:
        for name, text in values.items():
            if name not in TOPIC_SETTINGS:
                raise BadSetting(f"unknown topic setting {name}")
            check(TOPIC_SETTINGS[name], text)
        _check_together(values)
    elif resource.type == ResourceType.BROKER:
        for name, text in values.items():
            if name in TOPIC_SETTINGS and name not in BROKER_SETTINGS:
                continue  # Kafka keeps it, and it has no effect
            _check_dynamic(name, resource)
            try:
                check(BROKER_SETTINGS[name], text)
            except BadSetting as refusal:  # Kafka's code for a broker; for a topic it is INVALID_CONFIG
                raise BadSetting(str(refusal), ErrorCode.INVALID_REQUEST) from None
    else:
        raise BadSetting(
            f"settings of resource type {resource.type} are not supported", ErrorCode.INVALID_REQUEST
        )


def validate_static(values: Mapping[str, str]) -> None:
    """Raise if a setting may not be in a broker's file."""
    for name, text in values.items():
        if name not in BROKER_SETTINGS:
            raise BadSetting(f"unknown setting {name}")
        check(BROKER_SETTINGS[name], text)


def _check_dynamic(name: str, resource: Resource) -> None:
    if name not in BROKER_SETTINGS:
        raise BadSetting(f"unknown broker setting {name}")
    mode = BROKER_SETTINGS[name].mode
    if mode is Mode.READ_ONLY:
        raise BadSetting(f"{name} cannot be changed while the broker runs", ErrorCode.INVALID_REQUEST)
    if mode is Mode.PER_BROKER and resource == ALL_BROKERS:
        raise BadSetting(f"{name} is set for one broker at a time, not for all", ErrorCode.INVALID_REQUEST)


def _check_together(values: Mapping[str, str]) -> None:
    lags = [
        values.get(name) or TOPIC_SETTINGS[name].default
        for name in ("min.compaction.lag.ms", "max.compaction.lag.ms")
    ]
    least, most = (int(lag or 0) for lag in lags)
    if least > most:
        raise BadSetting(
            f"min.compaction.lag.ms is {least}, more than max.compaction.lag.ms, which is {most}"
        )


def check(setting: Setting, text: str) -> None:
    """Raise if a setting cannot have a value."""
    name, value = setting.name, text.strip()
    if setting.type is ConfigType.BOOLEAN:
        if value.lower() not in ("true", "false"):
            raise BadSetting(f"{name} is {text!r}, expected true or false")
        if setting.choices and value.lower() not in setting.choices:
            raise BadSetting(f"{name} is {text!r}, expected {setting.choices[0]}, the only supported value")
    elif setting.type in _NUMBERS:
        _check_number(setting, value)
    elif setting.type is ConfigType.LIST:
        parts = [part.strip() for part in value.split(",") if part.strip()]
        is_missing = not parts and not setting.may_be_empty
        if setting.choices and (is_missing or not set(parts) <= set(setting.choices)):
            raise BadSetting(f"{name} is {text!r}, expected a list of {', '.join(setting.choices)}")
    elif setting.choices and text not in setting.choices:
        raise BadSetting(f"{name} is {text!r}, expected one of {', '.join(setting.choices)}")
    if setting.pattern is not None and not re.fullmatch(setting.pattern, value):
        raise BadSetting(f"{name} is {text!r}, expected {EXPECTED[setting.pattern]}")


def _check_number(setting: Setting, value: str) -> None:
    whole = setting.type is not ConfigType.DOUBLE
    try:
        if "_" in value:
            raise ValueError(value)  # digits in groups are Python's, not Kafka's
        number = int(value) if whole else float(value)
    except ValueError as error:
        raise BadSetting(f"{setting.name} is {value!r}, expected a number") from error
    low, high = setting.bounds
    if (low is not None and number < low) or (high is not None and number > high) or isnan(number):
        raise BadSetting(f"{setting.name} is {value}, expected {_span(low, high)}")
    if setting.name == "compression.gzip.level" and number == 0:
        raise BadSetting("compression.gzip.level is 0, expected 1 to 9, or -1 for gzip's own default")


def _span(low: float | None, high: float | None) -> str:
    if high is None:
        return f"{low} or more"
    return f"{low} to {high}"


def is_list(resource: Resource, name: str) -> bool:
    """Return whether it is a list, with values that can be appended and subtracted."""
    table = TOPIC_SETTINGS if resource.type == ResourceType.TOPIC else BROKER_SETTINGS
    return name in table and table[name].type is ConfigType.LIST


def default_of(resource: Resource, name: str) -> str | None:
    table = TOPIC_SETTINGS if resource.type == ResourceType.TOPIC else BROKER_SETTINGS
    return table[name].default
