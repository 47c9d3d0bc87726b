"""Waits until this node has applied the controller's latest committed metadata.

    reached() --> DescribeQuorum at the active controller: its high watermark --> this node has applied all below

The controller first confirms with a majority of voters that it still leads the quorum (`raft/pending_reads`): a
deposed leader that does not know of its successor yet would reply with an old high watermark. If it cannot confirm
that, its reply says so, and counts as none. On the controller's own node the quorum is asked directly.

One DescribeQuorum is in flight at a time, and answers all callers that came before it was sent: so many callers cost
the controller one request after the other, not one each. While the controller cannot be reached, `reached` returns
False at once, and the next request is sent a second later.
"""

from typing import Any, Final

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.internal_topics import METADATA_TOPIC
from penstock.base.promise import Promise
from penstock.base.steps import Steps, in_time
from penstock.raft.messages import NOT_SENT, ReadIndex, ReadIndexReply
from penstock.wire import Api
from penstock.wire.request import Request, through_kio

from .context import Context
from .waiting import run

WAIT_MS_MAX: Final = 1000
"""For the controller's answer, and again until this node has applied the metadata. Both take milliseconds."""

PURPOSE: Final = "latest-metadata"
"""A connection of its own: responses come in order, and others would wait while leadership is confirmed."""

AGAIN_NS: Final = 1_000_000_000
"""After a request without an answer, the next one waits this long."""


class LatestMetadata:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._asking: list[Promise[bool]] | None = None
        """Callers that the request in flight answers; None if there is no request."""
        self._next: list[Promise[bool]] = []
        """Callers that came after it was sent."""
        self._failed_ns: int | None = None
        """When a request last had no answer."""

    def reached(self) -> Promise[bool]:
        """Whether the image has everything that was committed when this was called; False if that is not known."""
        promise: Promise[bool] = Promise()
        now_ns = self._context.world.clock_ns()
        if self._failed_ns is not None and now_ns - self._failed_ns < AGAIN_NS:
            promise.resolve(False)
        else:
            self._next.append(promise)
            self._ask()
        return promise

    def _ask(self) -> None:
        if self._asking is not None or not self._next:
            return
        self._asking, self._next = self._next, []
        found = run(self._is_reached())
        if isinstance(found, Promise):
            found.then(self._answer)
        else:
            self._answer(found)

    def _answer(self, is_reached: bool) -> None:
        asking, self._asking = self._asking or [], None
        self._failed_ns = None if is_reached else self._context.world.clock_ns()
        if not is_reached:
            asking += self._next
            self._next = []
        for promise in asking:
            promise.resolve(is_reached)
        self._ask()

    def _is_reached(self) -> Steps[bool]:
        context = self._context
        try:
            end = yield from self._committed_end()
            yield in_time(
                context.world, self._applied(end), WAIT_MS_MAX, "the metadata was not applied in time"
            )
        except KafkaError:
            return False
        return True

    def _committed_end(self) -> Steps[int]:
        """The high watermark of the metadata log at the active controller, which leads at this moment."""
        quorum, peers = self._context.quorum, self._context.peers
        if quorum.is_leader:
            reply: ReadIndexReply = yield quorum.receive(ReadIndex(NOT_SENT))
            if reply.error is not ErrorCode.NONE:
                raise KafkaError("this node could not confirm that it still leads the quorum", reply.error)
            return reply.high_watermark
        to = quorum.leader_address
        if to is None or peers is None:
            raise KafkaError("no active controller is known")
        answer = yield peers.ask(to, _QUESTION, timeout_ms=WAIT_MS_MAX, purpose=PURPOSE)
        found = [each for topic in answer.topics for each in topic.partitions]
        if answer.error_code or len(found) != 1 or found[0].error_code:
            raise KafkaError("the node that was asked is not the active controller")
        [partition] = found
        unconfirmed = getattr(partition, "error_message", None)
        if unconfirmed or partition.high_watermark < 0:
            raise KafkaError(unconfirmed or "the active controller has committed nothing in its epoch yet")
        return int(partition.high_watermark)

    def _applied(self, end: int) -> Promise[None]:
        """Resolves when all records below this offset are applied."""
        context = self._context
        promise: Promise[None] = Promise()

        def look() -> bool:
            return context.metadata_end >= end

        def image_changed() -> None:
            if look():
                context.image_watchers.pop(image_changed, None)
                promise.resolve(None)

        if look():
            promise.resolve(None)
        else:
            context.image_watchers[image_changed] = None
        return promise


def _question(make: Any) -> Any:
    partition = make.PartitionData(partition_index=0)
    return make.DescribeQuorumRequest(
        topics=(make.TopicData(topic_name=METADATA_TOPIC, partitions=(partition,)),)
    )


_QUESTION: Final[Request[Any]] = through_kio(Api.DESCRIBE_QUORUM, _question)
