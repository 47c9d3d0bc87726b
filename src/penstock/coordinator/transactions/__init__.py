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

Before the first batch of a transaction is appended, `handlers.support.txn_verification` asks the coordinator
(KIP-890). `coordinator.runtime.transaction_markers` writes the markers that end it.
"""
