"""Voters: replicas identified by id and directory, and sets of them.

A replica that lost its disk returns with the same id and another directory id. It counts as another replica, so that
votes and acknowledgements of the lost disk are not attributed to the new one (KIP-853). A statically configured set
(`controller.quorum.voters`) has no directories; its voters have `NO_DIRECTORY`, which matches any.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from penstock.base.ids import uuid_text

NO_DIRECTORY = UUID(int=0)


class ReplicaKey(NamedTuple):
    id: int
    directory_id: UUID = NO_DIRECTORY

    def __str__(self) -> str:
        if self.directory_id == NO_DIRECTORY:
            return f"replica {self.id}"
        return f"replica {self.id} of directory {uuid_text(self.directory_id.bytes)}"

    def covers(self, other: "ReplicaKey") -> bool:
        """Return whether this key matches another: the same id and, if this key has a directory, the same one."""
        return self.id == other.id and self.directory_id in (NO_DIRECTORY, other.directory_id)


class Endpoint(NamedTuple):
    """Name and address of a replica's listener."""

    listener: str
    host: str
    port: int


class Voter(NamedTuple):
    key: ReplicaKey
    endpoints: tuple[Endpoint, ...] = ()
    kraft_versions: tuple[int, int] = (0, 1)
    """Lowest and highest `kraft.version` that the voter supports; part of the voters record."""


class Peer(NamedTuple):
    """The target of a request. A bootstrap server, whose id is unknown, has a negative id."""

    id: int
    endpoints: tuple[Endpoint, ...]


@dataclass(frozen=True, slots=True)
class VoterSet:
    """Immutable and sorted by id; no two voters share an id."""

    voters: tuple[Voter, ...] = ()

    @classmethod
    def of(cls, voters: Iterable[Voter]) -> "VoterSet":
        chosen = tuple(sorted(voters, key=lambda voter: voter.key.id))
        if len({voter.key.id for voter in chosen}) != len(chosen):
            raise ValueError(f"voter ids are {[voter.key.id for voter in chosen]}, expected no duplicates")
        return cls(chosen)

    def __iter__(self) -> Iterator[Voter]:
        return iter(self.voters)

    def __len__(self) -> int:
        return len(self.voters)

    @property
    def majority(self) -> int:
        return len(self.voters) // 2 + 1

    def reached_by_majority(self, position: Callable[[Voter], int]) -> int:
        """Return the largest position that a majority of the voters has reached; -1 without voters.

        voters at 7, 9 and 12: two of three have reached 9.
        """
        positions = sorted(map(position, self.voters), reverse=True)
        return positions[self.majority - 1] if positions else -1

    def by_id(self, replica_id: int) -> Voter | None:
        return next((voter for voter in self.voters if voter.key.id == replica_id), None)

    def find(self, key: ReplicaKey) -> Voter | None:
        """Return the voter that matches a replica, if any."""
        return next((voter for voter in self.voters if voter.key.covers(key)), None)

    def others(self, key: ReplicaKey) -> tuple[Voter, ...]:
        return tuple(voter for voter in self.voters if not voter.key.covers(key))

    def with_voter(self, voter: Voter) -> "VoterSet":
        return VoterSet.of((*self.voters, voter))

    def without(self, key: ReplicaKey) -> "VoterSet":
        return VoterSet(self.others(key))
