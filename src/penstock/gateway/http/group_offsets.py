"""Committed offsets of a group: previewed, moved, deleted.

    targets     topics or single partitions, and where to: an end, a time, an offset, or a committed offset of this
                group or another one, shifted by a number
    plan        the new offset of each partition, by the log as it is now
    commit      all of them in one OffsetCommit, which the coordinator accepts or refuses as a whole

A preview (`dry_run=true`) is the same plan, without the commit. If several targets name a partition, the last counts.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import INT64_MAX, Offset, TopicPartition
from penstock.base.steps import Steps, next_tick
from penstock.coordinator.groups.requests import CommittedPartition, OffsetDelete, PartitionResult
from penstock.gateway.http.groups import absent, check_code, group_in
from penstock.gateway.http.protocol.messages import HttpError, Query, Request, Response, Routes, json
from penstock.gateway.http.protocol.parameters import (
    GROUP_CHARS_MAX,
    MOMENT,
    PARTITION_MAX,
    TOPIC_NAME,
    TopicName,
    one_of,
    parse_moment,
)
from penstock.gateway.line.offsets import all_committed, commit_all, why_refused
from penstock.gateway.peer_rpc.coordinators import ask_group
from penstock.gateway.peer_rpc.routed_partition import RoutedPartition, find_partition
from penstock.gateway.shared.access import GROUP, TOPIC, Need, Rule, allow
from penstock.gateway.shared.ranges import OffsetRange, RangeQuery, resolve
from penstock.gateway.shared.topics import find_topic
from penstock.handlers.support.context import Context
from penstock.metadata.acls import Operation
from penstock.metadata.controller.topics import NAME_LENGTH_MAX

TARGETS_MAX: Final = 10_000
PARTITIONS_MAX: Final = 20_000
"""Partitions that the targets of one call name, each as often as it is named."""

COMMIT_BYTES_MAX: Final = 900_000
"""A commit is one batch of `__consumer_offsets`, below its `max.message.bytes`."""

RECORD_BYTES: Final = 80
"""Of a commit's record, without its names."""

LOOKUPS_MAX: Final = 50
"""Different times, and different groups, in one call: each is a request to all leaders, or to a coordinator."""

PARTITIONS_A_TICK: Final = 500

_NOT_A_MEMBER: Final = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.REBALANCE_IN_PROGRESS,
)
"""Errors for a commit by a client that is not a member of a group with members."""

_TARGET: Final = one_of("earliest", "latest", "committed", MOMENT)

ROUTES = Routes("groups")


class OffsetTarget(msgspec.Struct, forbid_unknown_fields=True):
    """Where a group goes on in a topic."""

    topic: TopicName
    to: (
        Annotated[int, Meta(ge=0, le=INT64_MAX)]
        | Annotated[str, Meta(max_length=64, extra_json_schema={"pattern": _TARGET})]
    )
    """`earliest`, `latest`, `committed`, an offset as a number, or a time as text: ISO 8601, or milliseconds since
    1970."""
    partition: Annotated[int, Meta(ge=0, le=PARTITION_MAX)] | None = None
    """Default: all partitions of the topic."""
    shift_by: Annotated[int, Meta(ge=-INT64_MAX, le=INT64_MAX)] = 0
    """Added to the offset. The sum stays within the partition's offsets."""
    from_group: Annotated[str, Meta(min_length=1, max_length=GROUP_CHARS_MAX)] | None = None
    """With `committed`, the group whose committed offsets are taken. Default: this group."""


class PartitionChange(msgspec.Struct):
    topic: str
    partition: int
    committed: int | None
    """The committed offset before; null if there was none."""
    offset: int
    """The new committed offset."""
    log_start: int
    """First offset of the partition."""
    end: int
    """Its last stable offset, which is `latest`."""
    skipped: int | None
    """Offsets that the group will not read; null without an offset before."""
    read_again: int | None
    """Offsets that the group reads again; null without an offset before."""
    limited: bool
    """Whether a shifted or another group's offset was outside of the partition, so that its start or end was
    taken."""


class ChangedOffsets(msgspec.Struct):
    group: str
    topic: str | None
    """The topic of all partitions; null if there are several."""
    dry_run: bool
    refused: str | None
    """Of a dry run: why the change would be refused now; null if it would not."""
    partitions: list[PartitionChange]


class DeletedOffsets(msgspec.Struct):
    partitions: list[int]
    """Partitions whose committed offset was deleted."""
    status: str = "deleted"


