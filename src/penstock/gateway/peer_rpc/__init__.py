"""Calls between the gateways of brokers: partitions that another broker leads, groups that it coordinates.

    routed_partition    a partition, wherever it is led: its offsets and its records    <- start here
    coordinators        a group, wherever it is coordinated
    client              sends a call to another broker
    service             answers the calls of other brokers
    messages            requests and replies, and their encoding
    retry               retries while leaders and coordinators move
    remote_watch        notifies watchers when a partition that another broker leads grows

The leader of a partition decides about its idempotency keys, the coordinator of a group about its members. Another
broker forwards a request to them and returns their reply; a forwarded request is never forwarded again. Records are
read with Kafka's Fetch; everything else is sent in Envelope requests (`handlers.envelope`). While leaders and
coordinators move, requests are retried for a short time (`RETRY_MS_MAX`).
"""
