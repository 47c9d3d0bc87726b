"""HTTP and the line protocol, on the same topics, groups and offsets as the Kafka port.

    http/           JSON over HTTP: one module for each part of the API
    line/           the line protocol
    shared/         what both use: producing, reading, tailing, health, metrics
    membership/     group members over HTTP
    idempotency/    idempotency keys of records
    exports/        ranges of topics as Arrow and Parquet files
    peer_rpc/       calls between the gateways of brokers

    socket --> Wire --> Conversation --> routes, commands --> shared, membership --> replicas, coordinators
             (server)    (http, line)

Everything here is sans-IO, as the handlers are: a conversation receives bytes and writes bytes to its `Wire`. Work
that waits is written as steps (`base.steps`). Sockets and the event loop belong to `server`."""
