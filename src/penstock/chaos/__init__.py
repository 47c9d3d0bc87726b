"""Campaigns of faults against real broker processes, checked with the simulator's rules.

    campaign    runs brokers, clients and faults, and checks the result
    faults      the faults, and whether this machine allows them
    brokers     starts and stops broker processes
    node        the program of each process: the node of `penstock up`, with a disk and a clock that can fail
    loop_ports  runs the simulator's clients on an event loop and real sockets
    load        the clients and their topics
    probe       a producer that measures pauses
    verdict     checks files and logs at the end

Clients record what they see as events of `penstock.sim.checkers.history`; `penstock.sim.checkers.all_checkers` checks
them.
"""
