"""A Kafka client, for the command line, Spark and tests. It works with Apache Kafka as with Penstock.

The core has no socket. The transport around it blocks; a producer or a consumer with requests at several brokers waits
for all of them at once.

    settings      limits, timeouts, the clock         cluster        brokers, leaders, connections, retries
    errors        errors, and which are retriable     admin          topics, configs
    request       a request, for any version          offsets        ListOffsets
    connection    one connection, sans-IO             partitioner    partitions of records without a key
    network       sockets                             producer       batches, retries, idempotence
    topology      Metadata responses                  consumer       fetches and decodes records
    coordinators  coordinators of groups and ids      groups         list, describe, delete
    transactions  list, describe, abort               group_offsets  committed offsets, lag
    transactional transactions of a producer          reassignments  moves of partitions
    replicas      log ends of replicas                identity       producer ids
"""
