"""A Kafka client: what the command line talks through, and whatever else of Penstock dials a broker.

The core is without a socket; the transport around it blocks, and waits for several brokers at once where
a producer or a consumer has requests at each. Works with Apache Kafka as with Penstock.

    settings     limits, timeouts, the clock          cluster        brokers, leaders, connections, retries
    errors       what goes wrong, what may be retried admin          topics, configs
    request      a request in whatever version        offsets        where a partition starts, ends, was at a time
    connection   one conversation, sans-IO            partitioner    which partition a key goes to
    network      sockets                              producer       batches, retries, idempotence
    topology     what Metadata tells                  consumer       fetch, decode, follow leaders
    coordinators coordinators of groups and ids         groups         listed, described, deleted
    transactions listed, described, ended             group_offsets  what groups have committed, and their lag
    transactional opened by a producer, ended by any  reassignments  partitions that move to other brokers
    replicas     how far each of a partition's is   identity       ids of producers
"""
