"""Events about groups: one for a rebalance, and a few for many."""

from itertools import count
from types import SimpleNamespace
from typing import Any

from penstock.coordinator.groups.classic.group import ClassicGroup, ClassicMember, State
from penstock.coordinator.groups.consumer.group import ConsumerGroup
from penstock.gateway.observing.event import Event, Kind
from penstock.gateway.observing.group_events import SINGLE_MAX, GroupChanges


class Groups:
    """A coordinator of groups, and what is told of them."""

    def __init__(self) -> None:
        self.groups: dict[str, Any] = {}
        coordinator = SimpleNamespace(find=self.groups.get)
        shards = SimpleNamespace(of=lambda _: SimpleNamespace(coordinator=coordinator))
        context: Any = SimpleNamespace(groups=SimpleNamespace(shards=shards))
        self.noticed = 0
        self.changes = GroupChanges(context, self._notice)
        self._ids = count(1)

    def _notice(self) -> None:
        self.noticed += 1

    def put(self, group_id: str, generation: int, *members: str, state: State = State.STABLE) -> None:
        group = ClassicGroup(group_id, state if members else State.EMPTY, generation=generation)
        for each in members:
            group.members[each] = ClassicMember(each, None, "", "", 1, 1, ())
        self.groups[group_id] = group
        self.changes.moved(group_id)

    def events(self) -> list[Event]:
        return list(self.changes.events(7, lambda: next(self._ids)))

    def texts(self) -> list[str]:
        return [each.text for each in self.events()]


def test_generation_is_told_with_who_joined_and_left() -> None:
    groups = Groups()
    groups.put("billing", 1, "a", "b")
    assert groups.texts() == ["Group billing rebalanced: generation 1 with 2 members (2 joined)"]
    groups.put("billing", 2, "b", "c", "d")
    assert groups.texts() == ["Group billing rebalanced: generation 2 with 3 members (2 joined, 1 left)"]
    groups.put("billing", 3, "b", "c", "d")
    assert groups.texts() == ["Group billing rebalanced: generation 3 with 3 members"]
    groups.put("billing", 4)
    assert groups.texts() == ["Group billing is empty: its last member left"]
    del groups.groups["billing"]
    groups.changes.moved("billing")
    assert groups.texts() == ["Group billing was deleted"]
    assert groups.noticed == 5


def test_rebalance_is_told_when_it_ends() -> None:
    groups = Groups()
    groups.put("billing", 0, "a", state=State.PREPARING)
    assert groups.texts() == []
    groups.put("billing", 1, "a", state=State.COMPLETING)
    assert groups.texts() == ["Group billing rebalanced: generation 1 with 1 member (1 joined)"]
    groups.put("billing", 1, "a")
    assert groups.texts() == []


def test_group_that_only_commits_offsets_is_not_told() -> None:
    groups = Groups()
    groups.put("simple", 0)
    assert groups.texts() == []


def test_groups_of_a_loaded_coordinator_have_not_changed() -> None:
    groups = Groups()
    old: Any = SimpleNamespace(groups=[ConsumerGroup("old", epoch=7)])
    groups.changes.loaded(old)
    groups.groups["old"] = ConsumerGroup("old", epoch=7)
    groups.changes.moved("old")
    assert groups.texts() == []


def test_many_groups_are_counted() -> None:
    groups = Groups()
    for number in range(300):
        groups.put(f"g{number}", 1, "a")
    found = groups.events()
    assert len(found) == SINGLE_MAX + 1
    assert {each.kind for each in found} == {Kind.GROUP_REBALANCED}
    assert found[-1].text == "280 further groups changed in the same moment"
    assert sum(each.count for each in found) == 300
