"""What must hold of topics that are deleted and created again, beside what holds of each of their lives."""

from collections import defaultdict
from collections.abc import Iterable

from penstock.base.ids import Offset, TopicPartition
from penstock.sim.checkers.history import Acked, Audited, Batch, Event, FetchReceived, Sent, TopicDescribed
from penstock.sim.checkers.records import Checker, Durability, Rules, SentRecords
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
    """What was written in one life of a topic is in no other.

    `NoChangedRecord` says so of what was written by id. What was sent by name, once, and acknowledged before the
    deletion was asked for that a life came after, is not in that life; and no view has records of two lives.
    """

    def __init__(self, rules: Rules, durability: Durability, sent: SentRecords) -> None:
        super().__init__(rules, durability, sent)
        self._deletions: dict[str, int] = defaultdict(int)
        """How often a topic's deletion was asked for."""
        self._settled: dict[Batch, int] = {}
        """Of what was sent by name and can be nowhere else: how many deletions had been asked for by then."""
        self._began: dict[str, int] = {}
        """Of each life: how many had been asked for before it began, at least."""

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
            case _:
                pass

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
                    f"{consumer} read {value!r} in {at} at {offset}, which nobody sent there"
                )
            if is_life(batch.at.topic):
                lives.add(batch.at.topic)
        if len(lives) > 1:
            raise self.violation(f"{consumer} read records of {sorted(lives)} in {at} at once")


class TopicsEndOnPurpose(Checker):
    """In the end a topic is in a life that was not deleted, and every other life of it was."""

    def __init__(self, rules: Rules, durability: Durability, sent: SentRecords) -> None:
        super().__init__(rules, durability, sent)
        self._met: dict[str, set[str]] = defaultdict(set)
        self._condemned: set[str] = set()
        """Lives that may be over."""
        self._over: set[str] = set()
        """Lives that are."""
        self._vague: set[str] = set()
        """Topics of which any life may be over: a deletion by name was lost."""

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
            case _:
                pass

    def _check_end(self, last: str) -> None:
        topic = topic_name(last)
        if last in self._over:
            raise self.violation(f"{last} was deleted, and is there in the end")
        if topic not in self._vague:
            for scope in sorted(self._met[topic] - self._condemned - {last}):
                raise self.violation(f"{scope} was never deleted, and in the end there is {last}")


LIFE_CHECKERS = LivesApart, TopicsEndOnPurpose
