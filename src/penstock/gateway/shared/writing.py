"""Writing a batch as a producer with acks=all does: answered when it is as durable as the settings promise."""

from penstock.base.errors import KafkaError
from penstock.base.ids import TimestampMs
from penstock.base.promise import Promise
from penstock.handlers.support.context import Context
from penstock.replica import ALL_IN_SYNC, Partition
from penstock.storage import Appended

WAIT_MS_MAX = 30_000
"""Kafka's clients wait so long for a batch (`request.timeout.ms`)."""


class Write(Promise["Appended | KafkaError"]):
    """A `DelayedProduce`, and its answer."""

    __slots__ = ("acks", "appended", "deadline_ms")

    appended: Appended
    """Once it is staged."""

    def __init__(self, deadline_ms: TimestampMs) -> None:
        super().__init__()
        self.acks = ALL_IN_SYNC
        self.deadline_ms = deadline_ms

    def settle(self, error: KafkaError | None) -> None:
        self.resolve(self.appended if error is None else error)


def append(context: Context, partition: Partition, batch: bytearray) -> Promise["Appended | KafkaError"]:
    """Write a batch, as `build_batch` makes it. Until the answer is there, nobody may be told that it is written, and
    after an error it may still be."""
    now_ms = context.world.now_ms()
    write = Write(now_ms + WAIT_MS_MAX)

    def staged(outcome: Appended | KafkaError) -> None:
        if isinstance(outcome, KafkaError):
            write.resolve(outcome)
        else:
            write.appended = outcome
            partition.wait(write)

    partition.stage_own(batch, now_ms, staged)
    return write
