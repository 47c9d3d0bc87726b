"""What can go wrong with a log, each with the Kafka error code that a client is given."""

from penstock.base.errors import ErrorCode, KafkaError


class StorageError(KafkaError):
    """The disk refused or lost something; the log stays readable."""

    code = ErrorCode.KAFKA_STORAGE_ERROR


class CorruptLog(StorageError):
    """Bytes in the middle of a log that are not what was written there."""

    def __init__(self, path: str, position: int, problem: str) -> None:
        super().__init__(f"{path} at position {position}: {problem}")
        self.path = path
        self.position = position
        self.problem = problem

    def __reduce__(self) -> tuple[type["CorruptLog"], tuple[str, int, str]]:
        """It also comes back from a child process."""
        return type(self), (self.path, self.position, self.problem)


class OffsetOutOfRange(KafkaError):
    code = ErrorCode.OFFSET_OUT_OF_RANGE


class DirectoryRefused(StorageError):
    """The data directory cannot be used; the message says why."""


class BadCheckpoint(Exception):
    """A checkpoint, snapshot or index that cannot be what we wrote; it is rebuilt, never trusted."""


class SegmentGone(Exception):
    """A reader holds a segment that was deleted or replaced meanwhile: look again in the current list."""
