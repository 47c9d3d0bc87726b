"""The control plane: drives the Raft quorum and the metadata log, publishes images, and registers brokers.

    quorum              runs the Raft core over `metadata_log`; sends its requests (`quorum_transport`, `quorum_wire`)
    metadata_publisher  publishes committed batches, images and leadership to the node
    active_controller   decides while this node leads the quorum
    controller_router   sends requests to the active controller, here or over the wire (`controller_wire`)
    broker_lifecycle    registers this broker, sends its heartbeats, and requests its controlled shutdown

No sockets, threads or clocks: `server` provides them.
"""
