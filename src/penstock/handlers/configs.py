"""Configs of topics and brokers.

    DescribeConfigs 1 to 4             values, sources and documentation of configs
    ListConfigResources 0 to 1         resources that have configs

Kafka also has configs of loggers (BROKER_LOGGER), groups and client metrics; these are not supported, and get
INVALID_REQUEST. Both APIs need DESCRIBE_CONFIGS. `config_changes` changes configs.
"""

from collections.abc import Callable
from typing import Any

from penstock.base.errors import ErrorCode, KafkaError
from penstock.metadata.acls import CLUSTER_NAME, AclResourceType, Operation
from penstock.metadata.configs import Described, describe
from penstock.metadata.controller.requests import Result
from penstock.metadata.controller.topics import check_name
from penstock.metadata.image import ClusterImage, Resource, ResourceType
from penstock.wire import Api

from .support.context import Call, Context
from .support.response_fields import DENIED_CLUSTER, DENIED_TOPIC, NO_THROTTLE, refusal

DENIED_GROUP = Result(ErrorCode.GROUP_AUTHORIZATION_FAILED, "not authorized for this group")


def denial(context: Context, call: Call, operation: Operation, resource: Resource) -> Result | None:
    """Why this client is not authorized for a resource's configs; None if it is."""
    match resource.type:
        case ResourceType.TOPIC:
            on, name, denied = AclResourceType.TOPIC, resource.name, DENIED_TOPIC
        case ResourceType.GROUP:
            on, name, denied = AclResourceType.GROUP, resource.name, DENIED_GROUP
        case _:
            on, name, denied = AclResourceType.CLUSTER, CLUSTER_NAME, DENIED_CLUSTER
    return None if context.authorize(call.session, operation, on, name) else denied


def check_broker(context: Context, resource: Resource) -> None:
    """Reject another broker's resource: its configuration file is not known here."""
    if resource.name and not resource.name.removeprefix("-").isdecimal():
        raise KafkaError(f"{resource.name!r} is not a broker id.", ErrorCode.INVALID_REQUEST)
    if resource.name and int(resource.name) != context.node_id:
        raise KafkaError(
            f"This is broker {context.node_id}; send requests for broker {resource.name} to that broker.",
            ErrorCode.INVALID_REQUEST,
        )


def check_kind(resource: Resource) -> None:
    if resource.type not in (ResourceType.TOPIC, ResourceType.BROKER):
        known = {each.value: each.name for each in ResourceType}
        raise KafkaError(
            f"Configs of resources of type {known.get(resource.type, resource.type)} are not supported.",
            ErrorCode.INVALID_REQUEST,
        )


def describe_configs(context: Context, call: Call) -> Any:
    """DescribeConfigs 1 to 4: the configs of topics, of this broker, and the cluster-wide defaults of brokers.

    Each config has its value and source, and on request its synonyms and documentation. A topic or broker has all its
    configs, or those that are named; the broker resource with an empty name has the dynamic defaults of all brokers.
    A broker describes only itself. An unknown topic gets UNKNOWN_TOPIC_OR_PARTITION. Equal resources get one result.

    Version notes: 1 has synonyms and sources; 3 types and documentation; 4 is flexible.
    """
    requested = {}
    for each in call.message.resources:
        keys = None if each.configuration_keys is None else tuple(each.configuration_keys)
        requested[Resource(each.resource_type, each.resource_name), keys] = frozenset(keys) if keys else None
    rows = []
    for (resource, _), names in requested.items():
        result, described = Result(), list[Described]()
        try:
            result = denial(context, call, Operation.DESCRIBE_CONFIGS, resource) or result
            if result.code is ErrorCode.NONE:
                described = _settings(context, resource, names)
        except KafkaError as error:
            result = refusal(error)
        rows.append(
            call.make.DescribeConfigsResult(
                error_code=result.code,
                error_message=result.message,
                resource_type=resource.type,
                resource_name=resource.name,
                configs=tuple(_described(call, each) for each in described),
            )
        )
    return call.make.DescribeConfigsResponse(throttle_time=NO_THROTTLE, results=tuple(rows))


def _settings(context: Context, resource: Resource, names: frozenset[str] | None) -> list[Described]:
    check_kind(resource)
    if resource.type == ResourceType.BROKER:
        check_broker(context, resource)
    else:
        check_name(resource.name)
        if resource.name not in context.image.topics:
            raise KafkaError(f"Topic {resource.name} does not exist.", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return describe(resource, context.image, context.settings, names)


def _described(call: Call, setting: Described) -> Any:
    make, request = call.make, call.message
    synonyms = [
        make.DescribeConfigsSynonym(
            name=each.name, value=None if setting.sensitive else each.value, source=each.source
        )
        for each in (setting.synonyms if request.include_synonyms else ())
    ]
    wants_documentation = getattr(request, "include_documentation", False)
    return make.DescribeConfigsResourceResult(
        name=setting.name,
        value=None if setting.sensitive else setting.value,
        read_only=setting.read_only,
        config_source=setting.source,
        is_sensitive=setting.sensitive,
        synonyms=tuple(synonyms),
        config_type=setting.type,
        documentation=setting.documentation if wants_documentation else None,
    )


_LISTED = (
    ResourceType.TOPIC,
    ResourceType.BROKER,
    ResourceType.BROKER_LOGGER,
    ResourceType.CLIENT_METRICS,
    ResourceType.GROUP,
)


def list_config_resources(context: Context, call: Call) -> Any:
    """ListConfigResources 0 to 1: resources that have configs, by type (KIP-1142).

    All topics and registered brokers; groups and client metrics with configs in the metadata log, which this broker
    cannot set; no loggers. A type that the version does not have gets UNSUPPORTED_VERSION, as in Kafka.

    Version notes: 0 was ListClientMetricsResources, and lists client metrics only; 1 adds types.
    """
    make = call.make
    code, found = ErrorCode.NONE, list[Resource]()
    known = _LISTED if call.version >= 1 else (ResourceType.CLIENT_METRICS,)
    kinds = getattr(call.message, "resource_types", ()) or known
    if not context.authorize(call.session, Operation.DESCRIBE_CONFIGS, AclResourceType.CLUSTER, CLUSTER_NAME):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    elif any(kind not in known for kind in kinds):
        code = ErrorCode.UNSUPPORTED_VERSION
    else:
        found = [resource for kind in known if kind in kinds for resource in _resources(context.image, kind)]
    rows = [make.ConfigResource(resource_name=each.name, resource_type=each.type) for each in found]
    return make.ListConfigResourcesResponse(
        throttle_time=NO_THROTTLE, error_code=code, config_resources=tuple(rows)
    )


def _resources(image: ClusterImage, kind: ResourceType) -> list[Resource]:
    match kind:
        case ResourceType.TOPIC:
            names = sorted(image.topics)
        case ResourceType.BROKER:
            names = [str(broker) for broker in sorted(image.brokers)]
        case ResourceType.GROUP | ResourceType.CLIENT_METRICS:
            names = sorted(resource.name for resource in image.configs if resource.type == kind)
        case _:
            names = []
    return [Resource(kind, name) for name in names]


HANDLERS: dict[Api, Callable[[Context, Call], Any]] = {
    Api.DESCRIBE_CONFIGS: describe_configs,
    Api.LIST_CONFIG_RESOURCES: list_config_resources,
}
