"""Campaigns of faults against real broker processes, checked with the simulator's own rules.

    campaign    starts brokers, clients and faults, and decides in the end
    faults      what can go wrong, and whether this machine allows it
    brokers     the processes, over their lives
    node        what each process runs: the node of `penstock up`, with a disk and a clock that faults reach
    stage       the simulator's clients on an event loop and real sockets
    load        which clients, on which topics
    probe       a producer that measures pauses

Clients record what they see as events of `penstock.sim.checkers.history`; `penstock.sim.checkers.all_checkers` checks
them.
"""
