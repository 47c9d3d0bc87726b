"""The control plane: drives the Raft quorum and the metadata log, publishes images, and registers brokers.

    quorum            runs the Raft core over `metadata_log` and sends its requests (`quorum_transport`, `quorum_wire`)
    active_controller decides while this node leads the quorum; `controller_router` finds it wherever it is
    metadata_publisher hands committed batches and images to the node
    broker_lifecycle  registers this broker, sends its heartbeats, and asks for a controlled shutdown

No sockets, threads or clocks here: `server` provides them.
"""
