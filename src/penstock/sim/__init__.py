"""A deterministic simulation: the shipped node on virtual time, a simulated network and disk, from one seed.

    schedule    virtual time: one heap of events for everything
    world       what a node is given of time, chance and threads; ends with the node's process
    network     connections whose bytes arrive late, in pieces, or not at all
    machine     the disk, and the node's processes on it one after the other: kill, power cut, clean stop
    speech      requests and replies as bytes, through kio; and group_speech, txn_speech
    client      a connection as clients see it: versions, requests, replies, timeouts
    producers   plain and idempotent, with retries
    consumers   following a topic, with and without fetch sessions
    members     of groups, and beside it each protocol: classic_members, consumer_members
    transactor  one transactional id, step by step (agenda, txn_terms)
    transactional  who writes in transactions: producers, and workers that read, process and write
    history     what clients and the operator saw, as events
    checkers    what must hold of a history, each rule a class of its own; and group_checkers, txn_checkers
    bench       all of them at work
    scenario    what one seed stands for: settings, topics, clients, crashes
    coordination   the same for groups and transactions
    run         plays a scenario and says what was wrong
    play        plays one seed, for the command line

Nothing here is a model of the broker: all that is simulated is what is around it. A seed stands for a run, byte
for byte, in any process on any machine. The names of the rules are those of the checkers.
"""
