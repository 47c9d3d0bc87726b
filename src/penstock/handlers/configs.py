"""Settings shown: DescribeConfigs and ListConfigResources.

What has settings here are topics and brokers. Kafka also has them for its loggers (BROKER_LOGGER), for groups and for
client metrics; those are refused with INVALID_REQUEST, as Kafka refuses kinds of resources that it does not know.
Levels of logging are the node's own affair, and not set over the wire.
"""

from collections.abc import Callable
from typing import Any

from penstock.base.errors import ErrorCode, KafkaError
from penstock.metadata import ClusterImage, Resource, ResourceType, Result, describe
from penstock.metadata.configs import Described
from penstock.metadata.controller.topics import check_name
from penstock.wire import Api

from .support.context import CLUSTER_NAME, AclResourceType, Call, Context, Operation
from .support.response_fields import DENIED_CLUSTER, DENIED_TOPIC, NO_THROTTLE, refusal

DENIED_GROUP = Result(ErrorCode.GROUP_AUTHORIZATION_FAILED, "not authorized for this group")


def denial(context: Context, call: Call, operation: Operation, resource: Resource) -> Result | None:
    """Why this client may not do that with a resource's settings; None if it may."""
    match resource.type:
        case ResourceType.TOPIC:
            on, name, denied = AclResourceType.TOPIC, resource.name, DENIED_TOPIC
        case ResourceType.GROUP:
            on, name, denied = AclResourceType.GROUP, resource.name, DENIED_GROUP
        case _:
            on, name, denied = AclResourceType.CLUSTER, CLUSTER_NAME, DENIED_CLUSTER
    return None if context.authorize(call.session, operation, on, name) else denied


def check_broker(context: Context, resource: Resource) -> None:
    """Refuse a broker's resource that is not this one's: another's file is not known here."""
    if resource.name and not resource.name.removeprefix("-").isdecimal():
        raise KafkaError(f"{resource.name!r} is not the id of a broker", ErrorCode.INVALID_REQUEST)
    if resource.name and int(resource.name) != context.node_id:
        raise KafkaError(
            f"broker {context.node_id} was asked about broker {resource.name}, expected its own id or none",
            ErrorCode.INVALID_REQUEST,
        )


def check_kind(resource: Resource) -> None:
    if resource.type not in (ResourceType.TOPIC, ResourceType.BROKER):
        known = {each.value: each.name for each in ResourceType}
        raise KafkaError(
            f"resources of type {known.get(resource.type, resource.type)} have no settings here",
            ErrorCode.INVALID_REQUEST,
        )


def describe_configs(context: Context, call: Call) -> Any:
    """DescribeConfigs 1 to 4: the settings of topics, of this broker, and of all brokers.

    Of each setting its value, who set it, and, if asked for, all who have a say and what it means. A topic and a
    broker have all of their settings told, or those that are named; all brokers (an empty name) those that were set
    at run time for all of them. A broker is asked about itself. A topic that is not there gets
    UNKNOWN_TOPIC_OR_PARTITION. A resource that is asked for twice in the same words is told once.

    Version 1 has synonyms and sources, 3 types and documentation, 4 is flexible.
    """
    asked = {}
    for each in call.message.resources:
        keys = None if each.configuration_keys is None else tuple(each.configuration_keys)
        asked[Resource(each.resource_type, each.resource_name), keys] = frozenset(keys) if keys else None
    rows = []
    for (resource, _), names in asked.items():
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
            raise KafkaError(f"there is no topic {resource.name}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return describe(resource, context.image, context.settings, names)


def _described(call: Call, setting: Described) -> Any:
    make, request = call.make, call.message
    synonyms = [
        make.DescribeConfigsSynonym(name=each.name, value=each.value, source=each.source)
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
    """ListConfigResources 0 and 1: what there is that has settings, by kind (KIP-1142).

    All topics and registered brokers; groups and client metrics as far as the metadata log has settings of them,
    which nothing here can set; no loggers. A kind that the version does not know gets UNSUPPORTED_VERSION, as with
    Kafka.

    Version 0, once called ListClientMetricsResources, tells client metrics alone, by name. Version 1 has kinds.
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
