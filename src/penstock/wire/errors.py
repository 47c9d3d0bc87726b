"""What may be wrong with the bytes of a peer.

Whatever arrives, reading it raises one of these and nothing else: the connection that sent it is closed,
and the broker goes on.
"""

from penstock.base.errors import ErrorCode, KafkaError


class BadFrame(KafkaError):
    """The stream cannot be cut into frames any more: a length is negative or beyond what is allowed."""

    code = ErrorCode.INVALID_REQUEST


class MalformedRequest(KafkaError):
    """A whole frame that is not the message it claims to be. Kafka closes the connection on it, so do we."""

    code = ErrorCode.INVALID_REQUEST


class UnsupportedVersion(MalformedRequest):
    """An API, or a version of one, that has no reader here."""

    code = ErrorCode.UNSUPPORTED_VERSION


class MalformedResponse(KafkaError):
    """The same on the client's side: a broker's reply that does not read as one."""

    code = ErrorCode.CORRUPT_MESSAGE
