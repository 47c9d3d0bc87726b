"""The other front doors: JSON over HTTP and a line protocol, on the same topics, groups and offsets as the Kafka port.

    socket --> wire --> conversation --> routes, commands --> writing, reading, members --> replicas, coordinators
             (server)    (http, line)

Everything here is sans-IO, as the handlers are: a conversation is given bytes and gives bytes to its `Wire`; what
takes longer than now is written as `steps`. Sockets and the loop are `server`'s.
"""
