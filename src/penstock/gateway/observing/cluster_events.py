"""Finds out what happened to brokers, topics and partitions, from the differences between metadata images.

Changes are gathered for a moment, and then become events. So a broker that is fenced is two or three events ("312
partitions changed leader: broker 2 was fenced"), however many partitions it led and however many records the
controller wrote for it. Images share unchanged parts: the work depends on the number of changes, and is sliced.
"""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from penstock.base.ids import TimestampMs
from penstock.base.steps import Steps, next_tick
from penstock.base.world import World
from penstock.gateway.observing.event import Event, Kind, Severity
from penstock.metadata.image import Broker, ClusterImage, PartitionRegistration, Resource, ResourceType, Topic
from penstock.metadata.records import NO_LEADER, RECOVERING

CHANGES_A_TICK: Final = 500
"""Changed partitions that are compared in one tick: about 2 ms."""

TOPICS_MAX: Final = 20
"""Topics that an event about several topics lists."""

SINGLE_MAX: Final = 5
"""Topics or settings that have an event each; more of them share one."""

NAMED_MAX: Final = 5


class Sum(NamedTuple):
    """What partitions whose changes are told in one event have in common."""

    kind: Kind
    what: str
    """The rest of the sentence after the partitions."""
    broker: int | None = None


class _Partitions:
    """The partitions of a `Sum`."""

    def __init__(self) -> None:
        self.count = 0
        self.first = ""
        self.topics: dict[str, None] = {}
        """Not more than TOPICS_MAX + 1."""

    def add(self, topic: str, number: int) -> None:
        self.count += 1
        self.first = self.first or f"{topic}-{number}"
        if len(self.topics) <= TOPICS_MAX:
            self.topics[topic] = None


_SEVERITIES: Final = {
    Kind.BROKER_FENCED: Severity.ERROR,
    Kind.PARTITIONS_OFFLINE: Severity.ERROR,
    Kind.UNCLEAN_ELECTION: Severity.ERROR,
    Kind.ISR_SHRUNK: Severity.WARNING,
    Kind.BROKER_STOPPING: Severity.WARNING,
    Kind.BROKER_UNREGISTERED: Severity.WARNING,
    Kind.TOPIC_DELETED: Severity.WARNING,
}


_ORDER: Final = {kind: number for number, kind in enumerate(Kind)}


