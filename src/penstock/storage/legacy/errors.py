"""Errors of import and export."""

from penstock.storage.errors import StorageError


class LegacyError(StorageError):
    """The import or export cannot be done; the message says why."""


class CorruptSource(LegacyError):
    """Damaged bytes, followed by sound records."""

    def __init__(self, path: str, position: int, problem: str) -> None:
        super().__init__(f"{path} at position {position}: {problem}")
        self.path = path
        self.position = position
        self.problem = problem


class OffsetsOutOfOrder(CorruptSource):
    """A record whose offset cannot follow the one before it."""
