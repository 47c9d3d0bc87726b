"""Consumer groups and committed offsets: one coordinator for each partition of `__consumer_offsets`.

coordinator        how it is driven                 classic/         members meet, one of them assigns
requests           what it is asked, and answers      group            a group and its members
outcome            answers and records                rebalances           joins, generations, syncs, sessions
schemas            Kafka's records                    joining          who may join
replay             what each record does              membership       syncs, heartbeats, leaving
offsets            what is committed or pending     consumer/        the coordinator assigns (KIP-848)
offset_commits     commits, fetches, expiry           group, member    epochs, and who has what
overview           groups as others see them          heartbeats       joining, moving, leaving
consumer_protocol  what consumers put into bytes      target_assignments         what a member's change means
timers             deadlines without a clock          reconcile        from what it has to what it is to have
settings           settings, and the topics           assignors        uniform, range, dealt
state              what the parts share               sessions         the time that members have
                                                      regex            subscriptions by expression
                                                      classic_members  the classic protocol, translated
                                                      migration        one protocol to the other
                                                      replaying        what its records do
"""
