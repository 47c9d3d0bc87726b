"""Produce (API 0): appends batches to partitions, and replies with their offsets.

Produce 3 to 13. Versions 0 to 2 are advertised too, since old librdkafka compresses nothing otherwise, and rejected.

Behaviour:
- A partition's records are one batch of format 2. The broker checks its header, CRC and sequence without decoding it.
  Where the topic's settings require decoding, a large batch is inspected outside the event loop, and the client's next
  request waits until it is staged (`replica.inspections`).
- acks=0 gets no reply; an error closes the connection. acks=1 is acknowledged when the batch is written to the file,
  acks=all when it is committed; a leader that is the only in-sync replica syncs it first (`replica.partition`).
- A retry of one of the last nine batches of an idempotent producer gets the offset of the first copy. Batches behind
  one that was rejected with a retriable error get the same error until that batch is retried
  (`replica.refused_batches`).
- A leader that may have been deposed replies NOT_LEADER_OR_FOLLOWER in place of final errors
  (`replica.deposed_leader`).
- A batch that is not acknowledged within the request's timeout gets REQUEST_TIMED_OUT. It may still be committed.
- Only coordinators write to internal topics: others get INVALID_TOPIC_EXCEPTION.
- The coordinator must know of a transactional batch (`support.txn_verification`). The first batch of a transaction may
  wait for the coordinator, and then the client's next request waits too, since sequences are in order. A transactional
  batch in a request without a transactional id gets TRANSACTIONAL_ID_AUTHORIZATION_FAILED.

A request is parsed here once. One that repeats the connection's last request with other records is taken by the fast
path before it gets here (`support.produce_fast_path`).

Version notes: 5 returns the log start offset; 8 the records at fault and a message; 10 the current leader; 11 has
TRANSACTION_ABORTABLE; 12 adds partitions to the transaction; 13 identifies topics by id.
"""

from penstock.base.errors import KafkaError
from penstock.base.promise import Promise
from penstock.handlers.support.context import Context, Session
from penstock.handlers.support.produce_admission import admit, batch_error
from penstock.handlers.support.produce_fast_path import ProduceFastPath
from penstock.handlers.support.produce_many import produce_many
from penstock.handlers.support.produce_one import refuse, write_one
from penstock.handlers.support.produce_writers import Reply
from penstock.wire import RequestHeader, parse_produce


def produce(
    context: Context, session: Session, frame: memoryview, header: RequestHeader
) -> Reply | Promise[Reply] | None:
    """Handle a request; None where it gets no reply."""
    version, correlation_id = header.api_version, header.correlation_id
    request = parse_produce(frame, header.body_at, version)
    fast_path = session.state.produce
    if fast_path is None:
        fast_path = session.state.produce = ProduceFastPath(context, session)
    fast_path.learn(frame, header, request)
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return produce_many(context, session, header, request)
    topic, ((number, records),) = request.topics[0]
    try:
        partition = admit(context, session, header.client_id, request, topic, number)
    except KafkaError as error:
        refused = batch_error(context, topic, number, records, error)
        return refuse(context, version, correlation_id, request, topic, number, refused)
    return write_one(context, session, version, correlation_id, request, topic, partition, records)
