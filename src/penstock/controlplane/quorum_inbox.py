"""Requests of other replicas, from arrival to reply.

The core identifies a request by its id and replies at once, or when it has records to return. Replies of the core only
reference records and chunks of snapshots; they are read from disk here. A reply is delivered with `call_soon`, because
it may bring in the next request.

When the quorum ends, pending requests get BROKER_NOT_AVAILABLE, as in Kafka during a shutdown.
"""

import logging
from functools import partial
from typing import Final

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.promise import Promise
from penstock.base.world import World
from penstock.controlplane.metadata_log import MetadataLog
from penstock.raft.messages import (
    AddVoter,
    AskVersions,
    BeginQuorumEpoch,
    BeginQuorumEpochReply,
    EndQuorumEpoch,
    EndQuorumEpochReply,
    Fetch,
    FetchReply,
    FetchSnapshot,
    FetchSnapshotReply,
    LeaderHint,
    LogSlice,
    ReadIndex,
    ReadIndexReply,
    RemoveVoter,
    Reply,
    Request,
    SnapshotSlice,
    UpdateVoter,
    VersionsReply,
    Vote,
    VoterChangeReply,
    VoteReply,
)

logger = logging.getLogger(__name__)

_REPLIES: Final[dict[type[Request], type[Reply]]] = {
    Vote: VoteReply,
    BeginQuorumEpoch: BeginQuorumEpochReply,
    EndQuorumEpoch: EndQuorumEpochReply,
    Fetch: FetchReply,
    FetchSnapshot: FetchSnapshotReply,
    AddVoter: VoterChangeReply,
    RemoveVoter: VoterChangeReply,
    UpdateVoter: VoterChangeReply,
    ReadIndex: ReadIndexReply,
    AskVersions: VersionsReply,
}


def refusal(request: Request, error: ErrorCode, leader: LeaderHint) -> Reply:
    """An error reply to a request of any type."""
    return _REPLIES[type(request)](request.request_id, error, leader)


class QuorumInbox:
    def __init__(self, world: World, log: MetadataLog) -> None:
        self._world = world
        self._log = log
        self._next_id = 0
        self._pending: dict[int, tuple[Request, Promise[Reply]]] = {}

    def take(self, request: Request) -> tuple[Request, Promise[Reply]]:
        """Number a request; return it with the promise of its reply."""
        self._next_id += 1
        request = request._replace(request_id=self._next_id)
        promise: Promise[Reply] = Promise()
        self._pending[self._next_id] = (request, promise)
        return request, promise

    def answer(self, reply: Reply) -> None:
        """Deliver a reply of the core."""
        _, promise = self._pending.pop(reply.request_id)
        try:
            filled = self._filled(reply)
        except (KafkaError, OSError) as error:
            logger.error("cannot read metadata for a fetch of another replica: %s", error)
            filled = type(reply)(reply.request_id, ErrorCode.KAFKA_STORAGE_ERROR, reply.leader)
        self._world.call_soon(partial(promise.resolve, filled))

    def refuse_all(self, leader: LeaderHint) -> None:
        pending, self._pending = self._pending, {}
        for request, promise in pending.values():
            reply = refusal(request, ErrorCode.BROKER_NOT_AVAILABLE, leader)
            self._world.call_soon(partial(promise.resolve, reply))

    def forget(self) -> None:
        """Drop all requests, as a crash would."""
        self._pending.clear()

    def _filled(self, reply: Reply) -> Reply:
        """The reply with the bytes that the core only references."""
        if isinstance(reply, FetchReply) and isinstance(reply.records, LogSlice):
            return reply._replace(records=self._log.read(reply.records))
        if isinstance(reply, FetchSnapshotReply) and isinstance(reply.data, SnapshotSlice):
            piece = reply.data
            return reply._replace(
                data=self._log.snapshots.read(piece.snapshot_id, piece.position, piece.bytes_max)
            )
        return reply
