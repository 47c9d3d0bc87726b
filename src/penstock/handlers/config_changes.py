"""Settings changed: as a whole (AlterConfigs) or one by one (IncrementalAlterConfigs).

Each resource's changes hold together or not at all, and resources do not wait for each other. The controller checks
the values; here it is checked that a request makes sense, and that the client may.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.promise import Promise
from penstock.metadata import Resource, ResourceType, Result
from penstock.metadata.controller.requests import (
    AlterConfigs,
    ConfigChange,
    ConfigOp,
    IncrementalAlterConfigs,
)
from penstock.metadata.controller.topics import check_name
from penstock.wire import Api

from .configs import check_broker, check_kind, denial
from .support.context import Call, Context, Operation
from .support.controller_call import ask, default_wait_ms
from .support.response_fields import NO_THROTTLE, refusal


def alter_configs(context: Context, call: Call, *, at_controller: bool = False) -> Any | Promise[Any]:
    """AlterConfigs 0 to 2: all settings of resources; those that are not named go back to their defaults.

    A resource or a setting that is named twice, a value that is null, another broker's id and a topic without a name
    get INVALID_REQUEST; a value that may not be INVALID_CONFIG, and what cannot be a topic's name
    INVALID_TOPIC_EXCEPTION. `validate_only` changes nothing. Clients should use IncrementalAlterConfigs:
    two of them that change settings of one topic with this undo each other's work (KIP-339).

    Version 2 is flexible.
    """

    def ask_for(wanted: list[Any]) -> AlterConfigs:
        changes = {resource_of(each): {one.name: one.value for one in each.configs} for each in wanted}
        return AlterConfigs(changes, call.message.validate_only)

    return _alter(context, call, ask_for, call.make.AlterConfigsResponse, at_controller)


def incremental_alter_configs(
    context: Context, call: Call, *, at_controller: bool = False
) -> Any | Promise[Any]:
    """IncrementalAlterConfigs 0 and 1: settings set and deleted, and values appended to lists and subtracted.

    Refusals as of AlterConfigs; an operation that is not one of the four gets INVALID_REQUEST, appending to what is
    no list INVALID_CONFIG.

    Version 1 is flexible.
    """

    def ask_for(wanted: list[Any]) -> IncrementalAlterConfigs:
        changes = {
            resource_of(each): tuple(
                ConfigChange(one.name, one.config_operation, one.value) for one in each.configs
            )
            for each in wanted
        }
        return IncrementalAlterConfigs(changes, call.message.validate_only)

    return _alter(context, call, ask_for, call.make.IncrementalAlterConfigsResponse, at_controller)


def resource_of(entity: Any) -> Resource:
    return Resource(entity.resource_type, entity.resource_name)


def _alter(
    context: Context,
    call: Call,
    ask_for: Callable[[list[Any]], Any],
    make_response: Callable[..., Any],
    at_controller: bool,
) -> Any | Promise[Any]:
    named = Counter(resource_of(each) for each in call.message.resources)
    results: dict[Resource, Result] = {}
    wanted = []
    for each in call.message.resources:
        resource = resource_of(each)
        try:
            if named[resource] > 1:
                raise KafkaError(f"resource {resource.name} is named twice", ErrorCode.INVALID_REQUEST)
            denied = denial(context, call, Operation.ALTER_CONFIGS, resource)
            if denied is None:
                _check(context, resource, each.configs, at_controller)
        except KafkaError as error:
            denied = refusal(error)
        if denied is None:
            wanted.append(each)
        else:
            results[resource] = denied

    def respond(answer: Any) -> Any:
        if isinstance(answer, KafkaError):
            answer = {resource_of(each): refusal(answer) for each in wanted}
        rows = []
        for resource in named:
            code, message = results[resource] if resource in results else answer[resource]
            rows.append(
                call.make.AlterConfigsResourceResponse(
                    error_code=code,
                    error_message=message,
                    resource_type=resource.type,
                    resource_name=resource.name,
                )
            )
        return make_response(throttle_time=NO_THROTTLE, responses=tuple(rows))

    if not wanted:
        return respond({})
    return ask(context, ask_for(wanted), default_wait_ms(context), respond)


def _check(context: Context, resource: Resource, changes: Iterable[Any], at_controller: bool) -> None:
    check_kind(resource)
    # A controller knows all brokers, and says itself which are not registered.
    if resource.type == ResourceType.BROKER and not at_controller:
        check_broker(context, resource)
    for name, count in Counter(change.name for change in changes).items():
        if count > 1:
            raise KafkaError(f"{name} is changed twice", ErrorCode.INVALID_REQUEST)
    for change in changes:
        if change.value is None and getattr(change, "config_operation", ConfigOp.SET) != ConfigOp.DELETE:
            raise KafkaError(f"{change.name} is given no value", ErrorCode.INVALID_REQUEST)
    if resource.type == ResourceType.TOPIC:
        if not resource.name:
            raise KafkaError("there are no settings of all topics", ErrorCode.INVALID_REQUEST)
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
"""Of any broker, whichever is asked."""
