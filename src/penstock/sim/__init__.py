"""A deterministic simulation: shipped nodes on virtual time, a simulated network and disks, from one seed.

    world/      virtual time (`schedule`), network and TCP connections, machines with disks, the processes of nodes
    faults/     crashes, network cuts, disks in trouble, files damaged or lost
    clients/    producers, consumers, group members, transactions, HTTP and line clients, operators
    checkers/   events that clients and operators saw (`history`), and the rules that must hold, a class each
    scenario    draws settings, topics, clients and faults from a seed; `coordination`: groups and transactions
    cluster_scenario   the same for clusters (`cluster_plan`); `cluster_extras`: faults that `--with` adds
    run         runs a scenario and reports the first broken rule
    final_audit reads everything at the end of a run
    play        runs one seed, for the command line

Only the surroundings of a broker are simulated; the broker is the shipped code. A seed gives the same run, byte for
byte, in any process on any machine.
"""
