"""Changes of configs.

    AlterConfigs 0 to 2                   replace all configs of resources
    IncrementalAlterConfigs 0 to 1        set, delete, append to and subtract from single configs

The changes of one resource are applied together or not at all; resources are independent. The handler checks the
request and ALTER_CONFIGS on the resource, the controller checks the values.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.steps import Steps
from penstock.metadata.acls import Operation
from penstock.metadata.controller.requests import (
    AlterConfigs,
    ConfigChange,
    ConfigOp,
    IncrementalAlterConfigs,
    Result,
)
from penstock.metadata.controller.topics import check_name
from penstock.metadata.image import Resource, ResourceType
from penstock.wire import Api

from .configs import check_broker, check_kind, denial
from .support.context import Call, Context
from .support.controller_call import default_wait_ms, submit
from .support.response_fields import NO_THROTTLE, refusal
from .support.waiting import run


def alter_configs(context: Context, call: Call, *, at_controller: bool = False) -> Any:
    """AlterConfigs 0 to 2: replace all configs of resources. A config that is not named gets its default.

    Errors: INVALID_REQUEST for a resource or config that is named twice, a null value, another broker's id, or an
    empty topic name; INVALID_CONFIG for an invalid value; INVALID_TOPIC_EXCEPTION for an invalid topic name.
    `validate_only` changes nothing. Clients should use IncrementalAlterConfigs: with AlterConfigs, two clients that
    change one topic undo each other's changes (KIP-339).

    Version notes: 2 is flexible.
    """

    def request_for(rows: list[Any]) -> AlterConfigs:
        changes = {resource_of(each): {one.name: one.value for one in each.configs} for each in rows}
        return AlterConfigs(changes, call.message.validate_only)

    return run(_alter(context, call, request_for, call.make.AlterConfigsResponse, at_controller))


def incremental_alter_configs(context: Context, call: Call, *, at_controller: bool = False) -> Any:
    """IncrementalAlterConfigs 0 to 1: set and delete configs, append values to lists and subtract them.

    Errors as for AlterConfigs. An unknown operation gets INVALID_REQUEST, appending to a config that is not a list
    INVALID_CONFIG.

    Version notes: 1 is flexible.
    """

    def request_for(rows: list[Any]) -> IncrementalAlterConfigs:
        changes = {
            resource_of(each): tuple(
                ConfigChange(one.name, one.config_operation, one.value) for one in each.configs
            )
            for each in rows
        }
        return IncrementalAlterConfigs(changes, call.message.validate_only)

    return run(_alter(context, call, request_for, call.make.IncrementalAlterConfigsResponse, at_controller))


def resource_of(entity: Any) -> Resource:
    return Resource(entity.resource_type, entity.resource_name)


def _alter(
    context: Context,
    call: Call,
    request_for: Callable[[list[Any]], Any],
    make_response: Callable[..., Any],
    at_controller: bool,
) -> Steps[Any]:
    named = Counter(resource_of(each) for each in call.message.resources)
    results: dict[Resource, Result] = {}
    allowed = []
    for each in call.message.resources:
        resource = resource_of(each)
        try:
            if named[resource] > 1:
                raise KafkaError(f"Resource {resource.name} is named twice.", ErrorCode.INVALID_REQUEST)
            denied = denial(context, call, Operation.ALTER_CONFIGS, resource)
            if denied is None:
                _check(context, resource, each.configs, at_controller)
        except KafkaError as error:
            denied = refusal(error)
        if denied is None:
            allowed.append(each)
        else:
            results[resource] = denied

    if allowed:
        try:
            results |= yield submit(context, request_for(allowed), default_wait_ms(context), call.session)
        except KafkaError as error:
            results |= {resource_of(each): refusal(error) for each in allowed}
    rows = [
        call.make.AlterConfigsResourceResponse(
            error_code=results[resource].code,
            error_message=results[resource].message,
            resource_type=resource.type,
            resource_name=resource.name,
        )
        for resource in named
    ]
    return make_response(throttle_time=NO_THROTTLE, responses=tuple(rows))


def _check(context: Context, resource: Resource, changes: Iterable[Any], at_controller: bool) -> None:
    check_kind(resource)
    # The controller itself checks which brokers are registered.
    if resource.type == ResourceType.BROKER and not at_controller:
        check_broker(context, resource)
    for name, count in Counter(change.name for change in changes).items():
        if count > 1:
            raise KafkaError(f"Config {name} is named twice.", ErrorCode.INVALID_REQUEST)
    for change in changes:
        if change.value is None and getattr(change, "config_operation", ConfigOp.SET) != ConfigOp.DELETE:
            raise KafkaError(f"Config {change.name} has no value.", ErrorCode.INVALID_REQUEST)
    if resource.type == ResourceType.TOPIC:
        if not resource.name:
            raise KafkaError(
                "The topic name is empty: topics have no common configs.", ErrorCode.INVALID_REQUEST
            )
        check_name(resource.name)


HANDLERS: dict[Api, Callable[[Context, Call], Any]] = {
    Api.ALTER_CONFIGS: alter_configs,
    Api.INCREMENTAL_ALTER_CONFIGS: incremental_alter_configs,
}

AT_CONTROLLERS: dict[Api, Callable[[Context, Call], Any]] = {
    api: partial(handler, at_controller=True)
    for api, handler in (
        (Api.ALTER_CONFIGS, alter_configs),
        (Api.INCREMENTAL_ALTER_CONFIGS, incremental_alter_configs),
    )
}
"""At a controller a request may name any broker."""
