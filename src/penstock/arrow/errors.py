"""What can be wrong with a path of segment files, or with the records that are read from it."""

from penstock.base.errors import KafkaError


class BadOption(KafkaError):
    """An option, or a set of them, that the source cannot work with."""


class DataLoss(KafkaError):
    """Records that were to be read are gone, and `failOnDataLoss` says that this is an error."""