@ROUTES.add(
    "POST",
    "/groups/{group}/offsets",
    "Change the committed offsets of a group that has no members, all at once: to `earliest`, `latest`, a time, an "
    "offset, or a committed offset of this or another group, shifted by a number. The body is a target or a list.",
    query=(Query("dry_run", bool, "Only show what would change.", default=False),),
    body=OffsetTarget | Annotated[list[OffsetTarget], Meta(min_length=1, max_length=TARGETS_MAX)],
    answer=ChangedOffsets,
    errors=(404, 409),
    rule=Rule((Need(Operation.READ, GROUP, "group"),), shows=(Need(Operation.READ, TOPIC, "topic"),)),
)
def _change(gateway: Any, request: Request) -> Steps[Response]:
    context: Context = gateway.context
    group = group_in(request)
    body: OffsetTarget | list[OffsetTarget] = request.body
    targets = body if isinstance(body, list) else [body]
    _allow_all(context, request, targets)
    plan = yield from _plan(context, group, targets)
    refused: str | None = None
    if request.query["dry_run"]:
        refused = yield from why_refused(context, group)
    else:
        yield from _commit(context, group, plan)
    topics = {each.topic for each in plan}
    topic = next(iter(topics)) if len(topics) == 1 else None
    return json(ChangedOffsets(group, topic, request.query["dry_run"], refused, plan))


def _allow_all(context: Context, request: Request, targets: Iterable[OffsetTarget]) -> None:
    for topic in dict.fromkeys(each.topic for each in targets):
        allow(context, request.session, Operation.READ, TOPIC, topic)
    for other in dict.fromkeys(each.from_group for each in targets if each.from_group is not None):
        allow(context, request.session, Operation.DESCRIBE, GROUP, other)


def _commit(context: Context, group: str, plan: Iterable[PartitionChange]) -> Steps[None]:
    rows = [
        CommittedPartition(
            each.topic, each.partition, each.offset, topic_id=find_topic(context, each.topic).id
        )
        for each in plan
    ]
    try:
        yield from commit_all(context, group, rows)
    except KafkaError as error:
        if error.code in _NOT_A_MEMBER:
            raise HttpError(409, "non_empty_group", str(error)) from error
        raise


# -- the plan --------------------------------------------------------------------------------------------------


def _plan(context: Context, group: str, targets: list[OffsetTarget]) -> Steps[list[PartitionChange]]:
    """The new offset of each partition, in order."""
    chosen = yield from _by_partition(context, group, targets)
    partitions = {name: find_partition(context, *name) for name in chosen}
    bounds = yield from _ranges(context, partitions.values(), RangeQuery())
    committed = {group: (yield from all_committed(context, group))}
    for other in _different("groups", (each.from_group for each in chosen.values())):
        committed[other] = yield from all_committed(context, other)
    by_time: dict[str, dict[TopicPartition, OffsetRange]] = {}
    for time in _different("times", (_time_of(each) for each in chosen.values())):
        since = RangeQuery(since_ms=parse_moment("to", time))
        those = [partitions[name] for name, each in chosen.items() if each.to == time]
        by_time[time] = yield from _ranges(context, those, since)
    plan = []
    for count, (name, target) in enumerate(sorted(chosen.items(), key=lambda each: each[0]), 1):
        asked: Offset | None
        match target.to:
            case int(offset):
                asked = _checked(name, offset, bounds[name])
            case "earliest":
                asked = bounds[name].start
            case "latest":
                asked = bounds[name].stop
            case "committed":
                asked = committed[target.from_group or group].get(name)
            case text:
                asked = by_time[text][name].start
        if asked is not None:
            plan.append(_row(name, committed[group].get(name), asked + target.shift_by, bounds[name]))
        elif target.partition is not None:
            raise _none_committed(target.from_group or group, str(name))
        if count % PARTITIONS_A_TICK == 0:
            yield next_tick(context.world)
    if not plan:
        raise _none_committed(targets[0].from_group or group, f"topic {targets[0].topic!r}")
    return plan


def _by_partition(
    context: Context, group: str, targets: Iterable[OffsetTarget]
) -> Steps[dict[TopicPartition, OffsetTarget]]:
    """The target of each partition: the last one that names it."""
    chosen: dict[TopicPartition, OffsetTarget] = {}
    count = size = 0
    for target in targets:
        if isinstance(target.to, str):
            _check_target(target.to)
        topic = find_topic(context, target.topic)
        numbers = sorted(topic.partitions) if target.partition is None else [target.partition]
        for number in numbers:
            name = TopicPartition(topic.name, number)
            if name not in chosen:
                size += len(group) + len(topic.name) + RECORD_BYTES
            chosen[name] = target
            count += 1
            if count % PARTITIONS_A_TICK == 0:
                yield next_tick(context.world)
        if count > PARTITIONS_MAX or size > COMMIT_BYTES_MAX:
            raise HttpError(
                413, "too_many_partitions", "too many partitions for one commit: change fewer topics at once"
            )
    return chosen


