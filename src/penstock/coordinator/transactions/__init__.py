"""Transactions: what a producer wrote to many partitions becomes visible on all of them, or on none.

    schema     records of `__transaction_state`, byte for byte
    state      the state of one transactional id, and how it moves
    requests   what can be asked, and the answers
    deciding   each request against a state: Kafka's rules
    core       the coordinator of one partition: pending changes, markers, time, loading
    expiry     ids that nobody uses any more
    looking    what people see
    codes      what older clients are told

The coordinator of an id is the leader of partition `partition_for(id, count)` of `__transaction_state`
(`penstock.base.hashing`); the epoch of its markers is that partition's leader epoch.

What a partition's leader asks before it appends a transactional batch from a client (KIP-890)
    Where the partition has an open transaction of the same producer and epoch, nothing: it was asked before. Else the
    coordinator is, for the id that the request names:

        Produce 12, TxnOffsetCommit 5 and later   AddPartitions, version 2: the partition joins the transaction
        before                                    VerifyPartitions: the client must have added it itself

    and the batch is appended only where the answer is NONE; `codes.for_write` has what the client is told otherwise.
    Kafka asks again by itself, for some 100 ms, where an AddPartitions is answered CONCURRENT_TRANSACTIONS: the end
    of the transaction before is mostly complete by then. A marker may be written between the answer and the append.
    The batch then belongs to nothing and would hang: so an answer holds only if no marker of that producer came to
    the partition since the question; if one did, ask again.

What it does with markers
    `records.end_txn_marker(producer_id, epoch, commit, coordinator_epoch, now_ms)`, appended with
    `Origin.COORDINATOR`, to every partition of `Markers.partitions`. INVALID_PRODUCER_EPOCH and
    TRANSACTION_COORDINATOR_FENCED from a partition mean that a newer coordinator ended this transaction: this one
    has been deposed, and stops trying. Of a partition whose topic was deleted there is nothing to end: it counts
    as written. Everything else is tried again, for ever: readers wait for it. A marker for `__consumer_offsets` also
    goes to the group coordinator of that partition, which makes pending offsets committed, or drops them.
"""

from .coordinator import TransactionCoordinator
from .decisions import Settings
from .requests import (
    NEEDS_PRODUCER_ID,
    AbortTimedOut,
    AddPartitions,
    Described,
    DescribeTransaction,
    EndTxn,
    ExpireIds,
    InitProducerId,
    Listed,
    ListReply,
    ListTransactions,
    Markers,
    MarkersWritten,
    NeedsProducerId,
    ProducerEpoch,
    ProducerReply,
    Reply,
    Request,
    VerifyPartitions,
    VerifyReply,
    add_offsets,
)
from .schema import Record
from .state import Partitions, State, Transaction

__all__ = [
    "NEEDS_PRODUCER_ID",
    "AbortTimedOut",
    "AddPartitions",
    "DescribeTransaction",
    "Described",
    "EndTxn",
    "ExpireIds",
    "InitProducerId",
    "ListReply",
    "ListTransactions",
    "Listed",
    "Markers",
    "MarkersWritten",
    "NeedsProducerId",
    "Partitions",
    "ProducerEpoch",
    "ProducerReply",
    "Record",
    "Reply",
    "Request",
    "Settings",
    "State",
    "Transaction",
    "TransactionCoordinator",
    "VerifyPartitions",
    "VerifyReply",
    "add_offsets",
]
