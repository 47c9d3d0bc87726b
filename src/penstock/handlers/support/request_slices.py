"""Splits requests with long lists into slices, so that other clients are served in between.

The handler answers one slice in each tick of the event loop, and the responses are joined into one. This works for
APIs whose response has a row for each row of the request, with rows independent of each other. Other handlers yield
`next_tick` in their own work, or are bounded otherwise.

    ListOffsets [a: 0-999] --> [a: 0-99] [a: 100-199] ...    one in each tick
                               [a: 0-999]                    the response
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final, NamedTuple

from penstock.base.promise import HoldingPromise, Promise
from penstock.base.steps import Steps, next_tick
from penstock.metadata.controller.acls import CHANGES_MAX
from penstock.wire import Api

from .context import Call, Context, Handler
from .waiting import all_of, run

SLICE_ITEMS: Final = 100
"""Rows in a slice, which takes 2 to 5 ms."""


class Rows(NamedTuple):
    """Names of the fields that hold a message's list."""

    items: str
    nested: str | None = None
    """The list within each item, where that list makes a request large."""


class Split(NamedTuple):
    request: Rows
    response: Rows
    key: Callable[[Any], Any] | None = None
    """Identifies a row, where naming one twice is an error: such a request is not split, so that its handler sees both
    rows."""
    weight: Callable[[Any], int] | None = None
    """The weight of a row; 1 by default."""
    rows_max: int | None = None
    """A longer request is not split: its handler refuses it as a whole."""
    in_order: bool = False
    """Start a slice only when the one before is answered: for slices that all wait for one event, and would otherwise
    all be answered in one tick."""


_PARTITIONS = Rows("topics", "partitions")


def _resource(row: Any) -> Any:
    return row.resource_type, row.resource_name


def _name(row: Any) -> Any:
    return row.name, getattr(row, "topic_id", None)


def _entity(row: Any) -> Any:
    return frozenset((each.entity_type, each.entity_name) for each in row.entity)


def _quota_changes(row: Any) -> int:
    return 1 + len(row.ops) // 4 + len(row.entity) // 4


def _new_partitions(row: Any) -> int:
    return max(int(row.num_partitions), len(row.assignments), 1)


SPLITS: Final[dict[Api, Split]] = {
    Api.METADATA: Split(Rows("topics"), Rows("topics")),
    Api.LIST_OFFSETS: Split(_PARTITIONS, _PARTITIONS),
    Api.OFFSET_FOR_LEADER_EPOCH: Split(_PARTITIONS, _PARTITIONS),
    Api.DELETE_RECORDS: Split(_PARTITIONS, _PARTITIONS),
    Api.DESCRIBE_PRODUCERS: Split(Rows("topics", "partition_indexes"), _PARTITIONS),
    Api.DESCRIBE_CONFIGS: Split(Rows("resources"), Rows("results")),
    Api.FIND_COORDINATOR: Split(Rows("coordinator_keys"), Rows("coordinators"), in_order=True),
    Api.OFFSET_COMMIT: Split(_PARTITIONS, _PARTITIONS),
    Api.TXN_OFFSET_COMMIT: Split(_PARTITIONS, _PARTITIONS),
    Api.OFFSET_DELETE: Split(_PARTITIONS, _PARTITIONS),
    Api.DESCRIBE_GROUPS: Split(Rows("groups"), Rows("groups")),
    Api.DELETE_GROUPS: Split(Rows("groups_names"), Rows("results")),
    Api.CONSUMER_GROUP_DESCRIBE: Split(Rows("group_ids"), Rows("groups")),
    Api.ALTER_CONFIGS: Split(Rows("resources"), Rows("responses"), _resource),
    Api.INCREMENTAL_ALTER_CONFIGS: Split(Rows("resources"), Rows("responses"), _resource),
    Api.ALTER_CLIENT_QUOTAS: Split(Rows("entries"), Rows("entries"), _entity, _quota_changes),
    Api.CREATE_ACLS: Split(Rows("creations"), Rows("results"), rows_max=CHANGES_MAX),
    Api.CREATE_TOPICS: Split(Rows("topics"), Rows("topics"), _name, _new_partitions),
    Api.DELETE_TOPICS: Split(Rows("topics"), Rows("responses"), _name),
    Api.CREATE_PARTITIONS: Split(Rows("topics"), Rows("results"), _name),
    Api.ALTER_PARTITION_REASSIGNMENTS: Split(_PARTITIONS, Rows("responses", "partitions"), _name),
    Api.DESCRIBE_TRANSACTIONS: Split(Rows("transactional_ids"), Rows("transaction_states")),
}


