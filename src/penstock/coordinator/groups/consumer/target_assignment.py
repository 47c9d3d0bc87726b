"""The effect of one member's change on its group: epochs, matched expressions, a new target, the member's next step.

Nothing is changed here. The changes are returned as records, ordered so that each can be replayed after those before
it.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from penstock.coordinator.groups.requests import Partitions
from penstock.coordinator.groups.schemas import GroupRecord
from penstock.coordinator.groups.state import CoordinatorState

from .assignors import ASSIGNORS, AssignedMember, assign_round_robin
from .current_assignment import reconciled
from .group import ConsumerGroup, Resolved, metadata_hash
from .member import ConsumerMember, Target, target_record
from .regex import compile_regex

REGEX_INTERVAL_MS_MIN = 10_000
"""Expressions are not matched more often than this because of new topics; Kafka's number."""


@dataclass(slots=True)
class Step:
    """One member's heartbeat, or a classic member's join."""

    group: ConsumerGroup
    old: ConsumerMember
    """The member in the group, or an empty one that joins."""
    new: ConsumerMember
    """The member with the fields of this request."""
    owned: Partitions | None
    """The partitions that the member owns; None if the request omits them."""
    records: list[GroupRecord]
    """Records so far, to which this step appends."""
    is_new_group: bool = False
    replaced: str | None = None
    """The id of the static member that it replaces."""
    may_describe: Callable[[str], bool] | None = None
    """Topics that the client may describe: regular expressions match no others. None for all."""
    resolves_regexes: bool = True
    """Otherwise those that other members resolved stay as they are."""

    def members_after(self) -> dict[str, ConsumerMember]:
        members = {key: each for key, each in self.group.members.items() if key != self.replaced}
        members[self.new.member_id] = self.new
        return members


class TargetAssignments:
    def __init__(self, state: CoordinatorState) -> None:
        self._state = state

    def take(self, step: Step) -> ConsumerMember:
        """The member after the step."""
        group, old, new, records = step.group, step.old, step.new, step.records
        topics, now_ms = self._state.topics, self._state.now_ms
        names_changed = new.names != old.names
        regex_changed = (new.regex or "") != (old.regex or "")
        if new is not old and new != old:
            records.append(new.subscription_record(group.group_id))
        regexes, matches_changed = self._regexes(step, regex_changed)
        bumps = step.is_new_group or names_changed or regex_changed or matches_changed
        epoch = group.epoch
        if bumps or group.checked_version != topics.version:
            members = step.members_after()
            hashed = self.hash_of(group, members, regexes)
            if bumps or hashed != group.metadata_hash:
                epoch += 1
                records.append(group.epoch_record(epoch, hashed))
                if group.has_old_metadata:
                    records.append(group.old_metadata_tombstone())
            else:
                group.checked_version = topics.version
        if epoch > group.target_epoch:
            targets = self.assigned(group, step.members_after(), regexes)
            records += (
                target_record(group.group_id, member_id, target)
                for member_id, target in targets.items()
                if target != group.target.get(member_id) and (target or member_id in group.target)
            )
            records.append(group.target_epoch_record(epoch, now_ms))
            target_epoch, target = epoch, targets[new.member_id]
        else:
            target_epoch, target = group.target_epoch, group.target_of(new)
        changed = names_changed or regex_changed
        if new.is_reconciled_to(target_epoch) and not changed:
            return new
        subscribed = {
            topics.by_name[name].topic_id for name in group.topics_of(new, regexes) if name in topics.by_name
        }
        after = reconciled(
            new, target_epoch, target, subscribed, step.owned, group.owner_of_id, subscription_changed=changed
        )
        if after != new:
            records.append(after.current_record(group.group_id))
        return after

    def hash_of(
        self, group: ConsumerGroup, members: dict[str, ConsumerMember], regexes: dict[str, Resolved]
    ) -> int:
        names: set[str] = set()
        for member in members.values():
            names |= group.topics_of(member, regexes)
        return metadata_hash(names, self._state.topics)

    def assigned(
        self, group: ConsumerGroup, members: dict[str, ConsumerMember], regexes: dict[str, Resolved]
    ) -> dict[str, Target]:
        by_name = self._state.topics.by_name
        wanted = {
            member_id: [by_name[name] for name in group.topics_of(member, regexes) if name in by_name]
            for member_id, member in members.items()
        }
        specs = {
            member_id: AssignedMember(
                frozenset(topic.topic_id for topic in wanted[member_id]),
                group.target_of(member),
                member.instance_id,
                member.rack_id,
            )
            for member_id, member in members.items()
        }
        topics = {topic.topic_id: topic for each in wanted.values() for topic in each}
        name = group.preferred_assignor(members.values()) or self._state.settings.consumer_assignors[0]
        if name == "uniform" and _is_dealt_to(members.values()):
            return assign_round_robin(specs, topics)
        return ASSIGNORS[name](specs, topics)

    def _regexes(self, step: Step, regex_changed: bool) -> tuple[dict[str, Resolved], bool]:
        """The topics that each regular expression of the group matches, and whether they changed."""
        group, topics, now_ms = step.group, self._state.topics, self._state.now_ms
        if not group.regexes and not step.new.regex:
            return group.regexes, False
        version, checked_ms = group.regexes_checked
        waited_ms = now_ms - checked_ms
        due = step.resolves_regexes and self._is_due(version, waited_ms)
        if not due and not regex_changed and step.replaced is None:
            return group.regexes, False
        changed = False
        regexes: dict[str, Resolved] = {}
        for member in step.members_after().values():
            regex = member.regex
            if not regex or regex in regexes:
                continue
            known = group.regexes.get(regex)
            if known is not None and not due:
                regexes[regex] = known
                continue
            matches = compile_regex(regex).matches
            names = frozenset(filter(matches, topics.by_name))
            if step.may_describe is not None:
                names = frozenset(filter(step.may_describe, names))
            found = Resolved(names, topics.version, now_ms)
            if known is not None and known.topics == found.topics:
                regexes[regex] = known
                continue
            regexes[regex] = found
            step.records.append(group.regex_record(regex, found))
            changed = True
        step.records += (group.regex_record(regex, None) for regex in group.regexes if regex not in regexes)
        if due and not changed:
            group.regexes_checked = (topics.version, now_ms)
        return regexes, changed

    def _is_due(self, version: int, waited_ms: int) -> bool:
        """Whether regular expressions are matched again; `version` is that of the topics they were matched with."""
        return waited_ms >= self._state.settings.regex_refresh_interval_ms or (
            version != self._state.topics.version and waited_ms >= REGEX_INTERVAL_MS_MIN
        )


def _is_dealt_to(members: Collection[ConsumerMember]) -> bool:
    """Whether some members joined over HTTP, and none has a rack."""
    return any(member.is_of_http for member in members) and not any(member.rack_id for member in members)
