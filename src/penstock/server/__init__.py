"""Where asyncio lives: sockets, timers, and in time the node that ties everything together.

    turn          what happens once in a turn of the loop: logs are written, replies are sent
    connection    a client's bytes, cut into requests; its replies, in the order of the requests
    doors         the same for HTTP and the line protocol, whose conversations are `gateway`'s

The rest of Penstock is plain functions below this package.
"""
