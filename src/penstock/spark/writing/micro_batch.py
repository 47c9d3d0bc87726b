"""A stream's batches, each written once: by which steps, and what a crash between any two of them leaves.

    task      reads the ledger; a batch that is in it is not written again
              opens a transaction, writes its rows, and leaves it open
    driver    claims the ledger: no other run can record a batch from here on
              looks whether all transactions are still open; if not, aborts them all: nothing is lost, Spark replays
              aborts what failed and late attempts, and earlier runs, have left open
    (1)       records the batch with the list of its transactions
    (2)       commits each of them
              notes that it is done

A crash before (1): the batch is not in the ledger. The next run's tasks take the ids over, which aborts what was
open, and the rest is aborted before the batch is recorded. After (1): the next run finds the batch, its tasks write
nothing, and the first task or driver that finds it commits the transactions of the list; committing twice does no
harm. How rows were dealt to tasks does not matter: the list is that of the attempt that was recorded.

A run fences the one before it when its first tasks claim the ledger, before they touch any id. So a driver that
wakes up late can record nothing; by then it is decided whether a batch was recorded, and by which run.

What no order of steps can help: a broker aborts a transaction that is older than its timeout, and between (1) and (2)
that loses rows, if the driver dies there and the query is not restarted in time. The next run detects it when it
commits the list, and raises an error.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import pyarrow as pa

from penstock.client.cluster import Cluster
from penstock.client.transactional import OpenTransaction, end_transactions, uses_epoch_bumps
from penstock.spark.errors import RowsLost, WriteFailed
from penstock.spark.writing.column_producer import ColumnProducer
from penstock.spark.writing.ledger import BatchLedger, Fenced, LedgerEntry, LedgerTransaction
from penstock.spark.writing.sink_options import SinkOptions
from penstock.spark.writing.transactions import (
    abort_leftovers,
    abort_transactions,
    open_transaction,
    still_open,
    try_abort,
)
from penstock.spark.writing.write_task import TaskWriter, WriteCounts

log = logging.getLogger(__name__)

CLAIMS_MAX: Final = 5
"""A late task of the same run may claim between ours and the record; another run that keeps doing so is an error."""


class TaskId(NamedTuple):
    """Identifies an attempt of a task, by the properties that Spark gives to its tasks."""

    query: str
    """Stays the same as long as the checkpoint does."""
    run: str
    """New at every start of the query."""
    batch: int
    task: int
    attempt: int = 0

    @property
    def name(self) -> str:
        """One that no other attempt alive has, from a small set: ids are not to grow in number."""
        return f"{self.task}" if self.attempt == 0 else f"{self.task}.{self.attempt}"


@dataclass(frozen=True)
class TaskResult:
    """The message of a task to the driver."""

    task_id: TaskId
    transaction: OpenTransaction | None
    """None where there were no rows, or the batch was in the ledger."""
    epoch_bumps: bool
    written: WriteCounts
    is_skipped: bool = False


def write_rows(
    cluster: Cluster, options: SinkOptions, task_id: TaskId, batches: Iterable[pa.RecordBatch]
) -> TaskResult:
    """A task's part. Every row is taken from Spark in any case: what computes them may keep state."""
    epoch_bumps = uses_epoch_bumps(cluster)
    ledger = BatchLedger(cluster, options, task_id.query, epoch_bumps=epoch_bumps)
    if _is_recorded(ledger, cluster, options, task_id):
        for _ in batches:
            pass
        return TaskResult(task_id, None, epoch_bumps, WriteCounts(), is_skipped=True)
    transaction: OpenTransaction | None = None

    def open_producer() -> ColumnProducer:
        nonlocal transaction
        transaction = open_transaction(cluster, options, ledger.transactional_id(task_id.name))
        return ColumnProducer(cluster, options, transaction.identity, transaction, epoch_bumps=epoch_bumps)

    try:
        written = TaskWriter(cluster, options, open_producer).write(batches)
    except BaseException:
        if transaction is not None:
            try_abort(cluster, transaction, epoch_bumps=epoch_bumps)
        raise
    return TaskResult(task_id, transaction, epoch_bumps, written)


def _is_recorded(ledger: BatchLedger, cluster: Cluster, options: SinkOptions, task_id: TaskId) -> bool:
    entry = ledger.peek()
    if entry is None or entry.run != task_id.run:
        # The run before may be about to record something: not after this.
        entry = ledger.claim()
    if entry is None or entry.batch < task_id.batch:
        return False
    if entry.batch == task_id.batch:
        _finish(ledger, cluster, options, entry)  # now, for their time runs
    return True


