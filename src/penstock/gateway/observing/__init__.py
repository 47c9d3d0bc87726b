"""What a broker remembers of itself and its cluster, in memory and bounded, for people who watch it.

    node_history      metrics of this node, sampled every 5 seconds, for an hour
    series            which series there are, and how samples are combined over time and over brokers
    lag_history       lag of the groups that this node coordinates
    ring, periodic    the samples, and when they are taken
    event_feed        what happened: elections, ISR changes, brokers, topics, rebalances
    cluster_events    events in the changes between two metadata images
    group_events      rebalances of groups
    node_status       health and figures of this node for the overview
    partition_counts  sums over all partitions of the metadata image
    gathering         asks the other brokers of the cluster

Nothing of it is written to disk: a node that restarts begins anew.
"""
