"""Errors of segment file paths, and of the records in them."""

from penstock.base.errors import KafkaError


class BadOption(KafkaError):
    """An invalid option or combination of options."""


class DataLoss(KafkaError):
    """Requested records no longer exist, and `failOnDataLoss` is true."""
