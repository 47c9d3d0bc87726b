"""What the broker answers, one function an API: this folder is the list of what exists.

    dispatch           from a frame to its reply; ApiVersions
    context, shapes    what a handler is given, and what it answers with
    table              which function answers which API
    produce            batches in; produce_writers: batches that wait for their acknowledgement
    fetch              batches out; fetch_sessions remembers what is fetched again and again
    offsets            where a partition begins and ends, what is at a time, where an epoch ended
    metadata, topic_partitions, cluster        who is there and what is where; view: as one client may see it
    topics, configs, config_changes, features  made, deleted, set; asking: the controller is asked
    reassignments      replicas moved, leaders elected, brokers forgotten
    brokers            what nodes ask of the controller: registered, alive, in sync, producer ids
    raft, voters       what controllers ask each other; who votes among them; forwarding: to the one that leads
    log_admin          records deleted, directories and producers described; in_turns: much, piece by piece
    producer_ids       ids for idempotent and transactional producers
    coordinators       who keeps a group or a transactional id
    groups, consumer_groups                    members of groups, by the classic and by the consumer protocol
    offset_commits, group_admin                what groups have committed; groups listed, described, deleted
    transactions       partitions and offsets join, and it ends; transaction_admin: looked at, ended from outside
    taking_part        whether a batch may be written as part of a transaction
    waiting            answers that rest on others
    internal_topics, words                     the cluster's own topics; what refusals have in common

Handlers do not wait, look at a clock or open a file: they act on the node's parts and answer, now or with a `Promise`.
"""
