"""What a node promises about an epoch, and the count of the votes it asks for."""

from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.base.ids import LeaderEpoch
from penstock.raft.voters import ReplicaKey, VoterSet

NO_LEADER = -1


class ElectionState(NamedTuple):
    """What must be on disk before a word about it is sent.

    Invariant: the epoch never goes back, and within an epoch neither a vote nor a leader is ever replaced by
    another one.
    """

    epoch: LeaderEpoch = 0
    leader_id: int = NO_LEADER
    voted: ReplicaKey | None = None


@dataclass(slots=True)
class Tally:
    """Votes of one election, among the voters at its beginning."""

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
