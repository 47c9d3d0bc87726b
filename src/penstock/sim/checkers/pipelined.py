"""Rules for idempotent producers with several batches in flight (`clients/pipelined`), across their epochs."""

from collections import defaultdict

from penstock.base.errors import ErrorCode
from penstock.base.ids import Offset, TopicPartition
from penstock.sim.checkers.history import Acked, Audited, Batch, EpochBumped, Event
from penstock.sim.checkers.records import Checker, NoDuplicate


class EpochKept(Checker):
    """No reply of a node makes a producer bump its epoch: no batch is given up or lost."""

    def see(self, event: Event) -> None:
        if isinstance(event, EpochBumped):
            raise self.violation(
                f"{event.producer} got {ErrorCode(event.code).name}, and bumped its epoch to {event.epoch}"
            )


class OnceOverEpochs(NoDuplicate):
    """A record of such a producer is in the log once, even if it was sent with several identities."""

    def copies_max(self, batch: Batch) -> int:
        return 1 if batch.producer in self.rules.pipelined else batch.copies_max


class InOrderOverEpochs(Checker):
    """At the end, such a producer's records are in the order in which it made them."""

    def see(self, event: Event) -> None:
        if not isinstance(event, Audited):
            return
        last: dict[str, tuple[int, Offset]] = {}
        for seen in event.records:
            batch, record = self.sent.batches.get(seen.value, (None, None))
            if batch is None or record is None or batch.producer not in self.rules.pipelined:
                continue
            number, offset = last.get(batch.producer, (-1, -1))
            if record.number <= number:
                raise self.violation(
                    f"{event.at} has record {record.number} of {batch.producer} at {seen.offset}, "
                    f"after record {number} at {offset}"
                )
            last[batch.producer] = record.number, seen.offset


class DeliveredIsThere(Checker):
    """At the end, every batch that such a producer considers delivered is in the log, including those it only inferred
    from the acknowledgement of a later batch."""

    def begin(self) -> None:
        self._delivered: dict[TopicPartition, dict[bytes, Batch]] = defaultdict(dict)

    def see(self, event: Event) -> None:
        match event:
            case Acked(batch) if batch.producer in self.rules.pipelined:
                self._delivered[batch.at] |= {record.value: batch for record in batch.records}
            case Audited(at, start, end, records):
                found = {seen.value for seen in records}
                lost = next((each for each in self._delivered[at] if each not in found), None)
                if lost is not None:
                    raise self.violation(
                        f"{self._delivered[at][lost]} counts as delivered, but {lost!r} is not in "
                        f"{at} from {start} to {end}"
                    )


PIPELINED_CHECKERS = EpochKept, OnceOverEpochs, InOrderOverEpochs, DeliveredIsThere
