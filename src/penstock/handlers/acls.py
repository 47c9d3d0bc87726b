"""ACLs.

    DescribeAcls 1 to 3
    CreateAcls   1 to 3
    DeleteAcls   1 to 3

A node without an authorizer answers SECURITY_DISABLED. A request with an unknown number closes the connection, as in
Kafka.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.steps import Steps, next_tick
from penstock.metadata.acls import (
    CLUSTER_NAME,
    Acl,
    AclFilter,
    AclResourceType,
    Operation,
    PatternType,
    Permission,
    acl_fields,
)
from penstock.metadata.controller.acls import CHANGES_MAX
from penstock.metadata.controller.requests import CreateAcls, DeleteAcls, DeletedAcls, Result
from penstock.wire import Api

from .support.context import Call, Context
from .support.controller_call import default_wait_ms, submit
from .support.response_fields import DENIED_CLUSTER, NO_THROTTLE, refusal
from .support.ticks import ITEMS_A_TICK, chosen_in_ticks, in_ticks, mapped_in_ticks, sorted_in_ticks
from .support.waiting import in_steps

_NO_AUTHORIZER = Result(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")


def _refused(context: Context, call: Call, operation: Operation) -> Result | None:
    if not context.authorize(call.session, operation, AclResourceType.CLUSTER, CLUSTER_NAME):
        return DENIED_CLUSTER
    return _NO_AUTHORIZER if context.authorizer is None else None


@in_steps
def describe_acls(context: Context, call: Call) -> Steps[Any]:
    """DescribeAcls 1 to 3: the ACLs that a filter matches, by resource. Needs DESCRIBE on the cluster."""
    make = call.make
    acl_filter = _filter(call.message)

    def respond(result: Result, resources: Iterable[Any] = ()) -> Any:
        return make.DescribeAclsResponse(
            throttle_time=NO_THROTTLE,
            error_code=result.code,
            error_message=result.message,
            resources=tuple(resources),
        )

    def resource(alike: tuple[tuple[Any, ...], list[Acl]]) -> Any:
        (kind, name, pattern), acls = alike
        return make.DescribeAclsResource(
            resource_type=kind,
            resource_name=name,
            pattern_type=pattern,
            acls=tuple(
                make.AclDescription(
                    principal=each.principal,
                    host=each.host,
                    operation=each.operation,
                    permission_type=each.permission,
                )
                for each in acls
            ),
        )

    denied = _refused(context, call, Operation.DESCRIBE)
    if denied is not None:
        return respond(denied)
    world = context.world
    found = yield from chosen_in_ticks(
        world, (acl for _, acl in context.image.acls.entries()), acl_filter.matches
    )
    by_pattern: dict[tuple[Any, ...], list[Acl]] = {}

    def group(acls: list[Acl]) -> None:
        for acl in acls:
            by_pattern.setdefault(acl[:3], []).append(acl)

    yield from in_ticks(world, (yield from sorted_in_ticks(world, found)), group)
    return respond(Result(), (yield from mapped_in_ticks(world, by_pattern.items(), resource)))


@in_steps
def create_acls(context: Context, call: Call) -> Steps[Any]:
    """CreateAcls 1 to 3. Needs ALTER on the cluster."""
    make = call.make

    def respond(results: tuple[Result, ...]) -> Any:
        return make.CreateAclsResponse(
            throttle_time=NO_THROTTLE,
            results=tuple(
                make.AclCreationResult(error_code=each.code, error_message=each.message) for each in results
            ),
        )

    denied = _refused(context, call, Operation.ALTER) or _too_many(call.message.creations)
    if denied is not None:
        return respond((denied,) * len(call.message.creations))
    acls = tuple(_acl(each) for each in call.message.creations)
    try:
        results = yield submit(context, CreateAcls(acls), default_wait_ms(context), call.session)
    except KafkaError as error:
        return respond((refusal(error),) * len(acls))
    return respond(results)


def _too_many(creations: Sequence[Any]) -> Result | None:
    """Requests of this length are not split (`support.request_slices`), so they are refused as a whole."""
    count = len(creations)
    message = f"The request has {count} ACLs, expected {CHANGES_MAX} at most"
    return Result(ErrorCode.INVALID_REQUEST, message) if count > CHANGES_MAX else None


@in_steps
def delete_acls(context: Context, call: Call) -> Steps[Any]:
    """DeleteAcls 1 to 3: delete what each filter matches. Needs ALTER on the cluster."""
    make, world = call.make, context.world

    def matched(acl: Acl) -> Any:
        return make.DeleteAclsMatchingAcl(error_code=ErrorCode.NONE, error_message=None, **acl_fields(acl))

    def respond(rows: Sequence[DeletedAcls], result: Result) -> Steps[Any]:
        results: list[Any] = []
        for row in rows:
            acls = yield from mapped_in_ticks(world, row.acls, matched)
            results.append(
                make.DeleteAclsFilterResult(
                    error_code=result.code, error_message=result.message, matching_acls=tuple(acls)
                )
            )
            if len(results) % ITEMS_A_TICK == 0:
                yield next_tick(world)
        return make.DeleteAclsResponse(throttle_time=NO_THROTTLE, filter_results=tuple(results))

    filters = yield from mapped_in_ticks(world, call.message.filters, _filter)
    nothing = (DeletedAcls(()),) * len(filters)
    denied = _refused(context, call, Operation.ALTER)
    if denied is not None:
        return (yield from respond(nothing, denied))
    try:
        deleted = yield submit(context, DeleteAcls(tuple(filters)), default_wait_ms(context), call.session)
    except KafkaError as error:
        return (yield from respond(nothing, refusal(error)))
    return (yield from respond(deleted, Result()))


def _acl(each: Any) -> Acl:
    acl = Acl(
        AclResourceType(each.resource_type),
        each.resource_name,
        PatternType(each.resource_pattern_type),
        each.principal,
        each.host,
        Operation(each.operation),
        Permission(each.permission_type),
    )
    if not (acl.resource_type and acl.pattern_type and acl.operation and acl.permission):
        raise KafkaError("CreateAcls has an unknown element", ErrorCode.INVALID_REQUEST)
    return acl


def _filter(each: Any) -> AclFilter:
    found = AclFilter(
        AclResourceType(each.resource_type_filter),
        each.resource_name_filter,
        PatternType(each.pattern_type_filter),
        each.principal_filter,
        each.host_filter,
        Operation(each.operation),
        Permission(each.permission_type),
    )
    if not found.is_known:
        raise KafkaError("a filter of ACLs has an unknown element", ErrorCode.INVALID_REQUEST)
    return found


HANDLERS: dict[Api, Callable[[Context, Call], Any]] = {
    Api.DESCRIBE_ACLS: describe_acls,
    Api.CREATE_ACLS: create_acls,
    Api.DELETE_ACLS: delete_acls,
}
