"""The broker on the wire, in one run with its yardsticks: `make bench`, and `make bench PEER=kafka`.

    frames     Produce and Fetch requests, made once; only their correlation ids change
    load       the load generator, a process of its own: raw sockets, one epoll, nothing made per request
    echo       the floor: a uvloop server that answers frames of the same sizes and does nothing else
    servers    Penstock, Apache Kafka and the floor as child processes, with their CPU clocks and memory
    admin      topics made and deleted over the wire
    rows       what is measured on the hot path: a row is a load, driven through each server in turn
    members    members of groups as bytes: what each sends next, given what it was told
    crowd      a group that gathers, each member on a connection of its own
    groups     the rows about groups: how soon one has settled, what heartbeats and commits cost
    still      what is measured at rest: the start, memory when idle, memory of idle connections
    latency    end to end through librdkafka, producer and consumer included
    rounds     each server's turns, and what came of them
    goals      what each figure must reach
    report     the table, and the same as JSON

Every row runs in rounds. In a round each server has its turn with the same bytes from the same generator, so that a
minute in which the machine is slow hits all alike. The first round is thrown away: it touches the pages, and lets the
peer's compiler see the code. The figure is the median of the rest.
"""
