"""What a door is asked for and another node has: partitions that it leads, groups that it coordinates.

    letters     what nodes' gateways ask each other, and how it is written
    elsewhere   asking: one letter, on one of some connections (`lanes`)
    patience    asking again while leaders and coordinators move
    answering   being asked
    places      a partition, wherever it is led: where it begins and ends, its records         <- start here
    coordinators  a group, wherever it is coordinated
    watching    being told when a partition that is led elsewhere has more

Whoever leads or coordinates decides, and so there is one place for each decision: the leader of a partition knows its
idempotency keys, the coordinator of a group has its members. A node that is asked for something of theirs passes it on
and answers what it is told; what was passed on once is not passed on again. Records are read with Kafka's own Fetch;
everything else goes in envelopes (`handlers.envelope`), from broker to broker.

Leaders and coordinators move. Who finds nobody where somebody should be asks again, for a short while (`PATIENCE_MS`).
"""
