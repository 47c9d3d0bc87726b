"""Coordinators: state machines whose state lives in internal topics, in Kafka's record formats.

groups         consumer groups and committed offsets, in `__consumer_offsets`
transactions   transactional ids, in `__transaction_state`
runtime        runs both on the partitions that this broker leads

A request takes these steps:

    handler    GroupCoordinatorService.handle(group_id, request)           runtime/group_service
    route      the shard of the group's partition; NOT_COORDINATOR if another broker leads it
    decide     coordinator.handle(request, now_ms) -> Outcome(reply, records)          groups/, transactions/
    append     CoordinatorLog.append(records): at once, or gathered with other commits for a few milliseconds
    apply      groups: when appended, so that the next decision sees the change; transactions: when committed
    committed  the high watermark has passed the records, and everything that was appended before them
    reply      the promise that the handler returned is resolved

A decision without records also waits until everything appended before it is committed, because it may rest on that. If
the commit takes longer than a timeout, the request gets a retriable error, and the write goes on. If a write fails
after the state has changed, the shard drops its state and loads it from the log again.

A shard exists while this broker leads its partition: it loads the whole partition first (COORDINATOR_LOAD_IN_PROGRESS
until then), and drops its state when another broker takes over. A coordinator knows nothing that is not in its log.
"""
