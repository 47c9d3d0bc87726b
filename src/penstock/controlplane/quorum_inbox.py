"""Requests of other replicas, from their arrival to their answer.

The core knows a request by its id and answers when it can: at once, or when there is news to fetch. What its answers
only name, records and pieces of snapshots, is read from the disk here. Whoever asked is told when everything that
is happening has happened: an answer that goes out may bring the next request in.

A quorum that ends leaves nobody waiting: who still does is told BROKER_NOT_AVAILABLE, as Kafka says while it stops.
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
    AskVersions: VersionsReply,
}


def refusal(request: Request, error: ErrorCode, leader: LeaderHint) -> Reply:
    """The answer to a request of any kind that says nothing but why not."""
    return _REPLIES[type(request)](request.request_id, error, leader)


class QuorumInbox:
    def __init__(self, world: World, log: MetadataLog) -> None:
        self._world = world
        self._log = log
        self._next_id = 0
        self._open: dict[int, tuple[Request, Promise[Reply]]] = {}

    def take(self, request: Request) -> tuple[Request, Promise[Reply]]:
        """The request with an id of its own, and the answer to come."""
        self._next_id += 1
        request = request._replace(request_id=self._next_id)
        answer: Promise[Reply] = Promise()
        self._open[self._next_id] = (request, answer)
        return request, answer

    def answer(self, reply: Reply) -> None:
        """The core has answered."""
        _, answer = self._open.pop(reply.request_id)
        try:
            filled = self._filled(reply)
        except (KafkaError, OSError) as error:
            logger.error("another replica cannot be given what it fetches: %s", error)
            filled = type(reply)(reply.request_id, ErrorCode.KAFKA_STORAGE_ERROR, reply.leader)
        self._world.call_soon(partial(answer.resolve, filled))

    def refuse_all(self, leader: LeaderHint) -> None:
        waiting, self._open = self._open, {}
        for request, answer in waiting.values():
            reply = refusal(request, ErrorCode.BROKER_NOT_AVAILABLE, leader)
            self._world.call_soon(partial(answer.resolve, reply))

    def forget(self) -> None:
        """Answer nobody, as after a crash."""
        self._open.clear()

    def _filled(self, reply: Reply) -> Reply:
        """An answer with the bytes that the core only names."""
        if isinstance(reply, FetchReply) and isinstance(reply.records, LogSlice):
            return reply._replace(records=self._log.read(reply.records))
        if isinstance(reply, FetchSnapshotReply) and isinstance(reply.data, SnapshotSlice):
            piece = reply.data
            return reply._replace(
                data=self._log.snapshots.read(piece.snapshot_id, piece.position, piece.bytes_max)
            )
        return reply
