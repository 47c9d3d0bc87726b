"""Produce requests for several partitions: answered when the last of their batches is acknowledged.

A request for many partitions is handled in slices, one in each tick of the event loop. The client's next request waits
until all batches are staged, as it does behind a batch that is inspected (`deferred_batches`).
"""

from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Final, NamedTuple, TypeAlias

from penstock.base.errors import KafkaError
from penstock.base.promise import HoldingPromise, Promise
from penstock.handlers.support.context import Context, Session
from penstock.handlers.support.deferred_batches import DeferredBatch, check_verified
from penstock.handlers.support.produce_admission import admit, batch_error, no_records
from penstock.handlers.support.produce_writers import (
    PartitionOfProduce,
    ProduceResults,
    Reply,
    Unanswered,
    failed,
)
from penstock.handlers.support.txn_verification import (
    Claim,
    VerificationErrors,
    check_first_sequence,
    claim_of,
    is_transactional,
    verify_partitions,
)
from penstock.replica import Partition
from penstock.storage import Appended, Inspection, NeedsInspection
from penstock.wire import ProduceRequest, RequestHeader, TopicKey, produce_reply

SLICE_PARTITIONS: Final = 200
"""Partitions in a slice, which takes some 5 ms. Clients with more in one request are rare."""

Row: TypeAlias = tuple[int, int]
"""Of a partition in the request: the row of its topic, and its own within the topic."""


class _Sent(NamedTuple):
    """A batch of the request."""

    row: Row
    topic: TopicKey
    number: int
    records: memoryview | None


class _Admitted(NamedTuple):
    """A batch that its client may write, and whose partition this broker leads."""

    row: Row
    topic: TopicKey
    partition: Partition
    records: memoryview


def produce_many(
    context: Context, session: Session, header: RequestHeader, request: ProduceRequest
) -> Promise[Reply] | None:
    """The promise of the reply; None where there is none, and nothing to wait for."""
    return _ManyBatches(context, session, header, request).write()