class ClusterChanges:
    """What has changed since the last events were made."""

    def __init__(self) -> None:
        self._brokers: list[tuple[Kind, int, str]] = []
        self._created: list[tuple[str, int]] = []
        self._deleted: list[str] = []
        self._widened: list[tuple[str, int, int]] = []
        self._settings: dict[Resource, dict[str, None]] = {}
        self._features: list[tuple[str, int]] = []
        self._sums: dict[Sum, _Partitions] = {}

    # -- comparing -------------------------------------------------------------------------------------

    def compare(self, world: World, old: ClusterImage, new: ClusterImage) -> Steps[None]:
        """Gather what is different in the new image."""
        for broker_id in sorted(old.brokers.differing(new.brokers)):
            self._brokers += _broker_changes(old.brokers.get(broker_id), new.brokers.get(broker_id))
        compared = 0
        for name in list(old.topics.differing(new.topics)):
            before: Topic | None = old.topics.get(name)
            after: Topic | None = new.topics.get(name)
            if before is not None and (after is None or before.id != after.id):
                self._deleted.append(name)
                before = None
            if after is None:
                continue
            if before is None:
                self._created.append((name, len(after.partitions)))
                continue
            if len(after.partitions) > len(before.partitions):
                self._widened.append((name, len(before.partitions), len(after.partitions)))
            for number in before.partitions.differing(after.partitions):
                was, now = before.partitions.get(number), after.partitions.get(number)
                if was is not None and now is not None:
                    for each in _partition_changes(was, now, new):
                        self._sums.setdefault(each, _Partitions()).add(name, number)
                compared += 1
                if compared % CHANGES_A_TICK == 0:
                    yield next_tick(world)
        for resource in old.configs.differing(new.configs):
            self._compare_settings(resource, old, new)
        for name in sorted(old.features.differing(new.features)):
            self._features.append((name, new.features.get(name, 0)))

    def _compare_settings(self, resource: Resource, old: ClusterImage, new: ClusterImage) -> None:
        """Only names are kept: a value may be a secret."""
        if resource.type == ResourceType.TOPIC:
            before, after = old.topics.get(resource.name), new.topics.get(resource.name)
            if before is None or after is None or before.id != after.id:
                return  # the settings came or went with the topic
        was, now = old.config(resource), new.config(resource)
        changed = [name for name in sorted({*was, *now}) if was.get(name) != now.get(name)]
        self._settings.setdefault(resource, {}).update(dict.fromkeys(changed))

    # -- telling ---------------------------------------------------------------------------------------

    def events(self, time_ms: TimestampMs, next_id: Callable[[], int]) -> Iterator[Event]:
        """An event for each thing that happened, causes before effects."""

        def event(kind: Kind, text: str, **more: object) -> Event:
            severity = _SEVERITIES.get(kind, Severity.INFO)
            return Event(next_id(), time_ms, kind, severity, text, **more)  # type: ignore[arg-type]

        for kind, broker, text in self._brokers:
            yield event(kind, text, broker=broker)
        for name, level in self._features:
            yield event(Kind.FEATURE_CHANGED, f"The feature {name} is at level {level}")
        yield from self._topic_events(event)
        for resource, names in list(self._settings.items())[:SINGLE_MAX]:
            topic = resource.name if resource.type == ResourceType.TOPIC else None
            group = resource.name if resource.type == ResourceType.GROUP else None
            text = f"Settings of {_owner(resource)} changed: {_named(list(names))}"
            yield event(Kind.SETTINGS_CHANGED, text, topic=topic, group=group)
        if len(self._settings) > SINGLE_MAX:
            more = len(self._settings) - SINGLE_MAX
            text = f"Settings of {more} further topics, brokers or groups changed"
            yield event(Kind.SETTINGS_CHANGED, text, count=more)
        for each, partitions in sorted(self._sums.items(), key=lambda item: _ORDER[item[0].kind]):
            text, topic, topics = _of(partitions, each.what)
            yield event(
                each.kind, text, count=partitions.count, broker=each.broker, topic=topic, topics=topics
            )

    def _topic_events(self, event: Callable[..., Event]) -> Iterator[Event]:
        for name in self._deleted[:SINGLE_MAX]:
            yield event(Kind.TOPIC_DELETED, f"Topic {name} was deleted", topic=name)
        if len(self._deleted) > SINGLE_MAX:
            rest = self._deleted[SINGLE_MAX:]
            text = f"{len(rest)} further topics were deleted"
            yield event(Kind.TOPIC_DELETED, text, count=len(rest), topics=tuple(rest[:TOPICS_MAX]))
        for name, partitions in self._created[:SINGLE_MAX]:
            text = f"Topic {name} was created with {_counted(partitions)}"
            yield event(Kind.TOPIC_CREATED, text, topic=name)
        if len(self._created) > SINGLE_MAX:
            names = tuple(name for name, _ in self._created[SINGLE_MAX:])
            text = f"{len(names)} further topics were created"
            yield event(Kind.TOPIC_CREATED, text, count=len(names), topics=names[:TOPICS_MAX])
        for name, before, after in self._widened[:SINGLE_MAX]:
            text = f"Topic {name} was widened from {before} to {after} partitions"
            yield event(Kind.TOPIC_WIDENED, text, topic=name)
        if len(self._widened) > SINGLE_MAX:
            names = tuple(name for name, _, _ in self._widened[SINGLE_MAX:])
            text = f"{len(names)} further topics were widened"
            yield event(Kind.TOPIC_WIDENED, text, count=len(names), topics=names[:TOPICS_MAX])


def _broker_changes(old: Broker | None, new: Broker | None) -> list[tuple[Kind, int, str]]:
    if new is None:
        assert old is not None
        return [(Kind.BROKER_UNREGISTERED, old.id, f"Broker {old.id} was unregistered")]
    found = []
    is_other = old is not None and old.incarnation_id != new.incarnation_id
    was_up = old is not None and not old.fenced
    if old is None:
        found.append((Kind.BROKER_REGISTERED, new.id, f"Broker {new.id} joined the cluster"))
    elif is_other:
        found.append((Kind.BROKER_REGISTERED, new.id, f"Broker {new.id} was restarted and registered again"))
    if not new.fenced and (not was_up or is_other):
        found.append((Kind.BROKER_UNFENCED, new.id, f"Broker {new.id} is up"))
    if new.fenced and was_up and not is_other:
        why = (
            "it has shut down"
            if old is not None and old.in_controlled_shutdown
            else "the controller got no heartbeats of it"
        )
        found.append((Kind.BROKER_FENCED, new.id, f"Broker {new.id} was fenced: {why}"))
    was_stopping = old is not None and old.in_controlled_shutdown and not is_other
    if new.in_controlled_shutdown and not was_stopping:
        found.append((Kind.BROKER_STOPPING, new.id, f"Broker {new.id} is shutting down"))
    return found


