"""Exceptions of the Spark source and sink. Each message is one sentence for the user who runs the job.

Messages cross processes: a Python worker raises them, and Spark shows them at the end of its own exception.
"""

from penstock.arrow.errors import BadOption, DataLoss
from penstock.base.errors import KafkaError

__all__ = ["ArchiveFault", "BadOption", "BadRows", "DataLoss", "RowsLost", "SparkMissing", "WriteFailed"]


class SparkMissing(KafkaError):
    """A dependency of Spark is missing or too old; the message says what to install."""


class BadRows(KafkaError):
    """Rows cannot be written as records: a column is missing, has another type, or a value out of range."""


class WriteFailed(KafkaError):
    """A batch could not be written, and none of it is visible to read_committed readers."""


class RowsLost(KafkaError):
    """A batch was recorded as written, and part of it was lost. Never ignored silently."""


class ArchiveFault(KafkaError):
    """An archive cannot be written, compared or replayed."""
