"""A produced batch that is staged in a later turn, because its records are inspected beside the event loop first.

    inspect --> judged --> [ask the transaction's coordinator] --> stage --> finish
                                                                     |
       <------------------ the topic's settings have changed --------+

What may have changed meanwhile is checked when the batch is staged: who leads, the producer's sequence, and for a
transactional batch whether its transaction is still open (an answer of the coordinator is good for one turn).
"""

from collections.abc import Callable, Mapping

from penstock.base.errors import KafkaError
from penstock.base.ids import TopicPartition
from penstock.handlers.support.context import Context
from penstock.handlers.support.txn_verification import Claim, check_first_sequence, verify_partitions
from penstock.replica import Partition
from penstock.storage import Appended, Inspected, Inspection, NeedsInspection

Finish = Callable[["Appended | KafkaError"], None]
"""Called once, with the batch's place in the log or with why it has none."""


def check_verified(partition: Partition, fates: Mapping[TopicPartition, KafkaError]) -> None:
    error = fates.get(partition.name)
    if error is not None:
        raise error


class DeferredBatch:
    def __init__(
        self,
        context: Context,
        partition: Partition,
        data: bytes | bytearray,
        acks: int,
        claim: Claim | None,
        finish: Finish,
    ) -> None:
        """`data` is the batch's own copy: the frame it came in is gone when the turn ends. `claim` is what a
        transactional batch says of its transaction."""
        self.records = memoryview(data)
        self.finish = finish
        self._context, self._partition = context, partition
        self._acks = acks
        self._claim = claim

    def inspect(self, inspection: Inspection) -> None:
        self._context.replicas.inspections.inspect(inspection).then(self._inspected, self.finish)

    def _inspected(self, found: Inspected) -> None:
        if self._claim is None:
            self.stage({}, found)
        else:
            asked = verify_partitions(self._context, self._claim, [self._partition])
            asked.then(lambda fates: self.stage(fates, found))

    def stage(self, fates: Mapping[TopicPartition, KafkaError], inspected: Inspected | None = None) -> None:
        """Stage it now; or inspect it first, and stage it then."""
        partition = self._partition
        try:
            partition.check_refused(self.records)
            if self._claim is not None:
                check_verified(partition, fates)
                check_first_sequence(self._claim, partition, self.records)
            appended = partition.stage(
                self.records, self._acks, self._context.world.now_ms(), inspected=inspected
            )
        except NeedsInspection as needs:
            self.inspect(needs.inspection)
        except KafkaError as error:
            self.finish(error)
        else:
            self.finish(appended)
