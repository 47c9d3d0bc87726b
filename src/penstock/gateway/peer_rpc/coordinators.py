"""Requests to groups, whichever broker coordinates them."""

from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import Any, TypeVar

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.hashing import partition_for
from penstock.base.internal_topics import OFFSETS_TOPIC
from penstock.base.promise import Promise
from penstock.base.steps import Steps, sleep
from penstock.coordinator.groups.requests import (
    GroupSummary,
    ListedGroup,
    ListGroups,
    ListReply,
    Request,
    refusal,
)
from penstock.gateway.peer_rpc.client import peer_rpc_of
from penstock.gateway.peer_rpc.messages import GroupSummaries, SummarizeGroups
from penstock.gateway.peer_rpc.retry import RETRY_MS, RETRY_MS_MAX, is_alone, retry_while_moving
from penstock.gateway.peer_rpc.service import summarize_groups as summarize_groups_here
from penstock.handlers.support.context import Context, Session

T = TypeVar("T")


def coordinator_of(context: Context, group: str) -> int | None:
    """The broker that coordinates a group; None for this one, or if there is no other."""
    topic = context.image.topics.get(OFFSETS_TOPIC)
    if topic is None or is_alone(context):
        return None
    leader: int = topic.partitions[partition_for(group, len(topic.partitions))].leader
    if leader < 0:
        raise KafkaError(
            f"the coordinator of group {group!r} is not known yet. Retry.",
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
        )
    return leader if leader != context.node_id else None


def at_coordinator(
    context: Context,
    session: Session,
    asked: Any,
    here: Callable[[Session, Any], Steps[T]],
    wait_ms: int = 0,
    in_doubt: str | None = None,
) -> Steps[T]:
    """Call `here` if this broker coordinates the group of the request; otherwise send it to the coordinator.
    `in_doubt` is that of `retry_while_moving`."""

    def attempt() -> Steps[T]:
        broker_id = coordinator_of(context, asked.group)
        if broker_id is None:
            return (yield from here(session, asked))
        answer: T = yield peer_rpc_of(context).send(
            broker_id, asked, session=session, order_key=_number(asked.group), wait_ms=wait_ms
        )
        return answer

    return retry_while_moving(context, attempt, in_doubt)


def ask_group(context: Context, group: str, request: Request) -> Steps[Any]:
    """The reply of a group's coordinator. As with `GroupCoordinatorService.handle`, errors are codes in the reply."""
    until_ms = context.world.now_ms() + RETRY_MS_MAX
    while True:
        reply = yield _ask_once(context, group, request)
        is_moving = reply.code in (ErrorCode.NOT_COORDINATOR, ErrorCode.NETWORK_EXCEPTION)
        if not is_moving or is_alone(context) or context.world.now_ms() >= until_ms:
            return reply
        yield sleep(context.world, RETRY_MS)


def _ask_once(context: Context, group: str, request: Request) -> Promise[Any]:
    reply: Promise[Any] = Promise()
    try:
        broker_id = coordinator_of(context, group)
    except KafkaError as error:
        reply.resolve(refusal(request, error.code))
        return reply
    if broker_id is None:
        return context.groups.handle(group, request)

    peer_rpc_of(context).send(broker_id, request, order_key=_number(group)).then(
        reply.resolve, lambda error: reply.resolve(refusal(request, error.code))
    )
    return reply


def list_groups(context: Context, request: ListGroups) -> Steps[ListReply]:
    """The groups of all coordinators. Fails if one does not answer: its groups would be missing."""
    others = [
        each
        for each, broker in sorted(context.image.brokers.items())
        if not broker.fenced and each != context.node_id
    ]
    asked = [peer_rpc_of(context).send(each, request) for each in others]
    replies: list[ListReply] = [(yield context.groups.list_groups(request))]
    for each in asked:
        replies += ((yield each),)
    code = next((each.code for each in replies if each.code is not ErrorCode.NONE), ErrorCode.NONE)
    # A group that moves to another coordinator may be in two replies.
    found: dict[str, ListedGroup] = {each.group: each for reply in replies for each in reply.groups}
    return ListReply(code, tuple(found.values()))


def summarize_groups(
    context: Context, names: Sequence[str], positions_max: int
) -> Steps[tuple[list[str], dict[str, GroupSummary]]]:
    """Summaries of groups, with one request to each coordinator. The first list has the groups that were looked at,
    in the given order: those of a coordinator that has `positions_max` positions without them, and what follows, are
    left for another call."""
    by_coordinator: dict[int | None, list[str]] = {}
    for name in names:
        by_coordinator.setdefault(coordinator_of(context, name), []).append(name)
    asked = {
        broker_id: peer_rpc_of(context).send(broker_id, SummarizeGroups(tuple(some), positions_max))
        for broker_id, some in by_coordinator.items()
        if broker_id is not None
    }
    found: dict[str, GroupSummary] = {}
    skipped: set[str] = set()
    for broker_id, some in by_coordinator.items():
        reply: GroupSummaries
        if broker_id is None:
            reply = yield from summarize_groups_here(context, some, positions_max)
        else:
            reply = yield asked[broker_id]
        found |= {each.group: each for each in reply.groups}
        skipped.update(some[reply.handled :])
    return list(takewhile(lambda name: name not in skipped, names)), found


def _number(group: str) -> int:
    """The same for the same group, so that its requests share a connection and stay in order."""
    return partition_for(group, 1 << 16)
