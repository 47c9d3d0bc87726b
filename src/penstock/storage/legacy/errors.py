"""Why a directory of an older system is not read or not written."""

from penstock.storage.errors import StorageError


class LegacyError(StorageError):
    """The import or export cannot be done; the message says why."""


class CorruptSource(LegacyError):
    """Damaged bytes with sound records behind them."""

    def __init__(self, path: str, position: int, problem: str) -> None:
        super().__init__(f"{path} at position {position}: {problem}")
        self.path = path
        self.position = position
        self.problem = problem


class OffsetsOutOfOrder(CorruptSource):
    """A record whose offset cannot follow the one before it."""
