"""Errors of logs, each with its Kafka error code."""

from penstock.base.errors import ErrorCode, KafkaError


class StorageError(KafkaError):
    """The disk failed; the log stays readable."""

    code = ErrorCode.KAFKA_STORAGE_ERROR


class CorruptLog(StorageError):
    """Damaged bytes in the middle of a log."""

    def __init__(self, path: str, position: int, problem: str) -> None:
        super().__init__(f"{path} at position {position}: {problem}")
        self.path = path
        self.position = position
        self.problem = problem

    def __reduce__(self) -> tuple[type["CorruptLog"], tuple[str, int, str]]:
        """Pickles the error, for child processes."""
        return type(self), (self.path, self.position, self.problem)


class OffsetOutOfRange(KafkaError):
    code = ErrorCode.OFFSET_OUT_OF_RANGE


class DirectoryRefused(StorageError):
    """The data directory cannot be used; the message says why."""


class BadCheckpoint(Exception):
    """A damaged checkpoint, snapshot or index, which is rebuilt."""


class SegmentGone(Exception):
    """A segment was deleted or replaced during a read: retry with the current list."""
