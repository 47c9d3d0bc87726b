"""A produced batch that is staged in a later tick, after its records were inspected outside the event loop.

    inspect --> inspected --> [ask the transaction's coordinator] --> stage --> staged
                                                                        |
       <------------------ the topic's settings have changed -----------+

Staging checks what may have changed meanwhile: the leader, the producer's sequence, and for a transactional batch
whether its transaction is still open (the coordinator's answer is valid for one tick).
"""

from collections.abc import Mapping

from penstock.base.errors import KafkaError
from penstock.base.ids import TopicPartition
from penstock.base.promise import Promise
from penstock.handlers.support.context import Context
from penstock.handlers.support.txn_verification import Claim, check_first_sequence, verify_partitions
from penstock.replica import Partition
from penstock.storage import Appended, Inspected, Inspection, NeedsInspection


def check_verified(partition: Partition, errors: Mapping[TopicPartition, KafkaError]) -> None:
    error = errors.get(partition.name)
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
    ) -> None:
        """`data` is a copy of the batch, since its frame is invalid after this tick. `claim` is the transaction that a
        transactional batch names."""
        self.records = memoryview(data)
        self.staged: Promise[Appended] = Promise()
        self._context, self._partition = context, partition
        self._acks = acks
        self._claim = claim

    def inspect(self, inspection: Inspection) -> None:
        self._context.replicas.inspections.inspect(inspection).then(self._inspected, self.staged.fail)

    def _inspected(self, found: Inspected) -> None:
        if self._claim is None:
            self.stage({}, found)
        else:
            verified = verify_partitions(self._context, self._claim, [self._partition])
            verified.then(lambda errors: self.stage(errors, found))

    def stage(self, errors: Mapping[TopicPartition, KafkaError], inspected: Inspected | None = None) -> None:
        """Stage the batch; or inspect it first, and stage it then."""
        partition = self._partition
        try:
            partition.check_refused(self.records)
            if self._claim is not None:
                check_verified(partition, errors)
                check_first_sequence(self._claim, partition, self.records)
            appended = partition.stage(
                self.records, self._acks, self._context.world.now_ms(), inspected=inspected
            )
        except NeedsInspection as needs:
            self.inspect(needs.inspection)
        except KafkaError as error:
            self.staged.fail(error)
        else:
            self.staged.resolve(appended)
