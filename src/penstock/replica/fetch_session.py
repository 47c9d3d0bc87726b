"""A follower's side of an incremental fetch session (KIP-227): the leader remembers the partitions, and requests carry
only what changes.

Idle partitions cost nothing: they are in no request and in no response.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from penstock.base.ids import Uuid
from penstock.replica.follower_replica import FollowerReplica, TopicIdPartition
from penstock.wire import FetchPartition, FetchTopic, ForgottenTopic

NONE: Final = 0
"""The id of no session, and the epoch of the request that opens one."""

_EPOCH_MAX = 2**31 - 1


class SessionFields(NamedTuple):
    """The fields of a FetchRequest that belong to its session."""

    session_id: int
    session_epoch: int
    topics: list[FetchTopic]
    forgotten: list[ForgottenTopic]


class FetchSession:
    def __init__(self) -> None:
        self._id = NONE
        self._epoch = NONE
        self._changed: dict[FollowerReplica, None] = {}
        """Their fetch position is not the one that the leader has."""
        self._forgotten: dict[TopicIdPartition, None] = {}
        """The leader has them, and they are no longer fetched."""
        self._was_refused = False
        """The leader had no room for a session the last time."""

    @property
    def is_opening(self) -> bool:
        """Whether the next request is likely to open a session. It should return at once, to bring the session id."""
        return not self.is_open and not self._was_refused

    @property
    def is_open(self) -> bool:
        return self._epoch != NONE

    @property
    def has_new_partitions(self) -> bool:
        """Whether an urgent partition is in no request yet."""
        return any(each.sent is None and each.is_urgent for each in self._changed)

    def put(self, replica: FollowerReplica) -> None:
        """Send the fetch position of a partition with the next request."""
        self._changed[replica] = None

    def drop(self, replica: FollowerReplica) -> None:
        """No longer fetch a partition."""
        self._changed.pop(replica, None)
        if replica.sent is not None:
            replica.sent = None
            self._forgotten[replica.key] = None

    def next_request(self, replicas: Iterable[FollowerReplica]) -> SessionFields:
        """The fields of the next request. A request that opens a session has all `replicas`."""
        included = self._changed if self.is_open else replicas
        topics: dict[Uuid, list[FetchPartition]] = {}
        for each in included:
            each.sent = each.fetch_position()
            topics.setdefault(each.key[0], []).append(each.sent)
        forgotten: dict[Uuid, list[int]] = {}
        if self.is_open:
            for topic_id, number in self._forgotten:
                forgotten.setdefault(topic_id, []).append(number)
        self._changed, self._forgotten = {}, {}
        return SessionFields(
            self._id,
            self._epoch,
            [FetchTopic(topic_id, partitions) for topic_id, partitions in topics.items()],
            [ForgottenTopic(topic_id, tuple(numbers)) for topic_id, numbers in forgotten.items()],
        )

    def answered(self, session_id: int) -> None:
        """The leader keeps a session with this id; 0 if it has no room for one."""
        self._was_refused = session_id == NONE
        if self._was_refused:
            self.reset(NONE)
        else:
            self._id = session_id
            self._epoch = 1 if self._epoch == _EPOCH_MAX else self._epoch + 1

    def reset(self, session_id: int | None = None) -> None:
        """Open a new session with the next request, which also closes the old one."""
        if session_id is not None:
            self._id = session_id
        self._epoch = NONE
