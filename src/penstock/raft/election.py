"""The persistent election state, and the count of votes."""

from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.base.ids import LeaderEpoch
from penstock.raft.voters import ReplicaKey, VoterSet

NO_LEADER = -1


class ElectionState(NamedTuple):
    """State that must be on disk before any message about it is sent.

    Invariant: the epoch never decreases, and within an epoch neither the vote nor the leader changes once set.
    """

    epoch: LeaderEpoch = 0
    leader_id: int = NO_LEADER
    voted: ReplicaKey | None = None


@dataclass(slots=True)
class Tally:
    """Votes of one election, among the voters at its start."""

    voters: VoterSet
    granted: set[int] = field(default_factory=set)
    rejected: set[int] = field(default_factory=set)

    def record(self, voter_id: int, granted: bool) -> None:
        if self.voters.by_id(voter_id) is None:
            return
        (self.granted if granted else self.rejected).add(voter_id)

    @property
    def is_won(self) -> bool:
        return len(self.granted) >= self.voters.majority

    @property
    def is_lost(self) -> bool:
        return len(self.voters) - len(self.rejected - self.granted) < self.voters.majority

    def waits_for(self, voter_id: int) -> bool:
        return voter_id not in self.granted and voter_id not in self.rejected