def _check_target(text: str) -> None:
    if re.fullmatch(_TARGET, text) is None:
        raise HttpError(
            400,
            "invalid_body",
            f"to is {text!r}, expected earliest, latest, committed, an offset as a number such as 42, or a time as "
            "text: 2026-01-31T12:00:00Z, or milliseconds since 1970",
        )


def _time_of(target: OffsetTarget) -> str | None:
    is_time = isinstance(target.to, str) and target.to not in ("earliest", "latest", "committed")
    return str(target.to) if is_time else None


def _different(what: str, values: Iterable[str | None]) -> list[str]:
    found = list(dict.fromkeys(each for each in values if each is not None))
    if len(found) > LOOKUPS_MAX:
        raise HttpError(
            413, f"too_many_{what}", f"the targets name {len(found)} different {what}, at most {LOOKUPS_MAX}"
        )
    return found


def _ranges(
    context: Context, partitions: Iterable[RoutedPartition], ends: RangeQuery
) -> Steps[dict[TopicPartition, OffsetRange]]:
    found = yield from resolve(context, list(partitions), ends)
    return {each.partition.name: each for each in found}


def _checked(name: TopicPartition, offset: Offset, bounds: OffsetRange) -> Offset:
    if not bounds.start <= offset <= bounds.stop:
        raise KafkaError(
            f"offset {offset} is out of range: {name} has offsets {bounds.start} to {bounds.stop}",
            ErrorCode.OFFSET_OUT_OF_RANGE,
        )
    return offset


def _none_committed(group: str, where: str) -> HttpError:
    return HttpError(409, "no_committed_offset", f"group {group!r} has no committed offset in {where}")


def _row(name: TopicPartition, before: Offset | None, asked: Offset, bounds: OffsetRange) -> PartitionChange:
    offset = min(max(asked, bounds.start), bounds.stop)
    skipped = read_again = None
    if before is not None:
        from_here = max(before, bounds.start)  # offsets before the start are gone
        skipped, read_again = max(offset - from_here, 0), max(from_here - offset, 0)
    return PartitionChange(
        *name, before, offset, bounds.start, bounds.stop, skipped, read_again, limited=offset != asked
    )


# -- deletion --------------------------------------------------------------------------------------------------


@ROUTES.add(
    "DELETE",
    "/groups/{group}/offsets",
    "Delete the committed offsets of a group in a topic to which none of its members is subscribed.",
    query=(
        Query(
            "topic",
            str,
            "Name of the topic. It need not exist any more.",
            is_required=True,
            min=1,
            max=NAME_LENGTH_MAX,
            pattern=TOPIC_NAME,
        ),
        Query("partition", int, "Only in this partition.", min=0, max=PARTITION_MAX),
    ),
    answer=DeletedOffsets,
    errors=(404, 409),
    rule=Rule((Need(Operation.DELETE, GROUP, "group"), Need(Operation.READ, TOPIC, "topic"))),
)
def _delete(gateway: Any, request: Request) -> Steps[Response]:
    context: Context = gateway.context
    group, topic, only = group_in(request), request.query["topic"], request.query["partition"]
    committed: Mapping[TopicPartition, Offset] = yield from all_committed(context, group)
    numbers = sorted(
        each.partition for each in committed if each.topic == topic and only in (None, each.partition)
    )
    if not numbers:
        where = f"topic {topic!r}" if only is None else f"partition {only} of topic {topic!r}"
        raise HttpError(404, "no_committed_offset", f"group {group!r} has no committed offset in {where}")
    asked = OffsetDelete(group, tuple((topic, number) for number in numbers))
    reply = yield from ask_group(context, group, asked)
    results: tuple[PartitionResult, ...] = reply.partitions
    code = next((each.code for each in results if each.code is not ErrorCode.NONE), reply.code)
    if code is ErrorCode.GROUP_ID_NOT_FOUND:
        raise absent(group)
    if code in (ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NON_EMPTY_GROUP):
        raise KafkaError(
            f"group {group!r} has members that are subscribed to topic {topic!r}: its offsets there can be deleted "
            "once they have left",
            code,
        )
    check_code(code, f"offsets of group {group!r} could not be deleted")
    return json(DeletedOffsets(numbers))
