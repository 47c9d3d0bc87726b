"""A deterministic simulation: shipped nodes on virtual time, a simulated network and disks, from one seed.

    world/      virtual time (`schedule`), network and TCP connections, machines with disks, the processes of nodes
    faults/     what goes wrong: crashes, cuts, disks in trouble, files damaged or lost
    clients/    producers, consumers, group members, transactions, HTTP and line clients, operators
    checkers/   what clients and operators saw (`history`), and the rules that must hold, each a named class
    scenario    what one seed stands for: settings, topics, clients, crashes; `coordination`: groups, transactions
    cluster_scenario   the same for clusters (`cluster_plan`); `cluster_extras`: faults that `--with` adds
    run         plays a scenario and reports the first rule that was broken
    play        plays one seed, for the command line

Only what surrounds a broker is simulated; the broker is the shipped one. A seed gives the same run, byte for byte, in
any process on any machine.
"""
