"""Notices rebalances of the groups that this node coordinates.

Coordinators report that a group has changed (`GroupListener`). A moment later the group's members and generation are
compared with those that were known: however many steps a rebalance takes, it is one event.
"""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from penstock.base.errors import KafkaError
from penstock.base.ids import TimestampMs
from penstock.coordinator.groups.classic.group import ClassicGroup, State
from penstock.coordinator.groups.consumer.group import ConsumerGroup
from penstock.coordinator.groups.coordinator import GroupCoordinator
from penstock.gateway.observing.event import Event, Kind, Severity
from penstock.handlers.support.context import Context

SINGLE_MAX: Final = 20
"""Groups that have an event each when many change in the same moment; the others are counted."""

KNOWN_MAX: Final = 10_000
"""Groups whose members are remembered; of others, the first change is not noticed."""


class _Known(NamedTuple):
    generation: int
    members: frozenset[str]


class GroupChanges:
    """A `GroupListener`."""

    def __init__(self, context: Context, noticed: Callable[[], None]) -> None:
        """`noticed` is called when there is something to tell."""
        self._context = context
        self._noticed = noticed
        self._known: dict[str, _Known] = {}
        self._moved: dict[str, None] = {}

    def loaded(self, coordinator: GroupCoordinator) -> None:
        """Groups that a coordinator finds in its log have not changed just now."""
        for group in coordinator.groups:
            self._remember(group.group_id, _state(group))

    def moved(self, group_id: str) -> None:
        self._moved[group_id] = None
        self._noticed()

    def _remember(self, group_id: str, state: _Known) -> None:
        if group_id in self._known or len(self._known) < KNOWN_MAX:
            self._known[group_id] = state

    def events(self, time_ms: TimestampMs, next_id: Callable[[], int]) -> Iterator[Event]:
        """What happened to the groups that have changed."""
        moved, self._moved = self._moved, {}
        told = further = 0
        for group_id in moved:
            found = self._change(group_id)
            if found is None:
                continue
            if told < SINGLE_MAX:
                kind, text = found
                yield Event(next_id(), time_ms, kind, Severity.INFO, text, group=group_id)
                told += 1
            else:
                further += 1
        if further:
            text = f"{further} further groups changed in the same moment"
            yield Event(next_id(), time_ms, Kind.GROUP_REBALANCED, Severity.INFO, text, count=further)

    def _change(self, group_id: str) -> tuple[Kind, str] | None:
        before = self._known.pop(group_id, None)
        try:
            shard = self._context.groups.shards.of(group_id)
        except KafkaError:
            return None  # another broker coordinates it now
        group = shard.coordinator.find(group_id)
        if group is None:
            return None if before is None else (Kind.GROUP_DELETED, f"Group {group_id} was deleted")
        if group.state is State.PREPARING:
            self._remember(group_id, before or _Known(0, frozenset()))
            return None  # the generation that ends the rebalance follows
        now = _state(group)
        self._remember(group_id, now)
        return None if before == now else _told(group_id, before, now)


def _told(group_id: str, before: _Known | None, now: _Known) -> tuple[Kind, str] | None:
    members: frozenset[str] = before.members if before is not None else frozenset()
    if not now.members:
        return (Kind.GROUP_EMPTIED, f"Group {group_id} is empty: its last member left") if members else None
    if before is not None and before.generation == now.generation:
        return None  # the generation that ends the rebalance follows
    counts = [
        f"{len(each)} {what}"
        for each, what in ((now.members - members, "joined"), (members - now.members, "left"))
        if each
    ]
    size = "1 member" if len(now.members) == 1 else f"{len(now.members)} members"
    of = f"{size} ({', '.join(counts)})" if counts else size
    return Kind.GROUP_REBALANCED, f"Group {group_id} rebalanced: generation {now.generation} with {of}"


def _state(group: ClassicGroup | ConsumerGroup) -> _Known:
    generation = group.epoch if isinstance(group, ConsumerGroup) else group.generation
    return _Known(generation, frozenset(group.members))
