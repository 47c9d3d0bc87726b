"""Errors of malformed batches.

Reading any bytes raises one of these and nothing else, so one `except CorruptBatch` covers a whole read.
"""

from penstock.base.errors import ErrorCode, KafkaError


class CorruptBatch(KafkaError):
    """The bytes are not a sound record batch."""

    code = ErrorCode.CORRUPT_MESSAGE

    position: int
    """Position in the buffer: of the batch for a header, of the byte for a record."""

    def __init__(self, message: str, position: int = 0) -> None:
        super().__init__(message)
        self.position = position


class UnsupportedMagic(CorruptBatch):
    """A message set of Kafka 0.10 or older (magic 0 or 1), which Kafka 4 no longer writes."""

    code = ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


class DecompressedTooLarge(CorruptBatch):
    """The records decompress to more bytes than the limit.

    The code is MESSAGE_TOO_LARGE and not CORRUPT_MESSAGE: clients resend a corrupt batch unchanged, but split one that
    is too large.
    """

    code = ErrorCode.MESSAGE_TOO_LARGE


class TooLongToValidate(Exception):
    """Validating the batch would block the event loop: it must be done in another process.

    Not a `KafkaError`: the batch may be valid.
    """
