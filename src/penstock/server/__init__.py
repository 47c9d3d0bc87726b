"""Everything that touches sockets, threads, processes and signals, and the composition root.

    up, host          `penstock up`: a node in a process; a node on an event loop with its sockets
    node              composes a node from the packages below
    control_plane     the node's part in the metadata quorum
    loop_tick         writes logs and sends replies once per tick of the event loop
    connection        a Kafka client's connection: requests in, replies out in order
    doors             the same for HTTP and the line protocol of `gateway`
    world             `base.world.World` on an event loop

The rest of Penstock is plain functions below this package.
"""
