"""What goes wrong between Spark and a log, each as one sentence for whoever runs the job.

A sentence crosses processes: it is raised in a Python worker and shown at the end of Spark's own exception.
"""

from penstock.arrow.errors import BadOption, DataLoss
from penstock.base.errors import KafkaError

__all__ = ["ArchiveFault", "BadOption", "BadRows", "DataLoss", "RowsLost", "SparkMissing", "WriteFailed"]


class SparkMissing(KafkaError):
    """What Spark needs on this machine is not there, or is too old; the message says what to install."""


class BadRows(KafkaError):
    """Rows that cannot be written as records: a column that is missing, of another type, or out of its range."""


class WriteFailed(KafkaError):
    """A batch could not be written, and nothing of it is visible to who reads committed records."""


class RowsLost(KafkaError):
    """A batch was recorded as written, and part of it is gone: what must never pass without a word."""


class ArchiveFault(KafkaError):
    """An archive that cannot be written, compared or replayed as it is."""
