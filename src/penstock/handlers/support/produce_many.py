"""Produce requests for several partitions: answered when the last of their batches is settled.

A request for many partitions is handled in slices, each in a turn of its own, so that others are served in between.
What its client sends next waits until all of its batches are staged, as it does behind a batch that is inspected
(`late_batches`).
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
    DelayedPartitionProduce,
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
"""Partitions whose batches are staged in one turn: some 5 ms. Clients with more in one request are rare."""

Place: TypeAlias = tuple[int, int]
"""Of a partition in its request: the topic's number, and its own."""


class _Sent(NamedTuple):
    """A batch as the request has it."""

    place: Place
    topic: TopicKey
    number: int
    records: memoryview | None


class _Admitted(NamedTuple):
    """A batch whose partition is led here."""

    place: Place
    topic: TopicKey
    partition: Partition
    records: memoryview


def produce_many(
    context: Context, session: Session, header: RequestHeader, request: ProduceRequest
) -> Promise[Reply] | None:
    """Answer a request for several partitions; None where nothing is to be answered, or waited for."""
    return _ManyBatches(context, session, header, request).write()


class _ManyBatches:
    def __init__(
        self, context: Context, session: Session, header: RequestHeader, request: ProduceRequest
    ) -> None:
        self._context, self._session, self._header, self._request = context, session, header, request
        self._whole = ProduceResults(context.metrics.produce, header, request)
        self._open = 0
        """Batches that are not staged yet, and slices that are not begun."""
        self._holding: HoldingPromise[Reply] | None = None

    # -- what the client sends next --------------------------------------------------------------------

    def _hold(self, count: int) -> None:
        """So many batches more are staged in a later turn: the reply holds back what the client sends next."""
        self._open += count
        if count and self._holding is None:
            self._holding = self._whole.later = HoldingPromise()

    def _let_go(self, count: int) -> None:
        """So many of them are staged, or refused."""
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
            # The frame is gone when the turn ends.
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
            except KafkaError as error:  # of a producer that wants no answer
                self._session.end(str(error))
                is_over = True
            if is_over:
                self._let_go(1)
            else:
                self._context.world.call_soon(go_on)

        self._context.world.call_soon(go_on)

    def _write_slice(self, batches: Iterator[_Sent]) -> bool:
        """Stage the next few; whether there were any."""
        context, session, acks = self._context, self._session, self._request.acks
        transactional: list[_Admitted] = []
        inspections: list[tuple[_Admitted, Inspection]] = []
        found = False
        for place, topic, number, records in islice(batches, SLICE_PARTITIONS):
            found = True
            try:
                partition = admit(context, session, self._header.client_id, self._request, topic, number)
                if not records:
                    raise no_records(partition)
                batch = _Admitted(place, topic, partition, records)
                if is_transactional(records):
                    transactional.append(batch)
                else:
                    self._stage(batch, inspections)
            except KafkaError as error:
                if acks == 0:
                    raise
                refusal = batch_error(context, topic, number, records, error)
                self._whole.settled(place, failed(self._whole.meter, number, refusal))
        if transactional:
            self._write_in_transaction(transactional)
        self._inspect(inspections, None)
        return found

    def _stage(self, batch: _Admitted, inspections: list[tuple[_Admitted, Inspection]]) -> None:
        """Stage a batch, or have it inspected later."""
        batch.partition.check_refused(batch.records)
        try:
            appended = batch.partition.stage(batch.records, self._request.acks, self._context.world.now_ms())
        except NeedsInspection as needs:
            inspections.append((batch, needs.inspection))
        else:
            self._settle(batch, appended)

    def _settle(self, batch: _Admitted, outcome: Appended | KafkaError) -> None:
        """It has its place in the log, or is refused."""
        partition, acks = batch.partition, self._request.acks
        if isinstance(outcome, KafkaError):
            number = partition.number
            error = batch_error(self._context, batch.topic, number, batch.records, outcome)
            if acks == 0:
                self._session.end(str(error))
            else:
                self._whole.settled(batch.place, failed(self._whole.meter, number, error))
        elif acks == 0:
            partition.wait(Unanswered(self._session, outcome))
        else:
            deadline_ms = self._context.world.now_ms() + self._request.timeout_ms
            partition.wait(
                DelayedPartitionProduce(self._whole, batch.place, partition, outcome, acks, deadline_ms)
            )

    # -- later -----------------------------------------------------------------------------------------

    def _inspect(self, batches: list[tuple[_Admitted, Inspection]], claim: Claim | None) -> None:
        self._hold(len(batches))
        for each, inspection in batches:
            DeferredBatch(
                self._context,
                each.partition,
                inspection.data,
                self._request.acks,
                claim,
                partial(self._finish, each._replace(records=memoryview(inspection.data))),
            ).inspect(inspection)

    def _finish(self, batch: _Admitted, outcome: Appended | KafkaError) -> None:
        self._settle(batch, outcome)
        self._let_go(1)

    def _write_in_transaction(self, batches: list[_Admitted]) -> None:
        """As with one: the coordinator is asked once for all of them."""
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
                self._settle(each, error)
            return
        asked = verify_partitions(self._context, claim, [each.partition for each in batches])
        if not asked.is_settled:
            batches = [each._replace(records=memoryview(bytearray(each.records))) for each in batches]
        self._hold(len(batches))

        def answered(fates: VerificationErrors) -> None:
            inspections: list[tuple[_Admitted, Inspection]] = []
            for each in batches:
                try:
                    check_verified(each.partition, fates)
                    check_first_sequence(claim, each.partition, each.records)
                    self._stage(each, inspections)
                except KafkaError as error:
                    self._settle(each, error)
            self._inspect(inspections, claim)
            self._let_go(len(batches))

        asked.then(answered)
