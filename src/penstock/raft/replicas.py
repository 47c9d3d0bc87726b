"""A leader's view of its replicas: how far each has fetched, and when."""

from dataclasses import dataclass

from penstock.base.ids import Offset, TimestampMs
from penstock.raft.config import CAUGHT_UP_WITHIN_MS, OBSERVER_SESSION_MS
from penstock.raft.voters import ReplicaKey, VoterSet


@dataclass(slots=True)
class Progress:
    key: ReplicaKey
    end_offset: Offset = -1
    """Everything below is on the replica's disk. A late old fetch moves it back, but not the high watermark."""
    last_fetch_ms: TimestampMs = -1
    last_caught_up_ms: TimestampMs = -1
    leader_end_offset: Offset = -1
    """The leader's log end at its last fetch: a later fetch from there shows that it was caught up then."""

    def fetched(self, offset: Offset, leader_end_offset: Offset, now_ms: TimestampMs) -> None:
        if offset >= leader_end_offset:
            self.last_caught_up_ms = max(now_ms, self.last_caught_up_ms)
        elif 0 <= self.leader_end_offset <= offset:
            self.last_caught_up_ms = max(self.last_fetch_ms, self.last_caught_up_ms)
        self.end_offset = offset
        self.leader_end_offset = leader_end_offset
        self.last_fetch_ms = max(now_ms, self.last_fetch_ms)


class Replicas:
    """Voters and observers by key, so that an observer that becomes a voter keeps its progress."""

    def __init__(self, local: ReplicaKey, since_ms: TimestampMs) -> None:
        self._local = local
        self._since_ms = since_ms
        self._progress: dict[ReplicaKey, Progress] = {}

    def fetched(
        self, key: ReplicaKey, offset: Offset, leader_end_offset: Offset, now_ms: TimestampMs
    ) -> None:
        self._progress.setdefault(key, Progress(key)).fetched(offset, leader_end_offset, now_ms)

    def asked_for_snapshot(self, key: ReplicaKey, now_ms: TimestampMs) -> None:
        progress = self._progress.setdefault(key, Progress(key))
        progress.last_fetch_ms = max(now_ms, progress.last_fetch_ms)

    def of(self, key: ReplicaKey) -> Progress:
        """Return the progress of a voter, whose key in the set may have no directory."""
        exact = self._progress.get(key)
        if exact is not None:
            return exact
        matching = [each for each in self._progress.values() if key.covers(each.key)]
        return max(matching, key=lambda each: each.last_fetch_ms, default=Progress(key))

    def reached_by_majority(self, voters: VoterSet, local_flushed: Offset) -> Offset:
        """Return the largest offset that a majority of the voters has on disk; -1 for none."""
        return voters.reached_by_majority(
            lambda voter: local_flushed if voter.key.covers(self._local) else self.of(voter.key).end_offset
        )

    def majority_fetched_ms(self, voters: VoterSet) -> TimestampMs | None:
        """Return the latest time since which a majority has fetched; None if this node alone is a majority."""
        times = sorted(
            (max(self.of(voter.key).last_fetch_ms, self._since_ms) for voter in voters.others(self._local)),
            reverse=True,
        )
        needed = voters.majority - (len(voters) - len(times))
        return times[needed - 1] if needed > 0 else None

    def successors(self, voters: VoterSet) -> tuple[ReplicaKey, ...]:
        """Return the other voters, most complete first."""
        others = [voter.key for voter in voters.others(self._local)]
        return tuple(sorted(others, key=lambda key: (-self.of(key).end_offset, key.id)))

    def is_caught_up(self, key: ReplicaKey, now_ms: TimestampMs) -> bool:
        progress = self.of(key)
        return progress.last_caught_up_ms >= 0 and progress.last_fetch_ms > now_ms - CAUGHT_UP_WITHIN_MS

    def observers(self, voters: VoterSet, now_ms: TimestampMs) -> list[Progress]:
        gone = [
            key
            for key, each in self._progress.items()
            if voters.find(key) is None and each.last_fetch_ms <= now_ms - OBSERVER_SESSION_MS
        ]
        for key in gone:
            del self._progress[key]
        observers = [each for each in self._progress.values() if voters.find(each.key) is None]
        return sorted(observers, key=lambda each: each.key)