def _partition_changes(
    old: PartitionRegistration, new: PartitionRegistration, image: ClusterImage
) -> Iterator[Sum]:
    if new.leader != old.leader:
        yield _leader_change(old, new, image)
    for broker in sorted({*old.isr} - {*new.isr}):
        if broker in new.replicas:
            yield Sum(Kind.ISR_SHRUNK, f"{{lost}} broker {broker} from {{its}} ISR", broker)
    for broker in sorted({*new.isr} - {*old.isr}):
        yield Sum(Kind.ISR_EXPANDED, f"{{have}} broker {broker} in {{its}} ISR again", broker)
    was_moving, is_moving = bool(old.adding or old.removing), bool(new.adding or new.removing)
    if is_moving and not was_moving:
        yield Sum(Kind.REASSIGNMENT_BEGUN, "{are} being reassigned")
    elif was_moving and not is_moving:
        is_done = {*old.adding} <= {*new.replicas} and not {*old.removing} & {*new.replicas}
        yield Sum(
            Kind.REASSIGNMENT_ENDED,
            "{were} reassigned" if is_done else "{are} no longer being reassigned: it was cancelled",
        )


def _leader_change(old: PartitionRegistration, new: PartitionRegistration, image: ClusterImage) -> Sum:
    if new.leader == NO_LEADER:
        return Sum(Kind.PARTITIONS_OFFLINE, "{have} no leader: no in-sync replica is alive")
    if new.recovery_state == RECOVERING and old.recovery_state != RECOVERING:
        return Sum(
            Kind.UNCLEAN_ELECTION,
            f"{{have}} broker {new.leader} as leader by an unclean election: acknowledged records may be lost",
            new.leader,
        )
    if old.leader == NO_LEADER:
        return Sum(Kind.PARTITIONS_ONLINE, "{have} a leader again")
    former: Broker | None = image.brokers.get(old.leader)
    why = ""
    if former is None or former.fenced:
        why = f": broker {old.leader} was fenced"
    elif former.in_controlled_shutdown:
        why = f": broker {old.leader} is shutting down"
    elif old.leader not in new.replicas:
        why = f": broker {old.leader} no longer has a replica"
    elif new.leader == new.replicas[0]:
        why = f": broker {new.leader} is the preferred leader"
    return Sum(Kind.LEADERS_CHANGED, f"changed leader{why}", old.leader)


_ONE: Final = {"have": "has", "are": "is", "were": "was", "its": "its", "lost": "lost"}
_SEVERAL: Final = {"have": "have", "are": "are", "were": "were", "its": "their", "lost": "lost"}


def _of(partitions: _Partitions, what: str) -> tuple[str, str | None, tuple[str, ...]]:
    """The sentence, and the topic or topics that it is about."""
    rest = what.format(**(_ONE if partitions.count == 1 else _SEVERAL))
    topics = tuple(partitions.topics)
    if partitions.count == 1:
        return f"{partitions.first} {rest}", topics[0], ()
    if len(topics) == 1:
        return f"{_counted(partitions.count)} of {topics[0]} {rest}", topics[0], ()
    several = f"{len(topics)}" if len(topics) <= TOPICS_MAX else f"more than {TOPICS_MAX}"
    return f"{_counted(partitions.count)} of {several} topics {rest}", None, topics[:TOPICS_MAX]


def _counted(partitions: int) -> str:
    return "1 partition" if partitions == 1 else f"{partitions:,} partitions"


def _owner(resource: Resource) -> str:
    if resource.type == ResourceType.TOPIC:
        return f"topic {resource.name}"
    if resource.type == ResourceType.BROKER:
        return f"broker {resource.name}" if resource.name else "all brokers"
    return f"group {resource.name}" if resource.type == ResourceType.GROUP else resource.name


def _named(names: list[str]) -> str:
    shown = ", ".join(names[:NAMED_MAX])
    return shown if len(names) <= NAMED_MAX else f"{shown} and {len(names) - NAMED_MAX} more"