def slices_of(api: Api, message: Any) -> list[Any] | None:
    """The slices of a long request; None where it is answered in one piece."""
    split = SPLITS.get(api)
    if split is None:
        return None
    rows, nested = split.request
    items = getattr(message, rows, None)
    if not items:
        return None
    if nested is not None:
        size = len(items) + sum(len(getattr(each, nested) or ()) for each in items)
    else:
        size = len(items) if split.weight is None else sum(map(split.weight, items))
    if size <= SLICE_ITEMS or (split.rows_max is not None and len(items) > split.rows_max):
        return None
    if api is Api.METADATA:
        items = tuple(dict.fromkeys(items))  # one row for each, however often it is named
    if split.key is not None and len(set(map(split.key, items))) < len(items):
        return None
    cuts = _weighed(items, split.weight) if nested is None else _cut(items, nested)
    found = [replace(message, **{rows: each}) for each in cuts]
    return found if len(found) > 1 else None


def _weighed(items: tuple[Any, ...], weight: Callable[[Any], int] | None) -> Iterator[tuple[Any, ...]]:
    if weight is None:
        yield from (items[at : at + SLICE_ITEMS] for at in range(0, len(items), SLICE_ITEMS))
        return
    slice_: list[Any] = []
    total = 0
    for item in items:
        more = weight(item)
        if slice_ and total + more > SLICE_ITEMS:
            yield tuple(slice_)
            slice_, total = [], 0
        slice_.append(item)
        total += more
    yield tuple(slice_)


def _cut(items: tuple[Any, ...], nested: str) -> Iterator[tuple[Any, ...]]:
    slice_: list[Any] = []
    room = SLICE_ITEMS
    for item in items:
        parts = getattr(item, nested) or ()
        at = 0
        while True:
            taken = parts[at : at + room]
            slice_.append(item if len(taken) == len(parts) else replace(item, **{nested: taken}))
            at += len(taken)
            room -= len(taken) + 1
            if room <= 0:
                yield tuple(slice_)
                slice_, room = [], SLICE_ITEMS
            if at >= len(parts):
                break
    if slice_:
        yield tuple(slice_)


def answer_in_slices(
    context: Context, call: Call, handler: Handler, slices: list[Any], api: Api
) -> Promise[Any]:
    """One response to all slices. The client's next request waits for it."""
    reply: HoldingPromise[Any] = HoldingPromise()
    run(_answer(context, call, handler, slices, SPLITS[api]), reply)
    return reply


def _answer(context: Context, call: Call, handler: Handler, slices: list[Any], split: Split) -> Steps[Any]:
    answers: list[Any] = []
    for at, message in enumerate(slices):
        if at:
            yield next_tick(context.world)
        began_ns = context.world.clock_ns()
        answer = handler(context, call._replace(message=message))
        if at and context.quotas is not None and (share := call.session.state.share) is not None:
            share.measured_ns += context.world.clock_ns() - began_ns
        if split.in_order and isinstance(answer, Promise):
            answer = yield answer
        answers.append(answer)
    waiting = [answer for answer in answers if isinstance(answer, Promise)]
    if waiting:
        yield all_of(waiting)
    responses = [answer.value if isinstance(answer, Promise) else answer for answer in answers]
    return _joined(responses, split.response)


def _joined(responses: list[Any], rows: Rows) -> Any:
    found: list[Any] = []
    for response in responses:
        those = list(getattr(response, rows.items))
        if rows.nested is not None and found and those and _is_same(found[-1], those[0], rows.nested):
            both = getattr(found[-1], rows.nested) + getattr(those[0], rows.nested)
            found[-1] = replace(found[-1], **{rows.nested: both})
            del those[0]
        found += those
    changes: dict[str, Any] = {rows.items: tuple(found)}
    if hasattr(responses[0], "throttle_time"):
        changes["throttle_time"] = max(each.throttle_time for each in responses)
    return replace(responses[0], **changes)


def _is_same(one: Any, other: Any, nested: str) -> bool:
    """Whether two rows are parts of one row that was split."""
    return bool(replace(one, **{nested: ()}) == replace(other, **{nested: ()}))
