"""The transactions of tasks: opened by a task, described and ended by the driver.

A task leaves its transaction open. Its message to the driver has the transactional id, producer id and epoch, with
which the driver ends the transaction, so the task need not be alive. Failed tasks, and tasks whose message Spark
dropped because another attempt was faster, leave transactions open. These are found by the prefix of their ids and
aborted, each by its own producer id and epoch, so that a transaction that began since is not affected.
"""

import logging
import re
from collections.abc import Iterable, Sequence
from typing import Final

from penstock.base.errors import ErrorCode
from penstock.client.cluster import Cluster
from penstock.client.errors import BrokerRefused, NotServed
from penstock.client.identity import init_transactions
from penstock.client.transactional import (
    OpenTransaction,
    describe_transactions,
    end_transactions,
)
from penstock.client.transactions import Filters, list_transactions
from penstock.spark.errors import BadOption
from penstock.spark.writing.sink_options import TRANSACTION_TIMEOUT_MS, SinkOptions

log = logging.getLogger(__name__)

ONGOING: Final = "Ongoing"
TIMEOUT_MS_MIN: Final = 1_000


def open_transaction(cluster: Cluster, options: SinkOptions, transactional_id: str) -> OpenTransaction:
    """Take an id over, with as long a timeout as the broker allows where none was asked for."""
    timeout_ms = options.transaction_timeout_ms or TRANSACTION_TIMEOUT_MS
    while True:
        try:
            identity = init_transactions(cluster, transactional_id, timeout_ms)
        except BrokerRefused as error:
            if error.code != ErrorCode.INVALID_TRANSACTION_TIMEOUT:
                raise
            if options.transaction_timeout_ms is not None or timeout_ms // 2 < TIMEOUT_MS_MIN:
                raise BadOption(
                    f"option kafka.transaction.timeout.ms is {timeout_ms}, "
                    "expected no more than the broker's transaction.max.timeout.ms"
                ) from error
            timeout_ms //= 2
        else:
            return OpenTransaction(transactional_id, identity.producer_id, identity.epoch)


def still_open(cluster: Cluster, transactions: Sequence[OpenTransaction]) -> set[OpenTransaction]:
    """The transactions that can still be committed."""
    described = describe_transactions(cluster, [each.transactional_id for each in transactions])
    found = set()
    for each in transactions:
        now = described.get(each.transactional_id)
        if (
            now is not None
            and now.state == ONGOING
            and (now.producer_id, now.producer_epoch) == (each.producer_id, each.epoch)
        ):
            found.add(each)
    return found


def abort_transactions(
    cluster: Cluster, transactions: Iterable[OpenTransaction], *, epoch_bumps: bool
) -> None:
    """Abort transactions; those that have ended, or were taken over, are left alone."""
    end_transactions(cluster, transactions, commit=False, epoch_bumps=epoch_bumps)


def try_abort(cluster: Cluster, transaction: OpenTransaction, *, epoch_bumps: bool) -> None:
    """By a task that failed, so that readers need not wait for it. If it fails, the driver does it."""
    try:
        abort_transactions(cluster, [transaction], epoch_bumps=epoch_bumps)
    except Exception as error:
        log.warning("transaction %s was not aborted: %s", transaction.transactional_id, error)


def fence_all(cluster: Cluster, id_prefix: str) -> None:
    """Take over every id that begins so: what is open is aborted, and tasks that still run can no longer write."""
    for name in sorted(_ids(cluster, id_prefix, Filters())):
        init_transactions(cluster, name, TIMEOUT_MS_MIN)


def abort_leftovers(
    cluster: Cluster, id_prefix: str, keep: Iterable[OpenTransaction], *, epoch_bumps: bool
) -> list[OpenTransaction]:
    """Abort what is open under ids that begin so, but for some. Returns what was aborted."""
    kept = set(keep)
    names = _ids(cluster, id_prefix, Filters(states=(ONGOING,)))
    if names <= {each.transactional_id for each in kept}:
        return []
    found = [
        OpenTransaction(name, described.producer_id, described.producer_epoch)
        for name, described in describe_transactions(cluster, names).items()
        if described.state == ONGOING
    ]
    leftovers = [each for each in found if each not in kept]
    abort_transactions(cluster, leftovers, epoch_bumps=epoch_bumps)
    return leftovers


def _ids(cluster: Cluster, id_prefix: str, filters: Filters) -> set[str]:
    try:
        listed = list_transactions(cluster, filters._replace(pattern=f"{re.escape(id_prefix)}.*"))
    except NotServed:  # before Kafka 4.1 there are no patterns
        listed = list_transactions(cluster, filters)
    return {each.transactional_id for each in listed if each.transactional_id.startswith(id_prefix)}
