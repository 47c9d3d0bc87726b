"""Errors of schemas and of values that do not decode."""

from penstock.base.errors import KafkaError


class BadSchema(KafkaError):
    """A schema cannot be parsed, or has no columns in Arrow; or values of one cannot be read with the other."""


class NotDecodable(ValueError):
    """A value does not decode. The message is the reason, without the value's place."""
