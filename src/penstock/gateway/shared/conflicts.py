"""What is asked of a group, and does not go with how the group is now."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

Assignments: TypeAlias = Mapping[str, Sequence[int]]
"""Partitions by topic; a topic of which the member has none now, too."""


class Conflict(Exception):
    def __init__(self, code: str, message: str, assignments: Assignments | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.assignments = assignments
        """What the member has now; None where nobody said who asks, or it is no member."""
