"""A batch job's rows: one transaction a task, all of them ended by the driver when every task has succeeded.

read_committed readers see nothing of a job until then, nothing of attempts that failed or came second, and nothing of
a job that failed. The ends follow one another within milliseconds, but they are several: a driver
that dies right there leaves the job visible in part, and no restart ends the rest, which is aborted by its
timeout. A stream has the ledger for that; a batch job has no second run that could read it.

With `transactional` = false tasks write as idempotent producers: no ids, no timeouts, no waiting readers, and rows of
an attempt that failed stay, as with Spark's own Kafka sink.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from penstock.client.cluster import Cluster
from penstock.client.identity import init_producer_id, init_transactions
from penstock.client.transactional import (
    OpenTransaction,
    describe_transactions,
    end_transactions,
    uses_epoch_bumps,
)
from penstock.spark.errors import RowsLost, WriteFailed
from penstock.spark.writing.column_producer import ColumnProducer
from penstock.spark.writing.sink_options import SinkOptions
from penstock.spark.writing.transactions import (
    abort_leftovers,
    abort_transactions,
    fence_all,
    open_transaction,
    still_open,
    try_abort,
)
from penstock.spark.writing.write_task import TaskWriter, WriteCounts

ID_PREFIX: Final = "penstock-spark-job-"
MARK_TIMEOUT_MS: Final = 1_000


@dataclass(frozen=True)
class JobTaskResult:
    """The message of a task to the driver."""

    transaction: OpenTransaction | None
    epoch_bumps: bool
    written: WriteCounts


def write_job_rows(
    cluster: Cluster, options: SinkOptions, job: str, task: str, batches: Iterable[pa.RecordBatch]
) -> JobTaskResult:
    transaction: OpenTransaction | None = None
    epoch_bumps = options.is_transactional and uses_epoch_bumps(cluster)

    def open_producer() -> ColumnProducer:
        nonlocal transaction
        if not options.is_transactional:
            return ColumnProducer(cluster, options, init_producer_id(cluster), None, epoch_bumps=False)
        transaction = open_transaction(cluster, options, f"{_prefix(job)}{task}")
        if describe_transactions(cluster, [_aborted_mark(job)]):
            raise WriteFailed("the job has failed in another task, and is aborted")
        return ColumnProducer(cluster, options, transaction.identity, transaction, epoch_bumps=epoch_bumps)

    try:
        written = TaskWriter(cluster, options, open_producer).write(batches)
    except BaseException:
        if transaction is not None:
            try_abort(cluster, transaction, epoch_bumps=epoch_bumps)
        raise
    return JobTaskResult(transaction, epoch_bumps, written)


def commit_job(cluster: Cluster, options: SinkOptions, job: str, results: Sequence[JobTaskResult]) -> None:
    transactions = [each.transaction for each in results if each.transaction is not None]
    if not options.is_transactional or not transactions:
        return
    epoch_bumps = results[0].epoch_bumps
    live = still_open(cluster, transactions)
    if len(live) < len(transactions):
        raise WriteFailed(
            f"nothing is written: {len(transactions) - len(live)} of the job's {len(transactions)} transactions ended "
            "before all tasks were done, by kafka.transaction.timeout.ms; a longer job needs a longer timeout (and "
            "the broker's transaction.max.timeout.ms), or option transactional=false"
        )
    abort_leftovers(cluster, _prefix(job), transactions, epoch_bumps=epoch_bumps)
    gone = end_transactions(cluster, transactions, commit=True, epoch_bumps=epoch_bumps)
    if gone:
        rows = sum(each.written.records for each in results if each.transaction in gone)
        raise RowsLost(
            f"{len(gone)} of the job's {len(transactions)} transactions, with {rows} rows, were aborted at the moment "
            "when they were to be committed; the other rows are written"
        )


def abort_job(cluster: Cluster, options: SinkOptions, job: str, results: Sequence[JobTaskResult]) -> None:
    """Spark does not wait for tasks that still run when another has failed: they are fenced.

    One that has not opened its transaction yet is not among them. So the mark is set first, and a task looks for it
    when it has opened its own: either it sees the mark, or it is seen here.
    """
    if not options.is_transactional:
        return
    init_transactions(cluster, _aborted_mark(job), MARK_TIMEOUT_MS)
    transactions = [each.transaction for each in results if each.transaction is not None]
    abort_transactions(cluster, transactions, epoch_bumps=uses_epoch_bumps(cluster))
    fence_all(cluster, _prefix(job))


def _aborted_mark(job: str) -> str:
    """A transactional id that exists once the job is aborted."""
    return f"{_prefix(job)}aborted"


def _prefix(job: str) -> str:
    return f"{ID_PREFIX}{job}-"