def commit_batch(cluster: Cluster, options: SinkOptions, results: Sequence[TaskResult], batch: int) -> None:
    """The driver's part, where every task has come through."""
    if not any(each.transaction or each.is_skipped for each in results):
        return  # no rows: there is nothing to tell a replay from
    task_id, epoch_bumps = results[0].task_id, results[0].epoch_bumps
    listed = tuple(
        LedgerTransaction(each.transaction, each.written.records)
        for each in results
        if each.transaction is not None
    )
    transactions = [each.transaction for each in listed]
    ledger = BatchLedger(cluster, options, task_id.query, epoch_bumps=epoch_bumps)
    for _ in range(CLAIMS_MAX):
        entry = ledger.claim()
        if entry is not None and entry.batch >= batch:
            theirs = {each.transaction for each in entry.transactions}
            abort_transactions(
                cluster, [each for each in transactions if each not in theirs], epoch_bumps=epoch_bumps
            )
            if entry.batch == batch:
                _finish(ledger, cluster, options, entry)
            return
        if entry is None or entry.run != task_id.run:
            ledger.check_topic()
        _need_open(cluster, transactions, batch, epoch_bumps)
        abort_leftovers(cluster, ledger.transactional_id(""), transactions, epoch_bumps=epoch_bumps)
        recorded = LedgerEntry(batch, task_id.run, listed, epoch_bumps)
        try:
            ledger.record(recorded)
        except Fenced:
            continue
        _finish(ledger, cluster, options, recorded)
        return
    raise WriteFailed(
        f"batch {batch} of query {task_id.query} could not be recorded: another run of the query keeps taking over"
    )


def _need_open(cluster: Cluster, transactions: list[OpenTransaction], batch: int, epoch_bumps: bool) -> None:
    live = still_open(cluster, transactions)
    if len(live) == len(transactions):
        return
    abort_transactions(cluster, live, epoch_bumps=epoch_bumps)
    raise WriteFailed(
        f"batch {batch} is not written: {len(transactions) - len(live)} of its {len(transactions)} transactions ended "
        "before all tasks were done, by kafka.transaction.timeout.ms or because another run has taken over; "
        "nothing of this try is visible, and a restarted query writes the batch again"
    )


def _finish(ledger: BatchLedger, cluster: Cluster, options: SinkOptions, entry: LedgerEntry) -> None:
    """Commit what a record lists. May be done again, by anyone, until it is noted as done."""
    if entry.is_done:
        return
    gone = end_transactions(
        cluster, [each.transaction for each in entry.transactions], commit=True, epoch_bumps=entry.epoch_bumps
    )
    if gone:
        rows = sum(each.rows for each in entry.transactions if each.transaction in gone)
        names = ", ".join(sorted(each.transactional_id for each in gone))
        lost = (
            f"batch {entry.batch} of query {ledger.query} was recorded as written, but {len(gone)} of its "
            f"{len(entry.transactions)} transactions, with {rows} rows, were aborted before they could be committed, "
            f"most likely by kafka.transaction.timeout.ms while the query was down ({names})"
        )
        if options.fails_on_data_loss:
            raise RowsLost(f"{lost}; set failOnDataLoss=false to continue without these rows")
        log.error("%s; failOnDataLoss is false, so the query continues without these rows", lost)
    ledger.mark_done(entry)


def abort_batch(cluster: Cluster, options: SinkOptions, results: Sequence[TaskResult], batch: int) -> None:
    """The driver's part, where a task has failed, or the commit has: Spark does not say which.

    A batch that is recorded is never aborted; the next run commits it.
    """
    transactions = [each.transaction for each in results if each.transaction is not None]
    if not transactions:
        return
    task_id, epoch_bumps = results[0].task_id, results[0].epoch_bumps
    ledger = BatchLedger(cluster, options, task_id.query, epoch_bumps=epoch_bumps)
    entry = ledger.claim()
    recorded: set[OpenTransaction] = set()
    if entry is not None and entry.batch >= batch:
        recorded = {each.transaction for each in entry.transactions}
        transactions = [each for each in transactions if each not in recorded]
    abort_transactions(cluster, transactions, epoch_bumps=epoch_bumps)
    abort_leftovers(cluster, ledger.transactional_id(""), recorded, epoch_bumps=epoch_bumps)
