"""Runs coordinators on the partitions that hold their state. `penstock.coordinator` describes the steps.

group_service         requests to group coordinators, on `__consumer_offsets`
transaction_service   requests to transaction coordinators, on `__transaction_state`
transaction_markers   writes the markers that end a transaction to its partitions
coordinator_shards    a shard for each partition of the topic that this broker leads
coordinator_shard     one coordinator on its partition: loads, serves, unloads
coordinator_log       that partition: read once, then appended to
write_timeouts        how long a request waits for a write
group_settings, image_topics   settings and topics as group coordinators read them
"""
