"""Rules for HTTP and the line protocol, in addition to those for all records."""

from collections import defaultdict
from dataclasses import dataclass

from penstock.base.ids import Offset, TopicPartition
from penstock.sim.checkers.history import (
    Acked,
    DoorCommitEnded,
    DoorCommitSent,
    DoorFetchReceived,
    DoorFetchSent,
    Event,
    KeyAnswered,
)
from penstock.sim.checkers.records import Checker

STRAY_US_MAX = 60_000_000
"""How long an unanswered commit may still be in flight."""


class SameKeySameOffset(Checker):
    """A record that is sent again with its idempotency key gets the same partition and offset as the first time."""

    def begin(self) -> None:
        self._places: dict[str, tuple[TopicPartition, Offset]] = {}

    def see(self, event: Event) -> None:
        if isinstance(event, KeyAnswered):
            place = event.at, event.offset
            known = self._places.setdefault(event.key, place)
            if known != place:
                raise self.violation(
                    f"{event.client} got {known[0]} at {known[1]} for {event.key},"
                    f" and then {event.at} at {event.offset}"
                )


@dataclass
class _DoorCommit:
    offset: Offset
    sent: int
    """Number of the event."""
    sent_us: int
    ended: int | None = None
    """None while it may still take effect."""
    is_done: bool = False


class DoorGroupsGoOn(Checker):
    """A consumer that continues at its group's offset starts exactly there: it repeats and skips no record.

    An unanswered commit may take effect at any time after it was sent. Of two commits that overlap in time, either
    may be the last.
    """

    def begin(self) -> None:
        self._commits: dict[tuple[str, TopicPartition], list[_DoorCommit]] = defaultdict(list)
        self._open: dict[int, _DoorCommit] = {}
        self._places: dict[int, tuple[str, TopicPartition]] = {}
        self._lowest: dict[tuple[int, TopicPartition], Offset] = {}
        """Lowest offset that each request may return."""
        self._there: dict[TopicPartition, set[Offset]] = defaultdict(set)
        """Offsets of acknowledged records."""
        self._moment = 0

    def see(self, event: Event) -> None:
        self._moment += 1
        match event:
            case Acked(batch, base_offset, _, _) if base_offset >= 0:
                self._there[batch.at] |= set(range(base_offset, base_offset + len(batch.records)))
            case DoorCommitSent(number, group, at, offset, now_us):
                commit = self._open[number] = _DoorCommit(offset, self._moment, now_us)
                self._places[number] = group, at
                self._commits[group, at].append(commit)
            case DoorCommitEnded(number, is_done):
                self._end(number, is_done)
            case DoorFetchSent(number, group, places):
                for at in places:
                    self._lowest[number, at] = min(self._candidates(group, at), default=0)
            case DoorFetchReceived():
                self._check(event)

    def _end(self, number: int, is_done: bool | None) -> None:
        if is_done is None:
            return
        commit = self._open.pop(number)
        if is_done:
            commit.ended, commit.is_done = self._moment, True
        else:
            self._commits[self._places[number]].remove(commit)
        self._forget_old(self._commits[self._places[number]])

    def _forget_old(self, commits: list[_DoorCommit]) -> None:
        """Drop commits that were certainly overwritten by a later one."""
        done = max((each for each in commits if each.is_done), key=lambda each: each.sent, default=None)
        if done is not None:
            commits[:] = [
                each
                for each in commits
                if (
                    each.sent_us + STRAY_US_MAX > done.sent_us
                    if each.ended is None
                    else each.ended >= done.sent
                )
            ]

    def _candidates(self, group: str, at: TopicPartition) -> list[Offset]:
        """Return the offsets that the group may have now: that of the last acknowledged commit or of any that may
        follow it; 0 before the first acknowledged commit."""
        commits = self._commits[group, at]
        start = [] if any(each.is_done for each in commits) else [0]
        return start + [each.offset for each in commits]

    def _check(self, event: DoorFetchReceived) -> None:
        at, who = event.at, f"{event.client} of {event.group}"
        for seen in event.records:
            batch, _ = self.sent.batches.get(seen.value, (None, None))
            if batch is None or batch.at != at:
                raise self.violation(
                    f"{who} read {seen.value!r} in {at} at {seen.offset}, which was never sent there"
                )
        if not event.records:
            return
        first = event.records[0].offset
        if event.start is None:
            lowest = self._lowest[event.number, at]
            expected = max(self._candidates(event.group, at))
            if first < lowest:
                raise self.violation(f"{who} read {at} from {first}, though its committed offset is {lowest}")
        else:
            expected = event.start
        for seen in event.records:
            passed_over = sorted(each for each in range(expected, seen.offset) if each in self._there[at])
            if passed_over:
                raise self.violation(
                    f"{who} read {at} at {seen.offset}, and skipped the acknowledged record at {passed_over[0]}"
                )
            if seen.offset < expected and event.start is not None:
                raise self.violation(f"{who} read {at} at {seen.offset} after {expected - 1}")
            expected = max(expected, seen.offset + 1)


DOOR_CHECKERS = SameKeySameOffset, DoorGroupsGoOn
