"""What HTTP and the line protocol share.

gateway           the parts of a node's gateway, started and stopped together
wire              between a connection and the protocol on it
fair_queue        portions of long work, so that short requests are not delayed
topics            finding and creating topics
controller_call   authorization, and requests to the controller
producer          writing records: partitions, batches, idempotency keys, forwarding to leaders
produce_calls     the records of one call until each has its outcome
new_records       records to write, and their checks
key_search        idempotency keys that other brokers may know
reading           committed records of a partition that this broker leads
ranges            ranges by offset, by time, or from the end
tail_reader       partitions followed as they grow
record_json       records as JSON
health            health of the node and of its cluster
metrics_page      the page of metrics, with `cluster_metrics` and `group_lag_metrics`, in the format of `exposition`
log_inspection    a topic's segments and indexes
explorer          a topic to experiment on
"""
