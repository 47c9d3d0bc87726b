"""Rules for topics that are deleted and created again, in addition to those for each of their lives."""

from collections import defaultdict
from collections.abc import Iterable

from penstock.base.ids import Offset, TopicPartition
from penstock.sim.checkers.history import Acked, Audited, Batch, Event, FetchReceived, Sent, TopicDescribed
from penstock.sim.checkers.records import Checker
from penstock.sim.topic_lives import (
    Deleted,
    DeletionLost,
    DeletionSent,
    LifeStarted,
    ReadByName,
    is_life,
    topic_name,
)


class LivesApart(Checker):
    """A record written in one life of a topic is in no other life.

    `NoChangedRecord` covers records written by topic id. A record that was sent by name, once, and acknowledged before
    a deletion was sent, is not in a life that began after that deletion. No fetch returns records of two lives.
    """

    def begin(self) -> None:
        self._deletions: dict[str, int] = defaultdict(int)
        """Number of deletions sent, by topic."""
        self._settled: dict[Batch, int] = {}
        """Number of deletions sent before each batch was acknowledged; batches sent once, by name."""
        self._began: dict[str, int] = {}
        """Lower bound of the number of deletions sent before each life began."""

    def see(self, event: Event) -> None:
        match event:
            case DeletionSent(topic, _):
                self._deletions[topic] += 1
            case LifeStarted(topic, scope):
                self._began[scope] = self._deletions[topic]
            case Acked(batch, _, _, _) if batch.at.topic in self.rules.renewed and batch.sends == 1:
                self._settled[batch] = self._deletions[batch.at.topic]
            case Sent(batch):
                self._settled.pop(batch, None)
            case FetchReceived() | Audited() if is_life(event.at.topic):
                self._check(event.at, ((each.offset, each.value) for each in event.records))
            case ReadByName(consumer, at, values):
                self._check_view(consumer, at, values)

    def _check(self, at: TopicPartition, records: Iterable[tuple[Offset, bytes]]) -> None:
        began = self._began.get(at.topic, 0)
        for offset, value in records:
            batch, _ = self.sent.batches.get(value, (None, None))
            if batch is not None and self._settled.get(batch, began) < began:
                raise self.violation(
                    f"{at} at {offset} has {value!r}, which was acknowledged before this life began"
                )

    def _check_view(self, consumer: str, at: TopicPartition, values: list[tuple[Offset, bytes]]) -> None:
        lives = set[str]()
        for offset, value in values:
            batch, _ = self.sent.batches.get(value, (None, None))
            if batch is None or topic_name(batch.at.topic) != at.topic or batch.at.partition != at.partition:
                raise self.violation(
                    f"{consumer} read {value!r} in {at} at {offset}, which was never sent there"
                )
            if is_life(batch.at.topic):
                lives.add(batch.at.topic)
        if len(lives) > 1:
            raise self.violation(f"{consumer} read records of several lives in {at} at once: {sorted(lives)}")


class TopicsEndOnPurpose(Checker):
    """At the end, the topic's current life was not deleted, and every other one was."""

    def begin(self) -> None:
        self._met: dict[str, set[str]] = defaultdict(set)
        self._condemned: set[str] = set()
        """Lives that may be deleted."""
        self._over: set[str] = set()
        """Lives that are deleted."""
        self._vague: set[str] = set()
        """Topics of which any life may be deleted: the reply to a deletion by name was lost."""

    def see(self, event: Event) -> None:
        match event:
            case TopicDescribed(name, _, _) if is_life(name):
                self._met[topic_name(name)].add(name)
            case LifeStarted(topic, scope):
                self._met[topic].add(scope)
            case DeletionSent(topic, scope):
                self._condemned |= self._met[topic] if scope is None else {scope}
            case DeletionLost(topic):
                self._vague.add(topic)
            case Deleted(_, scope):
                self._over.add(scope)
            case Audited(at, _, _, _) if is_life(at.topic):
                self._check_end(at.topic)

    def _check_end(self, last: str) -> None:
        topic = topic_name(last)
        if last in self._over:
            raise self.violation(f"{last} was deleted, and still exists at the end")
        if topic not in self._vague:
            for scope in sorted(self._met[topic] - self._condemned - {last}):
                raise self.violation(f"{scope} was never deleted, but {last} exists at the end")


LIFE_CHECKERS = LivesApart, TopicsEndOnPurpose
