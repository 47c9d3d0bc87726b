"""A config of a topic or broker, as it is shown over HTTP and told to other brokers."""

import msgspec

from penstock.gateway.shared.log_inspection import SOURCES
from penstock.handlers.support.context import Context
from penstock.metadata.config_table import BROKER_SETTINGS, TOPIC_SETTINGS
from penstock.metadata.configs import Described, Source, describe, inherited_setting
from penstock.metadata.image import Resource, ResourceType


class ConfigSynonym(msgspec.Struct):
    name: str
    value: str | None
    """null if it is sensitive."""
    source: str


class ConfigEntry(msgspec.Struct):
    name: str
    value: str | None
    """null if nothing is set, or if the value is sensitive."""
    source: str
    """Where it is set: `topic`, `broker` or `all_brokers` (at run time), `file` (at the node's start), `default`."""
    is_default: bool
    read_only: bool
    """Whether a change needs a restart of the node."""
    type: str
    documentation: str
    default: str | None = None
    """The value that applies to a topic that does not set it, or to a broker without a value that was set at run time;
    null if there is none, or if it is sensitive."""
    synonyms: list[ConfigSynonym] = []
    """All values that are set for it, in order of precedence: the first applies."""
    choices: list[str] = []
    """Allowed values, or allowed items of a list; empty if any value of the type is allowed."""
    min: float | None = None
    max: float | None = None
    """Limits of a number."""
    has_effect: bool = True
    """Whether the node acts on it. Others are stored and shown, for Kafka's tools."""


_AT_RUN_TIME = (Source.DYNAMIC_BROKER, Source.DYNAMIC_DEFAULT_BROKER)


def _shown(context: Context, resource: Resource, setting: Described) -> ConfigEntry:
    if resource.type == ResourceType.TOPIC:
        known = TOPIC_SETTINGS[setting.name]
        default = inherited_setting(setting.name, context.image, context.settings)
    else:
        known = BROKER_SETTINGS[setting.name]
        same = (each for each in setting.synonyms if each.name == setting.name)
        default = next((each.value for each in same if each.source not in _AT_RUN_TIME), known.default)
    low, high = known.bounds
    return ConfigEntry(
        setting.name,
        None if setting.sensitive else setting.value,
        SOURCES[setting.source],
        setting.source is Source.DEFAULT,
        setting.read_only,
        setting.type.name.lower(),
        setting.documentation,
        None if setting.sensitive else default,
        [
            ConfigSynonym(each.name, None if setting.sensitive else each.value, SOURCES[each.source])
            for each in setting.synonyms
        ],
        list(known.choices),
        low,
        high,
        known.acted,
    )


def config_entries(context: Context, resource: Resource) -> list[ConfigEntry]:
    """The configs of a topic, or of this broker."""
    found = describe(resource, context.image, context.settings)
    return [_shown(context, resource, each) for each in found]
