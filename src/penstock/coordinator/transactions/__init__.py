"""Transactions: records that a producer wrote to many partitions become visible on all of them, or on none.

    coordinator   the coordinator of one partition: pending changes, markers, time, loading
    requests      requests and replies
    decisions     each request against the state of its transactional id: Kafka's rules
    state         the state of one transactional id, and its transitions
    schema        records of `__transaction_state`, byte for byte
    expiry        removes unused transactional ids
    overview      DescribeTransactions and ListTransactions
    codes         error codes for older clients

The coordinator of an id is the leader of partition `partition_for(id, count)` of `__transaction_state`
(`penstock.base.hashing`); the epoch of its markers is that partition's leader epoch.

Before a partition's leader appends a transactional batch of a client (KIP-890)
    If the partition has an open transaction of the same producer and epoch, the batch is appended: it was verified
    before. Otherwise the leader asks the coordinator of the transactional id:

        Produce 12, TxnOffsetCommit 5 and later   AddPartitions, version 2: adds the partition to the transaction
        before                                    VerifyPartitions: the client must have added it itself

    The batch is appended only if the reply is NONE; `codes.for_write` has the error for the client otherwise. If
    AddPartitions gets CONCURRENT_TRANSACTIONS, the leader retries for some 100 ms, as Kafka does: the previous
    transaction is mostly complete by then. A marker may be written between the reply and the append. The batch would
    then belong to no transaction and hang, so a reply is valid only if no marker of that producer was appended since
    the request; otherwise the leader asks again.

Markers
    `records.end_txn_marker(producer_id, epoch, commit, coordinator_epoch, now_ms)` is appended with
    `Origin.COORDINATOR` to every partition of `Markers.partitions`. INVALID_PRODUCER_EPOCH and
    TRANSACTION_COORDINATOR_FENCED mean that a newer coordinator has ended this transaction: this coordinator was
    deposed, and stops. A deleted partition counts as written. Every other error is retried without limit, because
    readers wait for the marker. A marker on `__consumer_offsets` also goes to the group coordinator of that
    partition, which commits or drops the pending offsets.
"""
