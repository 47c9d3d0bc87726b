"""Kafka's APIs, one module for each API or group of APIs. A module's docstring states the versions it serves.

    produce, fetch                                        batches in and out
    list_offsets, log_admin                               offsets by time and epoch; DeleteRecords, log directories
    metadata, describe_topic_partitions, cluster          topics, brokers, the quorum
    topics, configs, config_changes, features             topics and configs
    reassignments                                         replica moves, leader elections, unregistering brokers
    find_coordinator                                      coordinators of groups and transactional ids
    classic_groups, consumer_groups, group_admin          members and administration of groups
    offset_commits                                        committed offsets
    producer_ids, transactions, transaction_admin         idempotent and transactional producers
    brokers, raft, raft_voters                            between nodes: registration, ISR changes, Raft
    envelope                                              requests that another broker's gateway forwards

A handler is a function of a `Context` and a `Call` that returns the response, or a promise of it. Handlers that wait
are written as steps (`support.waiting`). Handlers use no clock, socket or file of their own: time, timers and the disk
come with the context. `support.dispatch` finds the handler of a request, `support.api_table` lists all.
"""
