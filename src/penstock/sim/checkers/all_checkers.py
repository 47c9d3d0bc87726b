"""All checkers of a run."""

from penstock.sim.checkers.cluster import CLUSTER_CHECKERS, HighWatermarkHeld, MetadataIdentical
from penstock.sim.checkers.doors import DOOR_CHECKERS
from penstock.sim.checkers.groups import OffsetsNotLostOrRewound, OneOwner
from penstock.sim.checkers.history import Event, FetchSent, HighWatermark, MetadataCommitted, Replied
from penstock.sim.checkers.pipelined import PIPELINED_CHECKERS
from penstock.sim.checkers.records import (
    AckedNotLost,
    Checker,
    Durability,
    HighWatermarkNeverBack,
    NoChangedRecord,
    NoDuplicate,
    OrderKept,
    ProducersRemembered,
    Rules,
    SentRecords,
)
from penstock.sim.checkers.replies import EveryRequestAnswered, NoStrangeError, RepliesInOrder, TopicsKept
from penstock.sim.checkers.topic_lives import LIFE_CHECKERS
from penstock.sim.checkers.transactions import (
    CommittedNotHidden,
    EpochsRise,
    ExactlyOnce,
    NoAbortedRead,
    NoDecisionFromHole,
    NoHalfTransaction,
)

CHECKERS: tuple[type[Checker], ...] = (
    AckedNotLost,
    NoChangedRecord,
    NoDuplicate,
    OrderKept,
    HighWatermarkNeverBack,
    RepliesInOrder,
    EveryRequestAnswered,
    ProducersRemembered,
    NoStrangeError,
    TopicsKept,
    NoAbortedRead,
    NoHalfTransaction,
    NoDecisionFromHole,
    CommittedNotHidden,
    EpochsRise,
    OneOwner,
    OffsetsNotLostOrRewound,
    ExactlyOnce,
)


_ALONE: dict[type[Event], type[Checker]] = {
    FetchSent: HighWatermarkNeverBack,
    HighWatermark: HighWatermarkHeld,
    MetadataCommitted: MetadataIdentical,
    Replied: RepliesInOrder,
}
"""Frequent events that concern one rule only."""


class AllCheckers:
    """Passes every event to the checkers that it concerns."""

    def __init__(self, rules: Rules) -> None:
        self._durability, self._sent = Durability(), SentRecords()
        makers = (*CHECKERS, *CLUSTER_CHECKERS) if rules.is_replicated else CHECKERS
        makers = (*makers, *LIFE_CHECKERS) if rules.renewed else makers
        makers = (*makers, *PIPELINED_CHECKERS) if rules.pipelined else makers
        makers = (*makers, *DOOR_CHECKERS) if rules.has_doors else makers
        self._checkers = [make(rules, self._durability, self._sent) for make in makers]
        self._alone = {
            event: [each for each in self._checkers if isinstance(each, rule)]
            for event, rule in _ALONE.items()
        }

    def see(self, event: Event) -> None:
        alone = self._alone.get(type(event))
        if alone is not None:
            for checker in alone:
                checker.see(event)
            return
        self._sent.see(event)
        self._durability.see(event)
        for checker in self._checkers:
            checker.see(event)
