"""Errors of reading a peer's bytes.

Malformed bytes raise one of the first four and nothing else: the connection is closed, and the broker continues.
"""

from penstock.base.errors import ErrorCode, KafkaError


class BadFrame(KafkaError):
    """A frame's length is negative or above the limit, so that the rest of the stream cannot be read."""

    code = ErrorCode.INVALID_REQUEST


class MalformedRequest(KafkaError):
    """A complete frame that is not a valid request. The connection is closed, as in Kafka."""

    code = ErrorCode.INVALID_REQUEST


class UnsupportedVersion(MalformedRequest):
    """An API or version that is not supported."""

    code = ErrorCode.UNSUPPORTED_VERSION


class MalformedResponse(KafkaError):
    """On the client's side: a complete frame that is not a valid response."""

    code = ErrorCode.CORRUPT_MESSAGE


class RequestRejected(KafkaError):
    """On the client's side: a valid response that rejects the whole request. Only this request fails."""
