"""A deterministic simulation: shipped nodes on virtual time, a simulated network and disks, from one seed.

    schedule    virtual time: one heap of events for everything
    world       what a node is given of time, chance, threads and the network; ends with the node's process
    network     who reaches whom; link, a connection whose bytes arrive late, in pieces, or not at all; transport
    machine     the disk, and the node's processes on it one after the other: kill, power cut, clean stop, pause
    fleet       all machines; faults, what goes wrong with them and between them
    speech      requests and replies as bytes, through kio; and group_speech, txn_speech
    line        a connection as clients see it: requests, replies, timeouts
    client      finds out versions, leaders and coordinators, and starts over when a line is lost
    operator    topics come and go, partitions are moved, leaders elected
    renewer     deletes a topic and creates it again, life after life (lives); passing, who writes and reads it
    producers   plain and idempotent, with retries
    consumers   following a topic, with and without fetch sessions
    members     of groups, and beside it each protocol: classic_members, consumer_members
    transactor  one transactional id, step by step (agenda, txn_finding, txn_terms)
    transactional  who writes in transactions: producers, and workers that read, process and write
    crew        all clients of a run
    history     what clients and the operator saw, as events; cluster_history, what they could not see
    watch       looks into the nodes of a cluster as they run
    checkers    what must hold of a history, each rule a class of its own; and conduct_checkers, group_checkers,
                txn_checkers, cluster_checkers, life_checkers
    bench       all of them at work
    scenario    what one seed stands for: settings, topics, clients, crashes
    coordination   the same for groups and transactions
    cluster_scenario   the same for clusters (cluster_plan); cluster_extras, what is asked for beside it
    disk_check  what the disks have in the end; belongings, whether it belongs there
    run         plays a scenario and says what was wrong
    play        plays one seed, for the command line

Nothing here is a model of a broker: all that is simulated is what is around it. A seed stands for a run, byte
for byte, in any process on any machine. The names of the rules are those of the checkers.
"""
