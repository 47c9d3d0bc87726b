"""Configs of topics and brokers: read, and changed incrementally."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from penstock.base.steps import Steps
from penstock.gateway.http.cluster import broker_in
from penstock.gateway.http.protocol.messages import Query, Request, Response, Routes, json
from penstock.gateway.http.protocol.parameters import topic_in
from penstock.gateway.http.protocol.settings_json import (
    BrokerSettingChanges,
    OneBrokerSettingChanges,
    TopicSettingChanges,
    check_in_sync,
    texts,
)
from penstock.gateway.http.topics import check_settings
from penstock.gateway.peer_rpc.administration import ask_broker
from penstock.gateway.peer_rpc.messages import GetBrokerConfigs
from penstock.gateway.shared.access import CLUSTER, TOPIC, Need, Rule
from penstock.gateway.shared.config_entries import ConfigEntry, config_entries
from penstock.gateway.shared.controller_call import check, decide
from penstock.handlers.support.context import Context
from penstock.metadata.acls import Operation
from penstock.metadata.controller.requests import ConfigChange, ConfigOp, IncrementalAlterConfigs
from penstock.metadata.image import ALL_BROKERS, Resource, ResourceType

ROUTES = Routes("configs")

DRY_RUN: Final = Query(
    "dry_run", bool, "Only validate: change nothing, and return the configs as they are.", default=False
)


class ConfigList(msgspec.Struct):
    configs: list[ConfigEntry]


class AlterTopicConfigsRequest(msgspec.Struct, forbid_unknown_fields=True):
    configs: TopicSettingChanges
    """New values by name; null removes what was set. Other configs stay unchanged."""


class AlterBrokerConfigsRequest(msgspec.Struct, forbid_unknown_fields=True):
    configs: BrokerSettingChanges
    """New values by name, for configs that can change while brokers run; null removes what was set."""


class AlterOneBrokerConfigsRequest(msgspec.Struct, forbid_unknown_fields=True):
    configs: OneBrokerSettingChanges
    """New values by name, for configs that can change while the broker runs; null removes what was set."""


def _settings(context: Context, resource: Resource) -> Response:
    return json(ConfigList(config_entries(context, resource)))


def _change(
    request: Request, context: Context, resource: Resource, changes: Mapping[str, Any], replicas: int
) -> Steps[None]:
    values = texts(resource, changes)
    what = "the topic" if resource.type == ResourceType.TOPIC else "the cluster"
    check_in_sync(what, values, replicas)
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


@ROUTES.add(
    "GET",
    "/brokers/{broker}/configs",
    "All configs of a broker, with the source of each value.",
    answer=ConfigList,
    errors=(404,),
    rule=Rule((Need(Operation.DESCRIBE_CONFIGS, CLUSTER),)),
)
def _of_one_broker(gateway: Any, request: Request) -> Steps[Response]:
    context: Context = gateway.context
    entries = yield from ask_broker(
        context, broker_in(context, request), GetBrokerConfigs(context.metadata_end)
    )
    return json(ConfigList(entries))


@ROUTES.add(
    "PATCH",
    "/brokers/{broker}/configs",
    "Change configs of one broker at run time.",
    query=(DRY_RUN,),
    body=AlterOneBrokerConfigsRequest,
    answer=ConfigList,
    errors=(404, 409),
    rule=Rule((Need(Operation.ALTER_CONFIGS, CLUSTER),)),
)
def _change_one_broker(gateway: Any, request: Request) -> Steps[Response]:
    context: Context = gateway.context
    broker_id = broker_in(context, request)
    resource = Resource(ResourceType.BROKER, str(broker_id))
    yield from _change(request, context, resource, request.body.configs, len(context.image.brokers))
    return (yield from _of_one_broker(gateway, request))
