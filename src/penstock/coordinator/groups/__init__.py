"""Consumer groups and committed offsets: one coordinator for each partition of `__consumer_offsets`.

coordinator        the entry point                  classic/            the leader of the group assigns
requests           requests and replies               group               a group and its members
write              how an outcome is written          rebalance           joins, generations, syncs, sessions
schemas            Kafka's records                    joining             JoinGroup
replay             applies records                    membership          SyncGroup, Heartbeat, LeaveGroup
offset_store       committed and pending offsets    consumer/           the coordinator assigns (KIP-848)
offset_commits     commits, fetches, expiry           group, member       epochs, members, owners
overview           ListGroups, DescribeGroups         heartbeats          ConsumerGroupHeartbeat
consumer_protocol  subscriptions and assignments      target_assignment   the group's next target
timers             deadlines without a clock          current_assignment  a member's way to its target
settings           settings, and the topics           assignors           uniform, range, round robin
state              state that the parts share         sessions            timers of members
                                                      regex               subscriptions by expression
                                                      classic_members     members of the classic protocol
                                                      migration           from one protocol to the other
                                                      replay              applies its records
"""
