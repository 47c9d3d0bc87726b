"""Configs of topics and brokers: read, and changed incrementally."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from penstock.base.steps import Steps
from penstock.gateway.http.protocol.messages import Query, Request, Response, Routes, json
from penstock.gateway.http.protocol.parameters import topic_in
from penstock.gateway.http.protocol.settings_json import (
    BrokerSettingChanges,
    TopicSettingChanges,
    check_in_sync,
    texts,
)
from penstock.gateway.http.topics import check_settings
from penstock.gateway.shared.access import CLUSTER, TOPIC, Need, Rule
from penstock.gateway.shared.controller_call import check, decide
from penstock.gateway.shared.log_inspection import SOURCES
from penstock.handlers.support.context import Context
from penstock.metadata.acls import Operation
from penstock.metadata.config_table import BROKER_SETTINGS, TOPIC_SETTINGS
from penstock.metadata.configs import Described, Source, describe, inherited_setting
from penstock.metadata.controller.requests import ConfigChange, ConfigOp, IncrementalAlterConfigs
from penstock.metadata.image import ALL_BROKERS, Resource, ResourceType

ROUTES = Routes("configs")

DRY_RUN: Final = Query(
    "dry_run", bool, "Only validate: change nothing, and return the configs as they are.", default=False
)


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


class ConfigList(msgspec.Struct):
    configs: list[ConfigEntry]


class AlterTopicConfigsRequest(msgspec.Struct, forbid_unknown_fields=True):
    configs: TopicSettingChanges
    """New values by name; null removes what was set. Other configs stay unchanged."""


class AlterBrokerConfigsRequest(msgspec.Struct, forbid_unknown_fields=True):
    configs: BrokerSettingChanges
    """New values by name, for configs that can change while brokers run; null removes what was set."""


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


def _settings(context: Context, resource: Resource) -> Response:
    found = describe(resource, context.image, context.settings)
    return json(ConfigList([_shown(context, resource, each) for each in found]))


def _change(
    request: Request, context: Context, resource: Resource, changes: Mapping[str, Any], replicas: int
) -> Steps[None]:
    values = texts(resource, changes)
    check_in_sync("the cluster" if resource == ALL_BROKERS else "the topic", values, replicas)
    wanted = tuple(
        ConfigChange(name, ConfigOp.DELETE) if value is None else ConfigChange(name, ConfigOp.SET, value)
        for name, value in values.items()
    )
    change = IncrementalAlterConfigs({resource: wanted}, validate_only=request.query["dry_run"])
    results = yield from decide(context, change, request.session)
    check_settings(results[resource])
    check(results[resource], "the configs could not be changed")


@ROUTES.add(
    "GET",
    "/topics/{topic}/configs",
    "All configs of a topic, with the source of each value.",
    answer=ConfigList,
    errors=(404,),
    rule=Rule((Need(Operation.DESCRIBE_CONFIGS, TOPIC, "topic"),)),
)
def _of_topic(gateway: Any, request: Request) -> Response:
    context: Context = gateway.context
    topic = topic_in(context, request)
    return _settings(context, Resource(ResourceType.TOPIC, topic.name))


@ROUTES.add(
    "PATCH",
    "/topics/{topic}/configs",
    "Change configs of a topic.",
    query=(DRY_RUN,),
    body=AlterTopicConfigsRequest,
    answer=ConfigList,
    errors=(404, 409),
    rule=Rule((Need(Operation.ALTER_CONFIGS, TOPIC, "topic"),)),
)
def _change_topic(gateway: Any, request: Request) -> Steps[Response]:
    context: Context = gateway.context
    topic = topic_in(context, request)
    resource = Resource(ResourceType.TOPIC, topic.name)
    yield from _change(request, context, resource, request.body.configs, len(topic.partitions[0].replicas))
    return _settings(context, resource)


@ROUTES.add(
    "GET",
    "/cluster/configs",
    "All configs of this broker, with the source of each value.",
    answer=ConfigList,
    rule=Rule((Need(Operation.DESCRIBE_CONFIGS, CLUSTER),)),
)
def _of_broker(gateway: Any, _: Request) -> Response:
    context: Context = gateway.context
    return _settings(context, Resource(ResourceType.BROKER, str(context.node_id)))


@ROUTES.add(
    "PATCH",
    "/cluster/configs",
    "Change configs of all brokers at run time.",
    query=(DRY_RUN,),
    body=AlterBrokerConfigsRequest,
    answer=ConfigList,
    errors=(409,),
    rule=Rule((Need(Operation.ALTER_CONFIGS, CLUSTER),)),
)
def _change_brokers(gateway: Any, request: Request) -> Steps[Response]:
    context: Context = gateway.context
    yield from _change(request, context, ALL_BROKERS, request.body.configs, len(context.image.brokers))
    return _of_broker(gateway, request)