class _ManyBatches:
    def __init__(
        self, context: Context, session: Session, header: RequestHeader, request: ProduceRequest
    ) -> None:
        self._context, self._session, self._header, self._request = context, session, header, request
        self._whole = ProduceResults(context.metrics.produce, header, request)
        self._open = 0
        """Batches that are not staged yet, plus one while slices are left."""
        self._holding: HoldingPromise[Reply] | None = None

    # -- holding back the client's next request -------------------------------------------------------

    def _hold(self, count: int) -> None:
        """`count` more batches are staged in later ticks: the reply holds back the client's next request."""
        self._open += count
        if count and self._holding is None:
            self._holding = self._whole.later = HoldingPromise()

    def _let_go(self, count: int) -> None:
        """`count` of them are staged, or rejected."""
        self._open -= count
        if not self._open and self._holding is not None:
            if self._request.acks == 0:
                self._holding.resolve([])
            self._holding.let_go()

    # -- slices ----------------------------------------------------------------------------------------

    def write(self) -> Promise[Reply] | None:
        whole = self._whole
        if not whole.count:
            whole.later.resolve([produce_reply(self._header.api_version, self._header.correlation_id, [])])
            return whole.later
        batches = iter(
            [
                _Sent((topic_at, at), topic, number, records)
                for topic_at, (topic, partitions) in enumerate(self._request.topics)
                for at, (number, records) in enumerate(partitions)
            ]
        )
        if whole.count > SLICE_PARTITIONS:
            self._hold(1)
        self._write_slice(batches)
        if whole.count > SLICE_PARTITIONS:
            # The frame is invalid after this tick.
            copied = [
                each if each.records is None else each._replace(records=memoryview(bytearray(each.records)))
                for each in batches
            ]
            self._write_later(iter(copied))
        return whole.later if self._request.acks != 0 or self._open else None

    def _write_later(self, batches: Iterator[_Sent]) -> None:
        def go_on() -> None:
            try:
                is_over = not self._write_slice(batches)
            except KafkaError as error:  # acks=0
                self._session.end(str(error))
                is_over = True
            if is_over:
                self._let_go(1)
            else:
                self._context.world.call_soon(go_on)

        self._context.world.call_soon(go_on)

    def _write_slice(self, batches: Iterator[_Sent]) -> bool:
        """Stage the batches of the next slice; False if none are left."""
        context, session, acks = self._context, self._session, self._request.acks
        transactional: list[_Admitted] = []
        inspections: list[tuple[_Admitted, Inspection]] = []
        found = False
        for row, topic, number, records in islice(batches, SLICE_PARTITIONS):
            found = True
            try:
                partition = admit(context, session, self._header.client_id, self._request, topic, number)
                if not records:
                    raise no_records(partition)
                batch = _Admitted(row, topic, partition, records)
                if is_transactional(records):
                    transactional.append(batch)
                else:
                    self._stage(batch, inspections)
            except KafkaError as error:
                if acks == 0:
                    raise
                refusal = batch_error(context, topic, number, records, error)
                self._whole.settled(row, failed(self._whole.meter, number, refusal))
        if transactional:
            self._write_in_transaction(transactional)
        self._inspect(inspections, None)
        return found

    def _stage(self, batch: _Admitted, inspections: list[tuple[_Admitted, Inspection]]) -> None:
        """Stage a batch, or add it to those to inspect."""
        batch.partition.check_refused(batch.records)
        try:
            appended = batch.partition.stage(batch.records, self._request.acks, self._context.world.now_ms())
        except NeedsInspection as needs:
            inspections.append((batch, needs.inspection))
        else:
            self._staged(batch, appended)

    def _staged(self, batch: _Admitted, appended: Appended) -> None:
        partition, acks = batch.partition, self._request.acks
        if acks == 0:
            partition.wait(Unanswered(self._session, appended))
        else:
            deadline_ms = self._context.world.now_ms() + self._request.timeout_ms
            partition.wait(PartitionOfProduce(self._whole, batch.row, partition, appended, acks, deadline_ms))

    def _reject(self, batch: _Admitted, error: KafkaError) -> None:
        number = batch.partition.number
        error = batch_error(self._context, batch.topic, number, batch.records, error)
        if self._request.acks == 0:
            self._session.end(str(error))
        else:
            self._whole.settled(batch.row, failed(self._whole.meter, number, error))

    # -- later -----------------------------------------------------------------------------------------

    def _inspect(self, batches: list[tuple[_Admitted, Inspection]], claim: Claim | None) -> None:
        self._hold(len(batches))
        for each, inspection in batches:
            batch = each._replace(records=memoryview(inspection.data))
            deferred = DeferredBatch(
                self._context, each.partition, inspection.data, self._request.acks, claim
            )
            deferred.staged.then(partial(self._deferred_staged, batch), partial(self._deferred_reject, batch))
            deferred.inspect(inspection)

    def _deferred_staged(self, batch: _Admitted, appended: Appended) -> None:
        self._staged(batch, appended)
        self._let_go(1)

    def _deferred_reject(self, batch: _Admitted, error: KafkaError) -> None:
        self._reject(batch, error)
        self._let_go(1)

    def _write_in_transaction(self, batches: list[_Admitted]) -> None:
        """Stage transactional batches once their coordinator, verified once for all, has confirmed the transaction."""
        try:
            claim = claim_of(
                self._context,
                self._session,
                self._request.transactional_id,
                self._header.api_version,
                [each.records for each in batches],
            )
        except KafkaError as error:
            for each in batches:
                self._reject(each, error)
            return
        verified = verify_partitions(self._context, claim, [each.partition for each in batches])
        if not verified.is_settled:
            batches = [each._replace(records=memoryview(bytearray(each.records))) for each in batches]
        self._hold(len(batches))

        def staging(errors: VerificationErrors) -> None:
            inspections: list[tuple[_Admitted, Inspection]] = []
            for each in batches:
                try:
                    check_verified(each.partition, errors)
                    check_first_sequence(claim, each.partition, each.records)
                    self._stage(each, inspections)
                except KafkaError as error:
                    self._reject(each, error)
            self._inspect(inspections, claim)
            self._let_go(len(batches))

        verified.then(staging)
