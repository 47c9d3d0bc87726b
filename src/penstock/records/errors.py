"""What may be wrong with the bytes of a batch.

Whatever the bytes, reading them raises one of these and nothing else, so one `except CorruptBatch`
covers a whole read.
"""

from penstock.base.errors import ErrorCode, KafkaError


class CorruptBatch(KafkaError):
    """The bytes are not a sound record batch."""

    code = ErrorCode.CORRUPT_MESSAGE

    position: int
    """Where in the buffer being read the trouble starts: the batch for a header, the byte for a record."""

    def __init__(self, message: str, position: int = 0) -> None:
        super().__init__(message)
        self.position = position


class UnsupportedMagic(CorruptBatch):
    """A message set of Kafka 0.10 or older (magic 0 or 1), which Kafka 4 does not write either."""

    code = ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


class DecompressedTooLarge(CorruptBatch):
    """The records unpack to more bytes than the reader is willing to hold.

    The code is MESSAGE_TOO_LARGE and not CORRUPT_MESSAGE: clients send a corrupt message again as it
    is, whereas they answer "too large" by splitting the batch, which is the cure.
    """

    code = ErrorCode.MESSAGE_TOO_LARGE


class TooLongToValidate(Exception):
    """To judge the batch takes longer than the event loop may be held: it has to be done beside it.

    This says nothing about the batch, so it is no `KafkaError`: whoever judges batches on the loop catches it.
    """
